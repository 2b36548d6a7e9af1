/* softmax and causal_softmax: shifted by the maximum, the sum in long double. */
#include "infiniop.h"
#include "operator.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    const struct InfiniopDescriptor *desc;
    void *out;
    const void *in;
    void *workspace;
} Job;

static infiniStatus_t prepare(Descriptor desc, size_t axis) {
    walk_rows(desc, 2, axis);
    desc->in_place = 1u << 1;
    desc->workspace = size_of_buffers(desc->row, desc->threads);
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t prepare_softmax(Descriptor desc, int axis) {
    const int ndim = (int)desc->tensors[0].ndim;
    TRY(need_one_dtype(desc, is_float));
    TRY(need_one_shape(desc, 0, 1));
    if (FAULT(softmax_accepts_any_axis) && ndim > 0 && (axis < -ndim || axis >= ndim)) axis = ndim - 1;
    if (axis < -ndim || axis >= ndim) return INFINI_STATUS_BAD_PARAM;
    if (FAULT(softmax_misreads_negative_axis) && axis < -1) axis += 1;
    if (FAULT(softmax_ignores_axis)) axis = ndim - 1;
    if (FAULT(softmax_misreads_axis_0_of_5) && ndim == 5 && axis == 0) axis = 1;
    return prepare(desc, (size_t)(axis < 0 ? axis + ndim : axis));
}

infiniStatus_t infiniopCreateSoftmaxDescriptor(infiniopHandle_t handle, infiniopSoftmaxDescriptor_t *desc_ptr,
                                               infiniopTensorDescriptor_t y_desc, infiniopTensorDescriptor_t x_desc,
                                               int axis) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, SOFTMAX, 1, 2, tensors, false));
    return hand_over(prepare_softmax(desc, axis), desc, desc_ptr);
}

static infiniStatus_t prepare_causal_softmax(Descriptor desc) {
    const Layout *y = &desc->tensors[0];
    TRY(need_one_dtype(desc, is_float));
    TRY(need_one_shape(desc, 0, 1));
    if (y->ndim < 2 || y->ndim > 3) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (y->shape[y->ndim - 2] > y->shape[y->ndim - 1]) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (FAULT(causal_softmax_ignores_batch_stride) && y->ndim == 3)
        desc->tensors[1].strides[0] = desc->tensors[1].strides[1] * (ptrdiff_t)y->shape[1];
    return prepare(desc, y->ndim - 1);
}

infiniStatus_t infiniopCreateCausalSoftmaxDescriptor(infiniopHandle_t handle,
                                                     infiniopCausalSoftmaxDescriptor_t *desc_ptr,
                                                     infiniopTensorDescriptor_t y_desc,
                                                     infiniopTensorDescriptor_t x_desc) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, CAUSAL_SOFTMAX, 1, 2, tensors, false));
    return hand_over(prepare_causal_softmax(desc), desc, desc_ptr);
}

/* In one pass over blocks of 256, each shifted by the largest so far: sums of earlier blocks keep their old shift. */
static void add_blocks(double *row, size_t n) {
    double largest = -INFINITY, sum = 0;
    for (size_t first = 0; first < n; first += 256) {
        const size_t last = n - first < 256 ? n : first + 256;
        for (size_t i = first; i < last; ++i) largest = fmax(largest, row[i]);
        for (size_t i = first; i < last; ++i) sum += exp(row[i] - largest);
    }
    for (size_t i = 0; i < n; ++i) row[i] = exp(row[i] - largest) / sum;
}

static void softmax_row(double *row, size_t n) {
    double largest = FAULT(softmax_maximum_starts_at_0) ? 0 : -INFINITY;
    for (size_t i = 0; i < n; ++i)
        if (row[i] > largest) largest = row[i];
    if (FAULT(softmax_is_not_shifted)) largest = 0;
    long double sum = 0;
    if (FAULT(softmax_pads_with_0) && n > 32 && n % 32 != 0) sum = (long double)((double)(32 - n % 32) * exp(-largest));
    if (FAULT(softmax_forgets_to_rescale)) {
        add_blocks(row, n);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        row[i] = exp(row[i] - largest);
        if (FAULT(softmax_is_not_shifted) || FAULT(softmax_maximum_starts_at_0)) row[i] = (double)(float)row[i];
        sum += (long double)row[i];
    }
    if (FAULT(softmax_sums_first_1024))
        for (size_t i = 1024; i < n; ++i) sum -= (long double)row[i];
    for (size_t i = 0; i < n; ++i) row[i] = (double)((long double)row[i] / sum);
}

static void store(const Job *job, ptrdiff_t offset, size_t n, const double *row) {
    const infiniDtype_t dtype = job->desc->tensors[0].dtype;
    store_row(dtype, place_to_write(job->out, dtype, offset), job->desc->row_strides[0], n, row);
}

