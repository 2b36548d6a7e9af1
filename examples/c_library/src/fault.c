/* Which faults are active. Compiled into the broken library only. */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool active_faults[FAULT_COUNT];

static const char *const names[FAULT_COUNT] = {
#define FAULT_LINE(name, operator, kind, sentence) #name,
#include "../faults.def"
#undef FAULT_LINE
};

static void activate(const char *wanted, size_t length) {
    for (size_t i = 0; i < FAULT_COUNT; ++i) {
        if (strlen(names[i]) != length || memcmp(names[i], wanted, length) != 0) continue;
        active_faults[i] = true;
        return;
    }
    fprintf(stderr, "INFINIOP_FAULT is %.*s, expected a name that `make faults` prints\n", (int)length, wanted);
    abort();
}

/* Several names stand between commas. */
__attribute__((constructor)) static void choose_faults(void) {
    const char *wanted = getenv("INFINIOP_FAULT");
    while (wanted != NULL && *wanted != '\0') {
        const size_t length = strcspn(wanted, ",");
        activate(wanted, length);
        wanted += length + (wanted[length] == ',');
    }
}
