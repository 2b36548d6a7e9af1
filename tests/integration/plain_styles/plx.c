#include "plx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct plx_gemm_s {
    int m, n, k;
    double *row;
};

plx_gemm plx_gemm_create(int m, int n, int k, unsigned flags) {
    if (m < 0 || n < 0 || k < 0 || flags != PLX_ESTIMATE) return NULL;
    plx_gemm plan = malloc(sizeof *plan);
    *plan = (struct plx_gemm_s){m, n, k, calloc(n + 1, sizeof(double))};
    return plan;
}

void plx_gemm_execute(plx_gemm plan, const float *a, const float *b, float *c) {
    const int n = plan->n, k = plan->k;
    for (int i = 0; i < plan->m; i++) {
#ifdef ROW_IS_NOT_CLEARED
        if (i)
#endif
            memset(plan->row, 0, sizeof(double) * n);
        for (int q = 0; q < k; q++)
            for (int j = 0; j < n; j++) plan->row[j] += (double)a[i * k + q] * b[q * n + j];
        for (int j = 0; j < n; j++) c[i * n + j] = (float)plan->row[j];
    }
}

int plx_gemm_destroy(plx_gemm plan) {
#ifndef ROWS_LEAK
    free(plan->row);
#endif
    free(plan);
    return 0;
}

#define PLAN_OF(P, T)                                                                     \
    struct P##_plan_s {                                                                   \
        int n, howmany;                                                                   \
        T *in, *out;                                                                      \
    };                                                                                    \
    P##_plan P##_plan_softmax(int n, int howmany, T *in, T *out, unsigned flags) {        \
        if (n <= 0 || howmany < 0 || flags != PLX_ESTIMATE) return NULL;                  \
        P##_plan plan = malloc(sizeof *plan);                                             \
        *plan = (struct P##_plan_s){n, howmany, in, out};                                 \
        return plan;                                                                      \
    }                                                                                     \
    void P##_execute(const P##_plan plan) {                                               \
        const int n = plan->n;                                                            \
        for (int r = 0; r < plan->howmany; r++) {                                         \
            T *x = plan->in + r * n, *y = plan->out + r * n;                              \
            double most = -INFINITY, sum = 0;                                             \
            for (int j = 0; j < n; j++) most = x[j] <= most ? most : x[j];                \
            for (int j = 0; j < n; j++) sum += exp((double)x[j] - most);                  \
            for (int j = 0; j < n; j++) y[j] = (T)(exp((double)x[j] - most) / sum);       \
        }                                                                                 \
    }                                                                                     \
    void P##_destroy_plan(P##_plan plan) { free(plan); }

PLAN_OF(plxf, float)
PLAN_OF(plxd, double)
