/* FAULT(name): whether the fault of that name in faults.def was asked for. Without -DFAULTS it is the constant 0. */
#ifndef FAULT_H
#define FAULT_H

#ifdef FAULTS

enum fault {
    FAULT_NONE,
#define FAULT_LINE(name, operator, kind, sentence) FAULT_##name,
#include "../faults.def"
#undef FAULT_LINE
};

extern enum fault active_fault; /* from the environment variable INFINIOP_FAULT, when the library is loaded */

#define FAULT(name) (active_fault == FAULT_##name)

#else

#define FAULT(name) 0

#endif

#endif
