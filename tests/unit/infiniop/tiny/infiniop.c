/* One operator that is right, twice, and others that are not. */
#include "tiny.h"
#include <stdlib.h>
#include <string.h>
struct InfiniopTensorDescriptor { size_t elements; int dtype; };
struct InfiniopHandle { int device; };
struct InfiniopDescriptor { size_t elements; };
static int alive;
int aliveNow(void) { return alive; }
infiniStatus_t both(void) { return INFINI_STATUS_SUCCESS; }
static void *made(size_t size) { ++alive; return calloc(1, size); }
static infiniStatus_t ended(void *p) {
    if (p == NULL) return INFINI_STATUS_NULL_POINTER;
    --alive;
    free(p);
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopCreateHandle(infiniopHandle_t *h) { *h = made(sizeof **h); return INFINI_STATUS_SUCCESS; }
infiniStatus_t infiniopDestroyHandle(infiniopHandle_t h) { return ended(h); }
infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *t, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype) {
    (void)strides;
    if (dtype == INFINI_DTYPE_BF16) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    *t = made(sizeof **t);
    (*t)->elements = 1;
    for (size_t i = 0; i < ndim; ++i) (*t)->elements *= shape[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t t) { return ended(t); }
infiniStatus_t infiniopCreateTwiceDescriptor(infiniopHandle_t h, infiniopTwiceDescriptor_t *d,
                                             infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x) {
    if (h == NULL || y == NULL || x == NULL) return INFINI_STATUS_NULL_POINTER;
    if (y->elements != x->elements) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    *d = made(sizeof **d);
    (*d)->elements = x->elements;
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopDestroyTwiceDescriptor(infiniopTwiceDescriptor_t d) { return ended(d); }
infiniStatus_t infiniopGetTwiceWorkspaceSize(infiniopTwiceDescriptor_t d, size_t *size) {
    *size = d->elements;
    return INFINI_STATUS_SUCCESS;
}
static infiniStatus_t twice(infiniopTwiceDescriptor_t d, float *y, const float *x) {
    for (size_t i = 0; i < d->elements; ++i) y[i] = 2 * x[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopTwice(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)stream;
    if (n < d->elements) return INFINI_STATUS_INSUFFICIENT_WORKSPACE;
    if (n > 0) memset(w, 0, n);
    return twice(d, y, x);
}
infiniStatus_t infiniopThrice(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    for (size_t i = 0; i < d->elements; ++i) ((float *)y)[i] = 3 * ((const float *)x)[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopOverrun(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    ((float *)y)[d->elements] = 0;
    return twice(d, y, x);
}
infiniStatus_t infiniopScratch(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)stream;
    ((char *)w)[n] = 0;
    return twice(d, y, x);
}
infiniStatus_t infiniopMutate(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    twice(d, y, x);
    ((float *)x)[0] += 1;
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopLacking(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)d, (void)w, (void)n, (void)y, (void)x, (void)stream;
    return INFINI_STATUS_NOT_IMPLEMENTED;
}
infiniStatus_t infiniopHidden(int number) { return number; }
