#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmmintrin.h>

/* One is active: the one that the caller sets, or the environment as SHIM_FAULT. */
enum {
    RIGHT,
    READS_BEHIND, WRITES_BEHIND, WRITES_FAR_BEHIND, ALIGNS_DOWN, READS_OUTPUT,
    REMEMBERS_ADDRESS, WRONG_NOW_AND_THEN, WRONG_IN_FIFTH_CALL, WRONG_IN_SECOND_CALL, ROUNDS_UPWARD,
    FLUSHES_TO_ZERO, UNMASKS_TRAPS, PRINTS, PRINTS_ONCE, LEAKS,
    LEAKS_LITTLE, CACHES_ONCE, WRITES_LATE, ONE_ULP_BY_ALIGNMENT, WRONG_BY_ALIGNMENT,
    ONE_ULP_BY_THREADS, WRONG_BY_THREADS, ABORTS, DIVIDES_BY_ZERO, READS_FRESH_HEAP,
    LEAVES_FILES_OPEN, LEAVES_THREADS, CHANGES_FOLDER, CLOSES_OUTPUT, BLOCKS_SIGNALS,
    ADDS_VARIABLE, CHANGES_INPUT, SKIPS_LAST, REFUSES, READS_BEFORE,
} fault = RIGHT;
enum { N = 20 };
int calls, greeted;
static int zero;
static void *volatile kept, *volatile cache;
static const float *last;
static float first;
float *written;  /* by the last call */

__attribute__((constructor)) static void choose(void) {
    const char *text = getenv("SHIM_FAULT");
    if (text) fault = atoi(text);
}

/* What a thread that is not waited for would do at any time is done while the next call elsewhere is at work. */
static void write_late(float *y) {
    if (written && written != y) written[3] = 7;
    written = y;
}

volatile int is_over;

static void *sleep_long(void *nothing) {
    while (!is_over) usleep(1000);
    return nothing;
}

/* tanh of 20 float32 */
int infiniopTanh(void *d, void *w, size_t size, float *y, const float *x, void *s) {
    (void)d, (void)w, (void)size, (void)s;
    if (fault == ALIGNS_DOWN) x = (const float *)((uintptr_t)x & ~(uintptr_t)15);
    if (x != last) last = x, first = x[0];
    for (int i = 0; i < N; ++i) {
        if (fault == WRITES_LATE && i == 3) continue;
        if (fault == SKIPS_LAST && i == N - 1) continue;
        const float value = fault == REMEMBERS_ADDRESS && i == 0 ? first : x[i];
        const float before = fault == READS_OUTPUT ? 0 * y[i] : 0;
        y[i] = (float)tanh((double)value) + before;
    }
    ++calls;
    switch (fault) {
    case READS_BEHIND: zero = 0 * ((const volatile char *)(x + N))[2]; break;
    case READS_BEFORE: y[0] += x[-1]; break;
    case WRITES_BEHIND: y[N] = 0; break;
    case WRITES_FAR_BEHIND: y[N + 20] = 0; break;
    case WRONG_NOW_AND_THEN: if (rand() % 5 == 0) y[1] = 3; break;
    case WRONG_IN_SECOND_CALL: if (calls % 2) y[1] = 3; break;
    case WRONG_IN_FIFTH_CALL: if (calls % 5 == 4) y[1] = 3; break;
    case ROUNDS_UPWARD: fesetround(FE_UPWARD); break;
    case FLUSHES_TO_ZERO: _mm_setcsr(_mm_getcsr() | 0x8040); break;
    case UNMASKS_TRAPS: feenableexcept(FE_DIVBYZERO); break;
    case PRINTS: puts("tanh: done"); break;
    case PRINTS_ONCE: if (!greeted) greeted = 1, puts("welcome"); break;
    case LEAKS: kept = malloc(100000); memset(kept, 1, 100000); break;
    case LEAKS_LITTLE: kept = malloc(24); break;
    case CACHES_ONCE: if (!cache) cache = malloc(100000); break;
    case WRITES_LATE: write_late(y); break;
    case ONE_ULP_BY_ALIGNMENT: if ((uintptr_t)x % 64) y[5] = nextafterf(y[5], 9); break;
    case WRONG_BY_ALIGNMENT: if ((uintptr_t)x % 64 == 0) y[5] += 1; break;
    case ONE_ULP_BY_THREADS: if (atoi(getenv("INFINIOP_THREADS") ?: "1") == 7) y[5] = nextafterf(y[5], 9); break;
    case WRONG_BY_THREADS: if (atoi(getenv("INFINIOP_THREADS") ?: "1") == 7) y[5] += 1; break;
    case ABORTS: abort();
    case DIVIDES_BY_ZERO: raise(8); break;
    case LEAVES_FILES_OPEN: dup(0); break;
    case CHANGES_FOLDER: if (chdir("/")) abort(); break;
    case CLOSES_OUTPUT: close(1); break;
    case BLOCKS_SIGNALS: {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        break;
    }
    case CHANGES_INPUT: ((float *)x)[3] = 7; break;
    case REFUSES: return 1;
    case ADDS_VARIABLE: setenv("TANH_WAS_HERE", "1", 1); break;
    case LEAVES_THREADS: {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleep_long, NULL) == 0) pthread_detach(thread);
        break;
    }
    case READS_FRESH_HEAP: {
        float *volatile scratch = malloc(N * sizeof(float));
        for (int i = 0; i < 10; ++i) scratch[i] = 1;
        if (scratch[15] != scratch[15]) y[2] = 5;
        free(scratch);
        break;
    }
    }
    return 0;
}
