#include "row.h"

#include "layout.h"
#include "number.h"

#include <math.h>
#include <string.h>

const void *place(const void *base, infiniDtype_t dtype, ptrdiff_t offset) {
    if (offset == 0) return base; /* which may be NULL where a tensor is empty */
    return (const char *)base + offset * (ptrdiff_t)size_of_dtype(dtype);
}

void *place_to_write(void *base, infiniDtype_t dtype, ptrdiff_t offset) {
    if (offset == 0) return base;
    return (char *)base + offset * (ptrdiff_t)size_of_dtype(dtype);
}

/* Tensors may lie at any address: elements are copied out of memory before they are numbers. */
#define LOAD(Element, expression)                                               \
    for (size_t i = 0; i < n; ++i) {                                            \
        Element element;                                                        \
        memcpy(&element, (const char *)from + (ptrdiff_t)i * step, sizeof element); \
        to[i] = (expression);                                                   \
    }

#define STORE(Element, expression)                                              \
    for (size_t i = 0; i < n; ++i) {                                            \
        const Element element = (expression);                                   \
        memcpy((char *)to + (ptrdiff_t)i * step, &element, sizeof element);     \
    }

/* A dense row is a loop of its own: the compiler makes vectors of it. */
#define DENSE_OR_STRIDED(LOOP, Element, expression)       \
    do {                                                  \
        if (stride == 1) {                                \
            const ptrdiff_t step = sizeof(Element);       \
            LOOP(Element, expression)                     \
        } else {                                          \
            const ptrdiff_t step = stride * (ptrdiff_t)sizeof(Element); \
            LOOP(Element, expression)                     \
        }                                                 \
    } while (0)

void load_row(infiniDtype_t dtype, const void *from, ptrdiff_t stride, size_t n, double *to) {
    switch (dtype) {
    case INFINI_DTYPE_F16: DENSE_OR_STRIDED(LOAD, uint16_t, double_of_f16(element)); break;
    case INFINI_DTYPE_BF16: DENSE_OR_STRIDED(LOAD, uint16_t, double_of_bf16(element)); break;
    case INFINI_DTYPE_F32: DENSE_OR_STRIDED(LOAD, float, (double)element); break;
    default: DENSE_OR_STRIDED(LOAD, double, element); break;
    }
}

void store_row(infiniDtype_t dtype, void *to, ptrdiff_t stride, size_t n, const double *from) {
    switch (dtype) {
    case INFINI_DTYPE_F16: DENSE_OR_STRIDED(STORE, uint16_t, f16_of_double(from[i])); break;
    case INFINI_DTYPE_BF16: DENSE_OR_STRIDED(STORE, uint16_t, bf16_of_double(from[i])); break;
    case INFINI_DTYPE_F32: DENSE_OR_STRIDED(STORE, float, (float)from[i]); break;
    default: DENSE_OR_STRIDED(STORE, double, from[i]); break;
    }
}

void load_integers(infiniDtype_t dtype, const void *from, ptrdiff_t stride, size_t n, uint64_t *to) {
    switch (dtype) {
    case INFINI_DTYPE_I8: DENSE_OR_STRIDED(LOAD, int8_t, (uint64_t)(int64_t)element); break;
    case INFINI_DTYPE_I16: DENSE_OR_STRIDED(LOAD, int16_t, (uint64_t)(int64_t)element); break;
    case INFINI_DTYPE_I32: DENSE_OR_STRIDED(LOAD, int32_t, (uint64_t)(int64_t)element); break;
    case INFINI_DTYPE_U8: DENSE_OR_STRIDED(LOAD, uint8_t, element); break;
    case INFINI_DTYPE_U16: DENSE_OR_STRIDED(LOAD, uint16_t, element); break;
    case INFINI_DTYPE_U32: DENSE_OR_STRIDED(LOAD, uint32_t, element); break;
    default: DENSE_OR_STRIDED(LOAD, uint64_t, element); break;
    }
}

void store_integers(infiniDtype_t dtype, void *to, ptrdiff_t stride, size_t n, const uint64_t *from) {
    switch (size_of_dtype(dtype)) {
    case 1: DENSE_OR_STRIDED(STORE, uint8_t, (uint8_t)from[i]); break;
    case 2: DENSE_OR_STRIDED(STORE, uint16_t, (uint16_t)from[i]); break;
    case 4: DENSE_OR_STRIDED(STORE, uint32_t, (uint32_t)from[i]); break;
    default: DENSE_OR_STRIDED(STORE, uint64_t, from[i]); break;
    }
}
