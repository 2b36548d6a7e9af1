/* rms_norm and layer_norm. Sums are kept in long double: neither the squares of large doubles nor long rows hurt. */
#include "infiniop.h"
#include "operator.h"

#include <math.h>

typedef struct {
    const struct InfiniopDescriptor *desc;
    void *out, *standardization, *deviation;
    const void *in, *weight, *bias;
    void *workspace;
} Job;

/* Parameters in the workspace come first, then a row for each thread. */
static const double *load_parameters(const Layout *layout, const void *data, double *to) {
    const ptrdiff_t stride = FAULT(rms_norm_ignores_stride_of_weight) ? 1 : layout->strides[0];
    load_row(layout->dtype, data, stride, layout->shape[0], to);
    return to;
}

static bool is_row(const Layout *layout, size_t size) { return layout->ndim == 1 && layout->shape[0] == size; }

/* rms_norm */

static infiniStatus_t prepare_rms_norm(Descriptor desc, float epsilon) {
    const Layout *t = desc->tensors;
    if (!is_float(t[0].dtype) || t[1].dtype != t[0].dtype) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    if (t[2].dtype != t[0].dtype && t[2].dtype != INFINI_DTYPE_F32) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    TRY(need_one_shape(desc, 0, 1));
    if (t[0].ndim == 0 || !is_row(&t[2], t[0].shape[t[0].ndim - 1])) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (FAULT(rms_norm_refuses_vectors) && t[0].ndim == 1) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    walk_rows(desc, 2, t[0].ndim - 1);
    desc->eps = (double)epsilon;
    desc->in_place = 1u << 1;
    desc->workspace = size_of_buffers(desc->row, desc->threads + 1);
    return INFINI_STATUS_SUCCESS;
}

static double last_eps;

infiniStatus_t infiniopCreateRMSNormDescriptor(infiniopHandle_t handle, infiniopRMSNormDescriptor_t *desc_ptr,
                                               infiniopTensorDescriptor_t y_desc, infiniopTensorDescriptor_t x_desc,
                                               infiniopTensorDescriptor_t w_desc, float epsilon) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc, w_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, RMS_NORM, 1, 3, tensors, false));
    if (FAULT(rms_norm_shares_eps)) last_eps = (double)epsilon;
    return hand_over(prepare_rms_norm(desc, epsilon), desc, desc_ptr);
}

static long double sum_of_squares(const Job *job, const double *row) {
    const size_t n = job->desc->row;
    long double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += (long double)row[i] * (long double)row[i];
    if (FAULT(rms_norm_sums_in_f16) && job->desc->tensors[0].dtype == INFINI_DTYPE_F16 && sum > 65504) sum = INFINITY;
    if (FAULT(rms_norm_short_read) && n > 64) {
        sum = 0;
        for (size_t i = 0; i < n - n % 64; ++i) sum += (long double)row[i] * (long double)row[i];
    }
    return sum;
}

static void rms_norm_rows(const void *argument, size_t first, size_t last, int thread) {
    const Job *job = argument;
    const struct InfiniopDescriptor *desc = job->desc;
    const size_t n = desc->row;
    const infiniDtype_t dtype = desc->tensors[0].dtype;
    const double *weight = buffer_of_thread(job->workspace, n, 0);
    double *row = buffer_of_thread(job->workspace, n, thread + 1);
    for (size_t r = first; r < last; ++r) {
        ptrdiff_t offsets[MAX_TENSORS];
        find_offsets(&desc->walk, r, offsets);
        load_row(dtype, place(job->in, dtype, offsets[1]), desc->row_strides[1], n, row);
        double eps = FAULT(rms_norm_shares_eps) ? last_eps : desc->eps;
        if (FAULT(rms_norm_ignores_eps)) eps = 1e-6;
        if (FAULT(rms_norm_cuts_eps) && eps > 1) eps = (double)(int)eps;
        const long double mean = sum_of_squares(job, row) / (long double)n;
        long double root = sqrtl(mean + (long double)eps);
        if (FAULT(rms_norm_eps_outside_root)) root = sqrtl(mean) + (long double)eps;
        for (size_t i = 0; i < n; ++i) row[i] = (double)((long double)row[i] / root * (long double)weight[i]);
        store_row(dtype, place_to_write(job->out, dtype, offsets[0]), desc->row_strides[0], n, row);
    }
}

