/* Splits work among threads. No result depends on how it was split. */
#ifndef PARALLEL_H
#define PARALLEL_H

#include <stddef.h>

enum { MAX_THREADS = 64 };

/* Works on units first, ..., last - 1; thread is below the number of threads. */
typedef void Work(const void *job, size_t first, size_t last, int thread);

/* INFINIOP_THREADS, 2 where it is unset or no number from 1 to MAX_THREADS. */
int count_threads(void);

/* cost: of a unit, in elements. Little work stays in the calling thread. */
void in_parallel(int threads, size_t units, size_t cost, Work *work, const void *job);

#endif