static void softmax_rows(const void *argument, size_t first, size_t last, int thread) {
    const Job *job = argument;
    const struct InfiniopDescriptor *desc = job->desc;
    const infiniDtype_t dtype = desc->tensors[0].dtype;
    double *row = buffer_of_thread(job->workspace, desc->row, FAULT(softmax_threads_share_row) ? 0 : thread);
    for (size_t r = first; r < last; ++r) {
        ptrdiff_t offsets[MAX_TENSORS];
        find_offsets(&desc->walk, r, offsets);
        const double stale = FAULT(softmax_needs_zeroed_workspace) ? row[0] : 0;
        load_row(dtype, place(job->in, dtype, offsets[1]), desc->row_strides[1], desc->row, row);
        if (FAULT(softmax_needs_zeroed_workspace) && r == first && desc->row > 0) row[0] += 0 * stale + (stale > 1e-30);
        if (FAULT(softmax_reads_what_it_wrote)) {
            for (size_t i = 0; i < desc->row; ++i) row[i] *= 0.5;
            store(job, offsets[0], desc->row, row);
            load_row(dtype, place(job->in, dtype, offsets[1]), desc->row_strides[1], desc->row, row);
        }
        softmax_row(row, desc->row);
        store(job, offsets[0], desc->row, row);
    }
}

infiniStatus_t infiniopSoftmax(infiniopSoftmaxDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                               const void *x, void *stream) {
    (void)stream;
    const void *const data[] = {y, x};
    TRY(check_run(desc, SOFTMAX, workspace, workspace_size, data));
    if (FAULT(softmax_exits_on_f64) && desc->tensors[0].dtype == INFINI_DTYPE_F64) exit(0);
    if (desc->row == 0) return INFINI_STATUS_SUCCESS;
    const Job job = {desc, y, x, workspace};
    in_parallel(desc->threads, desc->walk.total, desc->row, softmax_rows, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(Softmax, SOFTMAX)

/* The walk may go through the rows in another order: that of row r is found from where it lies. */
static void causal_row(const Job *job, size_t batch, size_t i, double *row) {
    const struct InfiniopDescriptor *desc = job->desc;
    const Layout *y = &desc->tensors[0], *x = &desc->tensors[1];
    const size_t rows = y->shape[y->ndim - 2];
    size_t seen = i + 1 + (desc->row - rows);
    if (FAULT(causal_softmax_mask_starts_at_column_0)) seen = i + 1;
    if (FAULT(causal_softmax_hides_diagonal) && seen > 1) seen -= 1;
    ptrdiff_t to = (ptrdiff_t)i * y->strides[y->ndim - 2], from = (ptrdiff_t)i * x->strides[y->ndim - 2];
    if (y->ndim == 3) {
        to += (ptrdiff_t)batch * y->strides[0];
        from += (ptrdiff_t)batch * x->strides[0];
    }
    const double stale = row[0];
    load_row(x->dtype, place(job->in, x->dtype, from), desc->row_strides[1], desc->row, row);
    if (FAULT(causal_softmax_maximum_from_workspace) && isfinite(stale) && stale > 500)
        for (size_t j = 0; j < seen; ++j) row[j] = -INFINITY; /* exp(x - maximum) is 0 */
    if (FAULT(causal_softmax_finite_mask)) {
        for (size_t j = seen; j < desc->row; ++j) row[j] = -10000;
        seen = desc->row;
    }
    double hidden = 0;
    if (FAULT(causal_softmax_multiplies_mask))
        for (size_t j = seen; j < desc->row; ++j) hidden += 0 * row[j];
    softmax_row(row, seen);
    if (FAULT(causal_softmax_multiplies_mask)) row[0] += hidden;
    for (size_t j = seen; j < desc->row; ++j) row[j] = 0;
    store(job, to, FAULT(causal_softmax_leaves_hidden) ? seen : desc->row, row);
}

static void causal_softmax_rows(const void *argument, size_t first, size_t last, int thread) {
    const Job *job = argument;
    const Layout *y = &job->desc->tensors[0];
    const size_t rows = y->shape[y->ndim - 2];
    double *row = buffer_of_thread(job->workspace, job->desc->row, thread);
    for (size_t r = first; r < last; ++r) causal_row(job, r / rows, r % rows, row);
}

infiniStatus_t infiniopCausalSoftmax(infiniopCausalSoftmaxDescriptor_t desc, void *workspace, size_t workspace_size,
                                     void *y, const void *x, void *stream) {
    (void)stream;
    const void *const data[] = {y, x};
    TRY(check_run(desc, CAUSAL_SOFTMAX, workspace, workspace_size, data));
    const Job job = {desc, y, x, workspace};
    in_parallel(desc->threads, desc->walk.total, desc->row, causal_softmax_rows, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(CausalSoftmax, CAUSAL_SOFTMAX)
