/* Where the elements of a tensor lie, and walks over the elements of several tensors at once. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "infinicore.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_NDIM = 16, MAX_TENSORS = 6 };

typedef struct {
    infiniDtype_t dtype;
    size_t ndim;
    size_t shape[MAX_NDIM];
    ptrdiff_t strides[MAX_NDIM]; /* in elements */
} Layout;

/* The dimensions that several tensors of one shape have in common, as few as possible; the last is the innermost. */
typedef struct {
    size_t count, ndim, total, inner;
    size_t shape[MAX_NDIM];
    ptrdiff_t strides[MAX_TENSORS][MAX_NDIM];
    ptrdiff_t inner_strides[MAX_TENSORS];
} Walk;

size_t size_of_dtype(infiniDtype_t dtype);
bool is_float(infiniDtype_t dtype);
bool is_signed_integer(infiniDtype_t dtype);
bool is_integer(infiniDtype_t dtype); /* BYTE and BOOL are none */

size_t count_elements(const Layout *layout);
bool same_shape(const Layout *a, const Layout *b);
bool same_layout(const Layout *a, const Layout *b); /* every index at the same place */
void make_dense(Layout *layout);
Layout without_axis(const Layout *layout, size_t axis);
/* Lowest and highest offset in elements; the tensor is not empty. */
void find_span(const Layout *layout, ptrdiff_t *lowest, ptrdiff_t *highest);

/* Whether two indices lie at one place, or -1 where there is no memory to find out. */
int overlaps_itself(const Layout *layout);
/* Whether an element of a, from address at_a, shares a byte with one of b; -1 as above. */
int overlap(const Layout *a, const void *at_a, const Layout *b, const void *at_b);

void make_walk(Walk *walk, const Layout *tensors, size_t count);
/* The offset of the index-th element in each tensor. */
void find_offsets(const Walk *walk, size_t index, ptrdiff_t *offsets);

#endif