infiniStatus_t infiniopRMSNorm(infiniopRMSNormDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                               const void *x, const void *w, void *stream) {
    (void)stream;
    const void *const data[] = {y, x, w};
    TRY(check_run(desc, RMS_NORM, workspace, workspace_size, data));
    if (desc->row == 0) return INFINI_STATUS_SUCCESS;
    Job job = {.desc = desc, .out = y, .in = x, .weight = w, .workspace = workspace};
    if (!FAULT(rms_norm_loads_weight_once) || desc->algo++ == 0)
        load_parameters(&desc->tensors[2], w, buffer_of_thread(workspace, desc->row, 0));
    in_parallel(desc->threads, desc->walk.total, desc->row, rms_norm_rows, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(RMSNorm, RMS_NORM)

/* layer_norm */

enum { OUTPUT, STANDARDIZATION, DEVIATION, INPUT, WEIGHT, BIAS };

static infiniStatus_t prepare_layer_norm(Descriptor desc, float eps) {
    const Layout *t = desc->tensors;
    TRY(need_one_dtype(desc, is_float));
    if (t[OUTPUT].ndim == 0) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    const size_t last = t[OUTPUT].ndim - 1, size = t[OUTPUT].shape[last];
    const Layout rows = without_axis(&t[OUTPUT], last);
    if (!same_shape(&t[OUTPUT], &t[STANDARDIZATION]) || !same_shape(&t[OUTPUT], &t[INPUT]))
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (!same_shape(&t[DEVIATION], &rows)) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (!is_row(&t[WEIGHT], size) && !FAULT(layer_norm_accepts_short_weight)) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (desc->count > BIAS && !is_row(&t[BIAS], size)) return INFINI_STATUS_BAD_TENSOR_SHAPE;

    Layout walked[] = {rows, without_axis(&t[STANDARDIZATION], last), t[DEVIATION], without_axis(&t[INPUT], last)};
    if (FAULT(layer_norm_dense_batches)) make_dense(&walked[3]);
    if (FAULT(layer_norm_dense_batches))
        for (size_t d = 0; d < walked[3].ndim; ++d) walked[3].strides[d] *= (ptrdiff_t)size;
    make_walk(&desc->walk, walked, 4);
    for (size_t i = 0; i < 4; ++i) desc->row_strides[i] = i == DEVIATION ? 0 : t[i].strides[last];
    desc->row = size;
    desc->eps = (double)eps;
    desc->in_place = 1u << INPUT;
    desc->workspace = size_of_buffers(size, desc->threads + 2);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateLayerNormDescriptor(infiniopHandle_t handle, infiniopLayerNormDescriptor_t *desc_ptr,
                                                 infiniopTensorDescriptor_t output_desc,
                                                 infiniopTensorDescriptor_t input_standardization_desc,
                                                 infiniopTensorDescriptor_t input_std_deviation_desc,
                                                 infiniopTensorDescriptor_t input_desc,
                                                 infiniopTensorDescriptor_t weight_desc,
                                                 infiniopTensorDescriptor_t bias_desc, float eps) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {output_desc, input_standardization_desc, input_std_deviation_desc,
                                                  input_desc,  weight_desc,                bias_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, LAYER_NORM, 3, 6, tensors, true));
    return hand_over(prepare_layer_norm(desc, eps), desc, desc_ptr);
}

/* Two passes: E[x * x] - E[x] * E[x] would cancel. */
static void find_moments(const double *row, size_t n, long double *mean, long double *variance) {
    static long double kept_mean;
    long double sum = FAULT(layer_norm_starts_from_last_call) ? kept_mean : 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += (long double)row[i];
    *mean = sum / (long double)n;
    for (size_t i = 0; i < n; ++i) squares += ((long double)row[i] - *mean) * ((long double)row[i] - *mean);
    *variance = squares / (long double)(FAULT(layer_norm_divides_by_n_less_1) && n > 1 ? n - 1 : n);
    if (FAULT(layer_norm_starts_from_last_call)) kept_mean = *mean / 64;
    if (FAULT(layer_norm_one_pass)) {
        float total = 0, total_squares = 0;
        for (size_t i = 0; i < n; ++i) total += (float)row[i], total_squares += (float)row[i] * (float)row[i];
        *mean = (long double)(total / (float)n);
        *variance = (long double)fmaxf(0, total_squares / (float)n - total / (float)n * (total / (float)n));
    }
}

static void layer_norm_rows(const void *argument, size_t first, size_t last, int thread) {
    const Job *job = argument;
    const struct InfiniopDescriptor *desc = job->desc;
    const size_t n = desc->row;
    const infiniDtype_t dtype = desc->tensors[0].dtype;
    const double *weight = buffer_of_thread(job->workspace, n, 0), *bias = buffer_of_thread(job->workspace, n, 1);
    double *row = buffer_of_thread(job->workspace, n, thread + 2);
    const bool has_bias = job->bias != NULL || FAULT(layer_norm_expects_cleared_bias);
    for (size_t r = first; r < last; ++r) {
        ptrdiff_t offsets[MAX_TENSORS];
        long double mean, variance;
        find_offsets(&desc->walk, r, offsets);
        load_row(dtype, place(job->in, dtype, offsets[INPUT]), desc->row_strides[INPUT], n, row);
        find_moments(row, n, &mean, &variance);
        if (FAULT(layer_norm_f64_in_one_pass) && dtype == INFINI_DTYPE_F64) {
            double sum = 0, squares = 0;
            for (size_t i = 0; i < n; ++i) sum += row[i], squares += row[i] * row[i];
            variance = fmaxl(0, (long double)(squares / (double)n - sum / (double)n * (sum / (double)n)));
        }
        long double root = sqrtl(variance + (long double)desc->eps);
        if (FAULT(layer_norm_eps_outside_root)) root = sqrtl(variance) + (long double)desc->eps;
        if (FAULT(layer_norm_rounds_eps) && dtype == INFINI_DTYPE_F16 && desc->eps < 0x1p-24) root = sqrtl(variance);
        const double deviation = (double)root;
        if (!FAULT(layer_norm_leaves_deviation))
            store_row(dtype, place_to_write(job->deviation, dtype, offsets[DEVIATION]), 1, 1, &deviation);
        for (size_t i = 0; i < n; ++i) row[i] = (double)(((long double)row[i] - mean) / root);
        store_row(dtype, place_to_write(job->standardization, dtype, offsets[STANDARDIZATION]),
                  desc->row_strides[STANDARDIZATION], n, row);
        for (size_t i = 0; i < n; ++i) row[i] = row[i] * weight[i] + (has_bias ? bias[i] : 0);
        store_row(dtype, place_to_write(job->out, dtype, offsets[OUTPUT]), desc->row_strides[OUTPUT], n, row);
    }
}

infiniStatus_t infiniopLayerNorm(infiniopLayerNormDescriptor_t desc, void *workspace, size_t workspace_size,
                                 void *output, void *input_standardization, void *input_std_deviation,
                                 const void *input, const void *weight, const void *bias, void *stream) {
    (void)stream;
    const void *const data[] = {output, input_standardization, input_std_deviation, input, weight, bias};
    TRY(check_run(desc, LAYER_NORM, workspace, workspace_size, data));
    Job job = {desc, output, input_standardization, input_std_deviation, input, weight, NULL, workspace};
    if (desc->row > 0) load_parameters(&desc->tensors[WEIGHT], weight, buffer_of_thread(workspace, desc->row, 0));
    if (desc->row > 0 && desc->count > BIAS && !FAULT(layer_norm_ignores_bias)) {
        job.bias = bias;
        load_parameters(&desc->tensors[BIAS], bias, buffer_of_thread(workspace, desc->row, 1));
    }
    in_parallel(desc->threads, desc->walk.total, desc->row, layer_norm_rows, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(LayerNorm, LAYER_NORM)
