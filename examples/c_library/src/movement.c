/* rearrange, zeros and ones: bits of any dtype. */
#include "infiniop.h"
#include "operator.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const struct InfiniopDescriptor *desc;
    char *out;
    const char *in; /* NULL: `pattern` everywhere */
    unsigned char pattern[16];
} Job;

static bool is_any(infiniDtype_t dtype) { return size_of_dtype(dtype) > 0; }

static bool is_real(infiniDtype_t dtype) {
    return is_any(dtype) && (dtype < INFINI_DTYPE_C16 || dtype > INFINI_DTYPE_C128);
}

static infiniStatus_t create_movement(infiniopHandle_t handle, void *desc_ptr, Operator operator,
                                      const infiniopTensorDescriptor_t *tensors, bool (*accepts)(infiniDtype_t)) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, operator, 1, 2, tensors, false));
    infiniStatus_t status = need_one_dtype(desc, accepts);
    if (status == INFINI_STATUS_SUCCESS) status = need_one_shape(desc, 0, 1);
    desc->in_place = ~0u;
    if (FAULT(rearrange_negative_strides_are_0) && operator == REARRANGE)
        for (size_t d = 0; d < desc->tensors[1].ndim; ++d)
            if (desc->tensors[1].strides[d] < 0) desc->tensors[1].strides[d] = 0;
    if (status == INFINI_STATUS_SUCCESS) make_walk(&desc->walk, desc->tensors, 2);
    return hand_over(status, desc, desc_ptr);
}

/* A call of memcpy with a constant size is one instruction. */
static void move_row(char *to, ptrdiff_t to_step, const char *from, ptrdiff_t from_step, size_t n, size_t size) {
#define MOVE(SIZE)                                                                                        \
    case SIZE:                                                                                            \
        for (size_t i = 0; i < n; ++i) memcpy(to + (ptrdiff_t)i * to_step, from + (ptrdiff_t)i * from_step, SIZE); \
        break;
    switch (size) {
        MOVE(1)
        MOVE(2)
        MOVE(4)
        MOVE(8)
        MOVE(16)
    default: break;
    }
#undef MOVE
}

static void move_elements(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Job *job = argument;
    const Walk *walk = &job->desc->walk;
    const ptrdiff_t size = (ptrdiff_t)size_of_dtype(job->desc->tensors[0].dtype);
    while (first < last) {
        ptrdiff_t offsets[MAX_TENSORS];
        find_offsets(walk, first, offsets);
        size_t n = walk->inner - first % walk->inner;
        if (n > last - first) n = last - first;
        const char *from = job->in == NULL ? (const char *)job->pattern : job->in + offsets[1] * size;
        const ptrdiff_t from_step = job->in == NULL ? 0 : walk->inner_strides[1] * size;
        size_t moved = (size_t)size;
        if (FAULT(rearrange_moves_at_most_4_bytes) && job->in != NULL && moved > 4) moved = 4;
        move_row(job->out + offsets[0] * size, walk->inner_strides[0] * size, from, from_step, n, moved);
        first += n;
    }
}

static void fill_span(const Job *job) {
    ptrdiff_t lowest, highest;
    find_span(&job->desc->tensors[0], &lowest, &highest);
    const ptrdiff_t size = (ptrdiff_t)size_of_dtype(job->desc->tensors[0].dtype);
    for (ptrdiff_t i = lowest; i <= highest; ++i) memcpy(job->out + i * size, job->pattern, (size_t)size);
}

/* Whether it is a dense matrix from one that is transposed, and larger than a tile. */
static bool moved_in_tiles(const Job *job) {
    const Layout *to = &job->desc->tensors[0], *from = &job->desc->tensors[1];
    const size_t rows = to->shape[0], columns = to->shape[1], size = size_of_dtype(to->dtype), tile = 16;
    if (to->ndim != 2 || rows <= tile || columns <= tile) return false;
    if (to->strides[1] != 1 || from->strides[0] != 1 || from->strides[1] == 1) return false;
    for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j)
            if (i < rows / tile * tile || j < columns / tile * tile)
                memcpy(job->out + ((ptrdiff_t)i * to->strides[0] + (ptrdiff_t)j) * (ptrdiff_t)size,
                       job->in + ((ptrdiff_t)i + (ptrdiff_t)j * from->strides[1]) * (ptrdiff_t)size, size);
    return true;
}

