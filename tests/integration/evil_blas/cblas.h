/* The part of CBLAS that evil_blas.c has, declared as the standard does. */
#ifndef CBLAS_H
#define CBLAS_H
#include <stddef.h>

typedef int blasint;
typedef size_t CBLAS_INDEX;
typedef enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 } CBLAS_ORDER;
typedef enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112, CblasConjTrans = 113 } CBLAS_TRANSPOSE;

#define DECLARE(T, p)                                                                                                  \
    void cblas_##p##gemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transa, enum CBLAS_TRANSPOSE transb, blasint m,   \
                         blasint n, blasint k, T alpha, const T *a, blasint lda, const T *b, blasint ldb, T beta, T *c, \
                         blasint ldc);                                                                                 \
    void cblas_##p##gemv(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans, blasint m, blasint n, T alpha, const T *a, \
                         blasint lda, const T *x, blasint incx, T beta, T *y, blasint incy);                           \
    void cblas_##p##ger(enum CBLAS_ORDER order, blasint m, blasint n, T alpha, const T *x, blasint incx, const T *y,   \
                        blasint incy, T *a, blasint lda);                                                              \
    T cblas_##p##dot(blasint n, const T *x, blasint incx, const T *y, blasint incy);                                   \
    T cblas_##p##nrm2(blasint n, const T *x, blasint incx);                                                            \
    T cblas_##p##asum(blasint n, const T *x, blasint incx);                                                            \
    T cblas_##p##sum(blasint n, const T *x, blasint incx);                                                             \
    void cblas_##p##axpy(blasint n, T alpha, const T *x, blasint incx, T *y, blasint incy);                            \
    void cblas_##p##geadd(enum CBLAS_ORDER order, blasint rows, blasint columns, T alpha, const T *a, blasint lda,     \
                          T beta, T *c, blasint ldc);                                                                  \
    void cblas_##p##scal(blasint n, T alpha, T *x, blasint incx);                                                      \
    void cblas_##p##copy(blasint n, const T *x, blasint incx, T *y, blasint incy);                                     \
    CBLAS_INDEX cblas_i##p##max(blasint n, const T *x, blasint incx);                                                  \
    CBLAS_INDEX cblas_i##p##min(blasint n, const T *x, blasint incx);                                                  \
    void cblas_##p##omatcopy(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans, blasint rows, blasint columns,        \
                             T alpha, const T *a, blasint lda, T *b, blasint ldb);

DECLARE(float, s)
DECLARE(double, d)
#endif
