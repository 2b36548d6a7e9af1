#include "parallel.h"

#include "fault.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { LEAST_COST = 2048 }; /* of a thread, in elements: starting one takes longer than that */

typedef struct {
    Work *work;
    const void *job;
    size_t first, last;
    int thread;
} Part;

int count_threads(void) {
    const char *text = getenv("INFINIOP_THREADS");
    if (text == NULL) return 2;
    char *end;
    const long threads = strtol(text, &end, 10);
    return end != text && *end == '\0' && threads >= 1 && threads <= MAX_THREADS ? (int)threads : 2;
}

static void *run_part(void *argument) {
    const Part *part = argument;
    part->work(part->job, part->first, part->last, part->thread);
    return NULL;
}

static int useful_threads(int threads, size_t units, size_t cost) {
    if (cost == 0) cost = 1;
    const size_t enough = units > SIZE_MAX / cost ? SIZE_MAX : units * cost / LEAST_COST;
    if ((size_t)threads > enough) threads = (int)enough;
    if ((size_t)threads > units) threads = (int)units;
    return threads < 1 ? 1 : threads;
}

void in_parallel(int threads, size_t units, size_t cost, Work *work, const void *job) {
    if (units == 0) return;
    threads = useful_threads(threads, units, cost);
    Part parts[MAX_THREADS];
    pthread_t started[MAX_THREADS];
    bool is_started[MAX_THREADS] = {false};
    size_t first = 0;
    for (int t = 0; t < threads; ++t) {
        const size_t share = units / (size_t)threads + ((size_t)t < units % (size_t)threads);
        parts[t] = (Part){work, job, first, first + share, t};
        if (FAULT(threads_drop_remainder)) parts[t].last = first + units / (size_t)threads;
        if (FAULT(threads_above_3_lose_one) && threads > 3 && t == threads - 1) parts[t].last -= 1;
        first += share;
    }
    for (int t = 1; t < threads; ++t) is_started[t] = pthread_create(&started[t], NULL, run_part, &parts[t]) == 0;
    run_part(&parts[0]);
    for (int t = 1; t < threads; ++t)
        if (!is_started[t]) run_part(&parts[t]);
    if (FAULT(threads_not_joined)) {
        for (int t = 1; t < threads; ++t)
            if (is_started[t]) pthread_detach(started[t]);
        return; /* parts is on this stack */
    }
    for (int t = 1; t < threads; ++t)
        if (is_started[t]) pthread_join(started[t], NULL);
}