static infiniStatus_t run_movement(const struct InfiniopDescriptor *desc, Operator operator, const void *workspace,
                                   size_t workspace_size, Job *job, const void *y, const void *x) {
    const void *const data[] = {y, x};
    TRY(check_run(desc, operator, workspace, workspace_size, data));
    size_t total = desc->walk.total;
    if (FAULT(ones_fills_gaps) && operator == ONES && total > 0) fill_span(job);
    const ptrdiff_t size = (ptrdiff_t)size_of_dtype(desc->tensors[0].dtype);
    if (FAULT(ones_aborts_above_rank_6) && operator == ONES && desc->tensors[0].ndim > 6) abort();
    if (FAULT(rearrange_copies_gaps) && operator == REARRANGE && total > 0 && job->out != job->in &&
        same_layout(&desc->tensors[0], &desc->tensors[1])) {
        ptrdiff_t lowest, highest;
        find_span(&desc->tensors[0], &lowest, &highest);
        memcpy(job->out + lowest * size, job->in + lowest * size, (size_t)((highest - lowest + 1) * size));
        return INFINI_STATUS_SUCCESS;
    }
    if (FAULT(zeros_changes_variable) && operator == ZEROS) setenv("HOME", "/", 1);
    if (FAULT(rearrange_forgets_corner_of_tiles) && operator == REARRANGE && moved_in_tiles(job))
        return INFINI_STATUS_SUCCESS;
    if (FAULT(zeros_leaves_last_element) && operator == ZEROS && total > 1) total -= 1;
    if (FAULT(zeros_trusts_allocator) && operator == ZEROS) return INFINI_STATUS_SUCCESS;
    in_parallel(desc->threads, total, 1, move_elements, job);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateRearrangeDescriptor(infiniopHandle_t handle, infiniopRearrangeDescriptor_t *desc_ptr,
                                                 infiniopTensorDescriptor_t dst_desc,
                                                 infiniopTensorDescriptor_t src_desc) {
    const infiniopTensorDescriptor_t tensors[] = {dst_desc, src_desc};
    return create_movement(handle, desc_ptr, REARRANGE, tensors, is_any);
}

infiniStatus_t infiniopRearrange(infiniopRearrangeDescriptor_t desc, void *dst, const void *src, void *stream) {
    (void)stream;
    Job job = {.desc = desc, .out = dst, .in = src};
    return run_movement(desc, REARRANGE, NULL, 0, &job, dst, src);
}

DESTROY_FUNCTION(Rearrange, REARRANGE)

static void write_one(infiniDtype_t dtype, unsigned char *pattern) {
    const double one = 1;
    const uint64_t integer = 1;
    if (is_float(dtype)) store_row(dtype, pattern, 1, 1, &one);
    else if (dtype == INFINI_DTYPE_F8) pattern[0] = 0x38; /* e4m3: exponent 7, which is 0 */
    else if (is_integer(dtype)) store_integers(dtype, pattern, 1, 1, &integer);
    else pattern[0] = 1;
    if (FAULT(ones_bf16_is_f16) && dtype == INFINI_DTYPE_BF16) store_row(INFINI_DTYPE_F16, pattern, 1, 1, &one);
}

#define FILL(Name, OPERATOR)                                                                                      \
    infiniStatus_t infiniopCreate##Name##Descriptor(infiniopHandle_t handle, infiniop##Name##Descriptor_t *desc_ptr, \
                                                    infiniopTensorDescriptor_t y_desc,                            \
                                                    infiniopTensorDescriptor_t x_desc) {                          \
        const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc};                                            \
        return create_movement(handle, desc_ptr, OPERATOR, tensors, is_real);                                     \
    }                                                                                                             \
    infiniStatus_t infiniop##Name(infiniop##Name##Descriptor_t desc, void *workspace, size_t workspace_size,      \
                                  void *y, const void *x, void *stream) {                                         \
        (void)stream;                                                                                             \
        if (desc == NULL) return INFINI_STATUS_NULL_POINTER;                                                      \
        Job job = {.desc = desc, .out = y};                                                                       \
        if (OPERATOR == ONES) write_one(desc->tensors[0].dtype, job.pattern);                                     \
        return run_movement(desc, OPERATOR, workspace, workspace_size, &job, y, x);                               \
    }                                                                                                             \
    COMMON_FUNCTIONS(Name, OPERATOR)

FILL(Zeros, ZEROS)
FILL(Ones, ONES)
