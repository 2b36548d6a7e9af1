/* Which fault is active. Compiled into the broken library only. */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault active_fault = FAULT_NONE;

static const char *const names[] = {
    "",
#define FAULT_LINE(name, operator, kind, sentence) #name,
#include "../faults.def"
#undef FAULT_LINE
};

__attribute__((constructor)) static void choose_fault(void) {
    const char *wanted = getenv("INFINIOP_FAULT");
    if (wanted == NULL) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        if (strcmp(names[i], wanted) != 0) continue;
        active_fault = (enum fault)i;
        return;
    }
    fprintf(stderr, "INFINIOP_FAULT is %s, but should be a name that `make faults` prints\n", wanted);
    abort();
}
