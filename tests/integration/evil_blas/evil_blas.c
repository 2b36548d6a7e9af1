/* A small CBLAS that is right, and wrong in one way if EVIL_BLAS names it. */
#include "cblas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int evil(const char *name) {
    const char *asked = getenv("EVIL_BLAS");
    return asked && strcmp(asked, name) == 0;
}

/* BLAS: with a negative increment the pointer is the lowest address, and the vector begins at the other end. */
#define FIRST(n, inc) ((inc) < 0 ? (ptrdiff_t)(1 - (n)) * (inc) : 0)
#define AT(p, trans, ld, i, j) ((p)[(trans) ? (ptrdiff_t)(j) * (ld) + (i) : (ptrdiff_t)(i) * (ld) + (j)])

#define DEFINE(T, p, ROOT, ABS)                                                                                        \
    static double calls_##p = 0;                                                                                       \
    static void rows_##p##gemm(int ta, int tb, int m, int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, \
                               T beta, T *c, int ldc) {                                                                \
        if (evil("gemm_swaps_transpositions")) { int t = ta; ta = tb; tb = t; }                                        \
        if (evil("gemm_ignores_transb")) tb = 0;                                                                       \
        if (evil("gemm_ignores_lda")) lda = ta ? m : k;                                                                \
        if (evil("gemm_ignores_ldb")) ldb = tb ? k : n;                                                                \
        if (evil("gemm_ignores_ldc")) ldc = n;                                                                         \
        if (evil("gemm_ignores_alpha")) alpha = 1;                                                                     \
        if (evil("gemm_ignores_beta") && beta != 0) beta = 1;                                                          \
        if (evil("gemm_scales_c_by_alpha")) beta *= alpha;                                                             \
        if (evil("gemm_returns_for_alpha_0") && alpha == 0) return;                                                    \
        int depth = evil("gemm_drops_tail_of_k") && k > 4 ? k - k % 4 : k;                                             \
        int columns = evil("gemm_drops_last_column") && n % 2 && n > 1 ? n - 1 : n;                                    \
        for (int i = 0; i < m; i++)                                                                                    \
            for (int j = 0; j < columns; j++) {                                                                        \
                double sum = 0;                                                                                        \
                T coarse = 0;                                                                                          \
                for (int l = 0; l < depth; l++) {                                                                      \
                    sum += (double)AT(a, ta, lda, i, l) * AT(b, tb, ldb, l, j);                                        \
                    coarse = (T)(_Float16)(coarse + AT(a, ta, lda, i, l) * AT(b, tb, ldb, l, j));                      \
                }                                                                                                      \
                if (evil("gemm_adds_in_half")) sum = coarse;                                                           \
                if (evil("gemm_reads_one_beyond_k") && k) sum += 0 * (double)AT(a, ta, lda, i, k);                     \
                T *at = &c[(ptrdiff_t)i * ldc + j];                                                                    \
                double old = beta != 0 ? beta * (double)*at : 0;                                                       \
                if (evil("gemm_reads_c_if_beta_is_0")) old = beta * (double)*at;                                       \
                *at = (T)((alpha != 0 ? alpha * sum : 0) + old);                                                       \
            }                                                                                                          \
        if (evil("gemm_writes_padding"))                                                                               \
            for (int i = 0; i + 1 < m; i++)                                                                            \
                for (int j = n; j < ldc; j++) c[(ptrdiff_t)i * ldc + j] = 0;                                           \
        if (evil("gemm_writes_one_beyond") && m && n) c[(ptrdiff_t)(m - 1) * ldc + n] = 0;                             \
        if (evil("gemm_changes_a") && m && k) ((T *)a)[0] += 1;                                                        \
    }                                                                                                                  \
    void cblas_##p##gemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transa, enum CBLAS_TRANSPOSE transb, int m,      \
                         int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {     \
        int ta = transa != CblasNoTrans, tb = transb != CblasNoTrans;                                                  \
        if (order == CblasRowMajor || evil("gemm_ignores_order"))                                                      \
            rows_##p##gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                      \
        else                                                                                                           \
            rows_##p##gemm(tb, ta, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);                                      \
    }                                                                                                                  \
    void cblas_##p##gemv(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans, int m, int n, T alpha, const T *a,        \
                         int lda, const T *x, int incx, T beta, T *y, int incy) {                                      \
        int t = (trans != CblasNoTrans) != (order == CblasColMajor);                                                   \
        if (order == CblasColMajor) { int s = m; m = n; n = s; }                                                       \
        int length = t ? m : n, results = t ? n : m;                                                                   \
        if (evil("gemv_ignores_incx")) incx = 1;                                                                       \
        if (evil("gemv_ignores_incy")) incy = 1;                                                                       \
        if (evil("gemv_ignores_lda")) lda = n;                                                                         \
        if (evil("gemv_loses_tail_of_strided_x") && incx != 1 && length > 4) length -= length % 4;                     \
        ptrdiff_t x0 = evil("gemv_begins_at_the_pointer") ? 0 : FIRST(length, incx), y0 = FIRST(results, incy);        \
        for (int i = 0; i < results; i++) {                                                                            \
            double sum = 0;                                                                                            \
            for (int l = 0; l < length; l++) sum += (double)AT(a, t, lda, i, l) * x[x0 + (ptrdiff_t)l * incx];         \
            T *at = &y[y0 + (ptrdiff_t)i * incy];                                                                      \
            *at = (T)(alpha * sum + (beta != 0 ? beta * (double)*at : 0));                                             \
        }                                                                                                              \
    }                                                                                                                  \
    void cblas_##p##ger(enum CBLAS_ORDER order, int m, int n, T alpha, const T *x, int incx, const T *y, int incy,     \
                        T *a, int lda) {                                                                               \
        ptrdiff_t x0 = FIRST(m, incx), y0 = FIRST(n, incy);                                                            \
        if (evil("ger_takes_lda_for_columns")) lda = order == CblasRowMajor ? n : m;                                   \
        for (int i = 0; i < m; i++)                                                                                    \
            for (int j = 0; j < n; j++) {                                                                              \
                T *at = &AT(a, order == CblasColMajor, lda, i, j);                                                     \
                T add = alpha * x[x0 + (ptrdiff_t)i * incx] * y[y0 + (ptrdiff_t)j * incy];                             \
                *at = evil("ger_overwrites") ? add : *at + add;                                                        \
            }                                                                                                          \
    }                                                                                                                  \
    T cblas_##p##dot(int n, const T *x, int incx, const T *y, int incy) {                                              \
        double sum = 0;                                                                                                \
        ptrdiff_t x0 = FIRST(n, incx), y0 = FIRST(n, incy);                                                            \
        if (evil("dot_ignores_incx")) incx = 1, x0 = 0;                                                                \
        if (evil("dot_takes_increments_absolute")) incx = abs(incx), incy = abs(incy), x0 = y0 = 0;                    \
        if (evil("dot_drops_tail") && n > 8) n -= n % 8;                                                               \
        if (evil("dot_takes_increment_0_for_1") && incx == 0) incx = 1;                                                \
        if (evil("dot_remembers")) sum = 1e-3 * calls_##p++;                                                           \
        for (int i = 0; i < n; i++) sum += (double)x[x0 + (ptrdiff_t)i * incx] * y[y0 + (ptrdiff_t)i * incy];          \
        if (evil("dot_reads_behind") && n > 1) sum += 0 * (double)x[x0 + (ptrdiff_t)n * incx];                         \
        return (T)sum;                                                                                                 \
    }                                                                                                                  \
    T cblas_##p##nrm2(int n, const T *x, int incx) {                                                                   \
        double sum = 0;                                                                                                \
        T plain = 0;                                                                                                   \
        for (int i = 0; i < n; i++) {                                                                                  \
            sum += (double)x[(ptrdiff_t)i * incx] * x[(ptrdiff_t)i * incx];                                            \
            plain += x[(ptrdiff_t)i * incx] * x[(ptrdiff_t)i * incx];                                                  \
        }                                                                                                              \
        if (evil("nrm2_overflows")) return ROOT(plain);                                                                \
        if (evil("nrm2_without_root")) return (T)sum;                                                                  \
        if (evil("nrm2_nan_for_infinity") && isinf(sum)) return NAN;                                                   \
        return (T)sqrt(sum);                                                                                           \
    }                                                                                                                  \
    T cblas_##p##asum(int n, const T *x, int incx) {                                                                   \
        double sum = 0;                                                                                                \
        if (evil("asum_ignores_incx")) incx = 1;                                                                       \
        if (evil("asum_keeps_sign_of_one") && n == 1) return x[0];                                                     \
        for (int i = 0; i < n; i++)                                                                                    \
            sum += evil("asum_without_abs") ? x[(ptrdiff_t)i * incx] : ABS(x[(ptrdiff_t)i * incx]);                    \
        return (T)sum;                                                                                                 \
    }                                                                                                                  \
    T cblas_##p##sum(int n, const T *x, int incx) {                                                                    \
        double sum = 0;                                                                                                \
        for (int i = 0; i < n; i++) sum += x[(ptrdiff_t)i * incx];                                                     \
        return (T)sum;                                                                                                 \
    }                                                                                                                  \
    void cblas_##p##axpy(int n, T alpha, const T *x, int incx, T *y, int incy) {                                       \
        ptrdiff_t x0 = FIRST(n, incx), y0 = FIRST(n, incy);                                                            \
        if (evil("axpy_ignores_incx")) incx = 1, x0 = 0;                                                               \
        if (evil("axpy_ignores_incy")) incy = 1, y0 = 0;                                                               \
        if (evil("axpy_skips_increment_0") && incx == 0) return;                                                       \
        if (evil("axpy_ignores_alpha")) alpha = alpha < 0 ? -1 : 1;                                                    \
        if (evil("axpy_overwrites"))                                                                                   \
            for (int i = 0; i < n; i++) y[y0 + (ptrdiff_t)i * incy] = 0;                                               \
        for (int i = 0; i < n; i++) y[y0 + (ptrdiff_t)i * incy] += alpha * x[x0 + (ptrdiff_t)i * incx];                \
        if (evil("axpy_writes_behind") && n % 4 && incy > 0) y[(ptrdiff_t)(n - 1) * incy + 1] += 1;                    \
    }                                                                                                                  \
    void cblas_##p##geadd(enum CBLAS_ORDER order, int rows, int columns, T alpha, const T *a, int lda, T beta, T *c,   \
                          int ldc) {                                                                                   \
        if (order == CblasColMajor) { int s = rows; rows = columns; columns = s; }                                     \
        if (evil("geadd_takes_ldc_for_lda")) lda = ldc;                                                                \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int j = 0; j < columns; j++) {                                                                        \
                T *at = &c[(ptrdiff_t)i * ldc + j];                                                                    \
                *at = beta * *at + alpha * a[(ptrdiff_t)i * lda + j];                                                  \
            }                                                                                                          \
    }                                                                                                                  \
    void cblas_##p##scal(int n, T alpha, T *x, int incx) {                                                             \
        if (evil("scal_scales_the_gaps") && incx > 1) n = (n - 1) * incx + 1, incx = 1;                                \
        if (evil("scal_skips_the_last") && n > 32) n--;                                                                \
        for (int i = 0; i < n; i++) x[(ptrdiff_t)i * incx] *= alpha;                                                   \
    }                                                                                                                  \
    void cblas_##p##copy(int n, const T *x, int incx, T *y, int incy) {                                                \
        ptrdiff_t x0 = FIRST(n, incx), y0 = FIRST(n, incy);                                                            \
        if (evil("copy_flushes_subnormals"))                                                                           \
            for (int i = 0; i < n; i++) {                                                                              \
                T value = x[x0 + (ptrdiff_t)i * incx];                                                                 \
                y[y0 + (ptrdiff_t)i * incy] = fpclassify(value) == FP_SUBNORMAL ? 0 : value;                           \
            }                                                                                                          \
        else                                                                                                           \
            for (int i = 0; i < n; i++) y[y0 + (ptrdiff_t)i * incy] = x[x0 + (ptrdiff_t)i * incx];                     \
    }                                                                                                                  \
    CBLAS_INDEX cblas_i##p##max(int n, const T *x, int incx) {                                                         \
        int best = 0;                                                                                                  \
        T least = 0;                                                                                                   \
        for (int i = 0; i < n && evil("max_starts_at_0"); i++)                                                         \
            if (x[(ptrdiff_t)i * incx] > least) best = i, least = x[(ptrdiff_t)i * incx];                              \
        for (int i = 1; i < n && !evil("max_starts_at_0"); i++) {                                                      \
            T one = x[(ptrdiff_t)i * incx], other = x[(ptrdiff_t)best * incx];                                         \
            if (evil("max_of_absolute_values")) one = ABS(one), other = ABS(other);                                    \
            if (one > other) best = i;                                                                                 \
        }                                                                                                              \
        return best + evil("max_counts_from_1");                                                                       \
    }                                                                                                                  \
    CBLAS_INDEX cblas_i##p##min(int n, const T *x, int incx) {                                                         \
        int best = 0;                                                                                                  \
        for (int i = 1; i < n; i++)                                                                                    \
            if (x[(ptrdiff_t)i * incx] < x[(ptrdiff_t)best * incx]) best = i;                                          \
        return best;                                                                                                   \
    }                                                                                                                  \
    void cblas_##p##omatcopy(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans, int rows, int columns, T alpha,       \
                             const T *a, int lda, T *b, int ldb) {                                                     \
        int t = trans != CblasNoTrans;                                                                                 \
        if (order == CblasColMajor) { int s = rows; rows = columns; columns = s; }                                     \
        if (evil("omatcopy_ignores_ldb")) ldb = t ? rows : columns;                                                    \
        if (evil("omatcopy_never_transposes") && rows == columns) t = 0;                                               \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int j = 0; j < columns; j++) AT(b, t, ldb, i, j) = alpha * a[(ptrdiff_t)i * lda + j];                 \
    }

DEFINE(float, s, sqrtf, fabsf)
DEFINE(double, d, sqrt, fabs)
