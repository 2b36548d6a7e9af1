#include "layout.h"

#include "fault.h"

#include <stdlib.h>
#include <string.h>

size_t size_of_dtype(infiniDtype_t dtype) {
    static const unsigned char sizes[] = {0, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 16, 2};
    return (unsigned)dtype < sizeof sizes ? sizes[dtype] : 0;
}

bool is_float(infiniDtype_t dtype) {
    return dtype == INFINI_DTYPE_F16 || dtype == INFINI_DTYPE_BF16 || dtype == INFINI_DTYPE_F32 ||
           dtype == INFINI_DTYPE_F64;
}

bool is_signed_integer(infiniDtype_t dtype) { return dtype >= INFINI_DTYPE_I8 && dtype <= INFINI_DTYPE_I64; }

bool is_integer(infiniDtype_t dtype) { return dtype >= INFINI_DTYPE_I8 && dtype <= INFINI_DTYPE_U64; }

size_t count_elements(const Layout *layout) {
    size_t total = 1;
    for (size_t d = 0; d < layout->ndim; ++d) total *= layout->shape[d];
    return total;
}

bool same_shape(const Layout *a, const Layout *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

bool same_layout(const Layout *a, const Layout *b) {
    if (a->dtype != b->dtype || !same_shape(a, b)) return false;
    for (size_t d = 0; d < a->ndim; ++d)
        if (a->shape[d] > 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

void make_dense(Layout *layout) {
    size_t stride = 1;
    for (size_t d = layout->ndim; d-- > 0;) {
        layout->strides[d] = (ptrdiff_t)stride;
        stride *= layout->shape[d];
    }
}

Layout without_axis(const Layout *layout, size_t axis) {
    Layout rest = *layout;
    rest.ndim = layout->ndim - 1;
    for (size_t d = axis; d < rest.ndim; ++d) {
        rest.shape[d] = layout->shape[d + 1];
        rest.strides[d] = layout->strides[d + 1];
    }
    return rest;
}

void find_span(const Layout *layout, ptrdiff_t *lowest, ptrdiff_t *highest) {
    *lowest = *highest = 0;
    for (size_t d = 0; d < layout->ndim; ++d) {
        const ptrdiff_t reach = (ptrdiff_t)(layout->shape[d] - 1) * layout->strides[d];
        *(reach < 0 ? lowest : highest) += reach;
    }
}

static size_t absolute(ptrdiff_t value) { return value < 0 ? 0 - (size_t)value : (size_t)value; }

/* Enough for "no two indices at one place": every stride reaches beyond all that smaller strides span. */
static bool is_nested(const Layout *layout) {
    size_t order[MAX_NDIM], used = 0, reach = 0;
    for (size_t d = 0; d < layout->ndim; ++d) {
        if (layout->shape[d] < 2) continue;
        size_t at = used++;
        for (; at > 0 && absolute(layout->strides[order[at - 1]]) > absolute(layout->strides[d]); --at)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (size_t i = 0; i < used; ++i) {
        const size_t stride = absolute(layout->strides[order[i]]);
        if (stride <= reach) return false;
        reach += stride * (layout->shape[order[i]] - 1);
    }
    return true;
}

static int compare_addresses(const void *a, const void *b) {
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* The addresses of all elements, sorted; the caller frees them. NULL: no memory. */
static uintptr_t *sorted_addresses(const Layout *layout, uintptr_t base) {
    const size_t total = count_elements(layout), size = size_of_dtype(layout->dtype);
    uintptr_t *addresses = malloc(total * sizeof *addresses);
    if (addresses == NULL) return NULL;
    Walk walk;
    make_walk(&walk, layout, 1);
    for (size_t i = 0; i < total; ++i) {
        ptrdiff_t offset;
        find_offsets(&walk, i, &offset);
        addresses[i] = base + (uintptr_t)offset * size;
    }
    qsort(addresses, total, sizeof *addresses, compare_addresses);
    return addresses;
}

int overlaps_itself(const Layout *layout) {
    const size_t total = count_elements(layout);
    if (total < 2 || is_nested(layout)) return 0;
    for (size_t d = 0; d < layout->ndim; ++d)
        if (layout->shape[d] > 1 && layout->strides[d] == 0) return 1;
    ptrdiff_t lowest, highest;
    find_span(layout, &lowest, &highest);
    if ((size_t)(highest - lowest) < total - 1) return 1;
    uintptr_t *addresses = sorted_addresses(layout, UINTPTR_MAX / 2);
    if (addresses == NULL) return -1;
    int found = 0;
    for (size_t i = 1; i < total && !found; ++i) found = addresses[i] == addresses[i - 1];
    free(addresses);
    return found;
}

static bool hits(const uintptr_t *sorted, size_t total, size_t size, uintptr_t from, uintptr_t to) {
    size_t low = 0, high = total; /* the first element that ends behind from */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (sorted[middle] + size > from) high = middle;
        else low = middle + 1;
    }
    return low < total && sorted[low] < to;
}

int overlap(const Layout *a, const void *at_a, const Layout *b, const void *at_b) {
    const size_t total_a = count_elements(a), total_b = count_elements(b);
    if (total_a == 0 || total_b == 0) return 0;
    const size_t size_a = size_of_dtype(a->dtype), size_b = size_of_dtype(b->dtype);
    const uintptr_t base_a = (uintptr_t)at_a, base_b = (uintptr_t)at_b;
    ptrdiff_t low_a, high_a, low_b, high_b;
    find_span(a, &low_a, &high_a);
    find_span(b, &low_b, &high_b);
    if (base_a + (uintptr_t)(high_a + 1) * size_a <= base_b + (uintptr_t)low_b * size_b) return 0;
    if (base_b + (uintptr_t)(high_b + 1) * size_b <= base_a + (uintptr_t)low_a * size_a) return 0;

    uintptr_t *addresses = sorted_addresses(a, base_a);
    if (addresses == NULL) return -1;
    Walk walk;
    make_walk(&walk, b, 1);
    bool found = false;
    for (size_t i = 0; i < total_b && !found; ++i) {
        ptrdiff_t offset;
        find_offsets(&walk, i, &offset);
        const uintptr_t from = base_b + (uintptr_t)offset * size_b;
        found = hits(addresses, total_a, size_a, from, from + size_b);
    }
    free(addresses);
    return found;
}

static void copy_dimension(Walk *walk, size_t to, const Layout *tensors, size_t from) {
    walk->shape[to] = tensors[0].shape[from];
    for (size_t t = 0; t < walk->count; ++t) walk->strides[t][to] = tensors[t].strides[from];
}

static void swap_dimensions(Walk *walk, size_t a, size_t b) {
    const size_t size = walk->shape[a];
    walk->shape[a] = walk->shape[b];
    walk->shape[b] = size;
    for (size_t t = 0; t < walk->count; ++t) {
        const ptrdiff_t stride = walk->strides[t][a];
        walk->strides[t][a] = walk->strides[t][b];
        walk->strides[t][b] = stride;
    }
}

/* Whether stepping over the whole of dimension d is one step of the dimension before, in every tensor. */
static bool can_merge(const Walk *walk, size_t before, size_t d) {
    const size_t asked = FAULT(add_merges_by_output) ? 1 : walk->count;
    for (size_t t = 0; t < asked; ++t)
        if (walk->strides[t][before] != walk->strides[t][d] * (ptrdiff_t)walk->shape[d]) return false;
    return true;
}

static void merge_dimensions(Walk *walk) {
    size_t kept = 0;
    for (size_t d = 1; d < walk->ndim; ++d) {
        if (can_merge(walk, kept, d)) {
            walk->shape[kept] *= walk->shape[d];
        } else {
            walk->shape[++kept] = walk->shape[d];
        }
        for (size_t t = 0; t < walk->count; ++t) walk->strides[t][kept] = walk->strides[t][d];
    }
    if (walk->ndim > 0) walk->ndim = kept + 1;
}

/* Dimensions of size 1 are left out, the others sorted by the strides of the first tensor, the largest first. */
void make_walk(Walk *walk, const Layout *tensors, size_t count) {
    memset(walk, 0, sizeof *walk);
    walk->count = count;
    walk->total = count_elements(&tensors[0]);
    walk->inner = 1;
    if (walk->total == 0) return;
    for (size_t d = 0; d < tensors[0].ndim; ++d)
        if (tensors[0].shape[d] != 1) copy_dimension(walk, walk->ndim++, tensors, d);
    for (size_t d = 1; d < walk->ndim; ++d)
        for (size_t e = d; e > 0 && absolute(walk->strides[0][e - 1]) < absolute(walk->strides[0][e]); --e)
            swap_dimensions(walk, e - 1, e);
    merge_dimensions(walk);
    if (walk->ndim == 0) return;
    walk->inner = walk->shape[walk->ndim - 1];
    for (size_t t = 0; t < count; ++t) walk->inner_strides[t] = walk->strides[t][walk->ndim - 1];
}

void find_offsets(const Walk *walk, size_t index, ptrdiff_t *offsets) {
    for (size_t t = 0; t < walk->count; ++t) offsets[t] = 0;
    for (size_t d = walk->ndim; d-- > 0;) {
        const ptrdiff_t at = (ptrdiff_t)(index % walk->shape[d]);
        index /= walk->shape[d];
        for (size_t t = 0; t < walk->count; ++t) offsets[t] += at * walk->strides[t][d];
    }
}
