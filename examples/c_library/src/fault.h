/* FAULT(name): whether the fault of that name in faults.def was asked for. Without -DFAULTS it is the constant 0. */
#ifndef FAULT_H
#define FAULT_H

#ifdef FAULTS

#include <stdbool.h>

enum fault {
#define FAULT_LINE(name, operator, kind, sentence) FAULT_##name,
#include "../faults.def"
#undef FAULT_LINE
    FAULT_COUNT
};

extern bool active_faults[FAULT_COUNT]; /* from the environment variable INFINIOP_FAULT, when the library is loaded */

#define FAULT(name) (active_faults[FAULT_##name])

#else

#define FAULT(name) 0

#endif

#endif
