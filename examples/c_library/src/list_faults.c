/* Prints faults.def: name, operator, kind and sentence, separated by tabs. */
#include <stdio.h>

int main(void) {
#define FAULT_LINE(name, operator, kind, sentence) puts(#name "\t" operator "\t" kind "\t" sentence);
#include "../faults.def"
#undef FAULT_LINE
    return 0;
}
