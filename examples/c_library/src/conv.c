/* conv: x and w are unpacked to dense doubles, then each element of y is a sum of its own. */
#include "infiniop.h"
#include "operator.h"

typedef struct {
    const struct InfiniopDescriptor *desc;
    void *out;
    const void *bias;
    double *x, *w; /* dense */
} Job;

typedef struct {
    const Layout *layout;
    const void *from;
    double *to;
} Unpacking;

enum { OUT, IN, WEIGHT, BIAS };

/* With `spatial` dimensions behind the channels, those before the last are filled up with 1. */
static void read_sizes(const Layout *layout, size_t spatial, size_t *sizes) {
    for (size_t d = 0; d < MAX_SPATIAL; ++d) {
        const size_t missing = MAX_SPATIAL - spatial;
        sizes[d] = d < missing ? 1 : layout->shape[2 + d - missing];
    }
}

static infiniStatus_t read_window(Window *window, const void *pads, const void *strides, const void *dilations,
                                  size_t spatial) {
    for (size_t d = 0; d < MAX_SPATIAL; ++d) {
        window->pads[d] = 0;
        window->strides[d] = window->dilations[d] = 1;
    }
    for (size_t i = 0; i < spatial; ++i) {
        const size_t d = MAX_SPATIAL - spatial + i;
        const ptrdiff_t stride = ((const ptrdiff_t *)strides)[i];
        window->pads[d] = ((const size_t *)pads)[i];
        window->dilations[d] = ((const size_t *)dilations)[i];
        if (stride < 1 || window->dilations[d] < 1) return INFINI_STATUS_BAD_PARAM;
        if (window->pads[d] > PTRDIFF_MAX / 4 || window->dilations[d] > PTRDIFF_MAX / 4) return INFINI_STATUS_BAD_PARAM;
        window->strides[d] = (size_t)stride;
    }
    return INFINI_STATUS_SUCCESS;
}

/* The sizes of y follow from the others. */
static infiniStatus_t check_sizes(const Window *window) {
    for (size_t d = 0; d < MAX_SPATIAL; ++d) {
        const size_t taps = window->kernel[d], reach = taps - 1;
        if (taps == 0 || (reach > 0 && window->dilations[d] > PTRDIFF_MAX / 4 / reach))
            return INFINI_STATUS_BAD_TENSOR_SHAPE;
        const size_t padded = window->in[d] + 2 * window->pads[d], covered = window->dilations[d] * reach + 1;
        if (padded < covered) return INFINI_STATUS_BAD_TENSOR_SHAPE;
        if (window->out[d] != (padded - covered) / window->strides[d] + 1) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    }
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t check_tensors(const struct InfiniopDescriptor *desc, size_t spatial) {
    const Layout *t = desc->tensors;
    TRY(need_one_dtype(desc, is_float));
    for (size_t i = OUT; i <= WEIGHT; ++i)
        if (t[i].ndim != spatial + 2) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (t[OUT].shape[0] != t[IN].shape[0] || t[OUT].shape[1] != t[WEIGHT].shape[0])
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (t[IN].shape[1] != t[WEIGHT].shape[1] && !FAULT(conv_accepts_other_channels))
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (desc->count > BIAS && (t[BIAS].ndim != 1 || t[BIAS].shape[0] != t[OUT].shape[1]))
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t prepare(Descriptor desc, const void *pads, const void *strides, const void *dilations, size_t n) {
    if (pads == NULL || strides == NULL || dilations == NULL) return INFINI_STATUS_NULL_POINTER;
    if (n < 1 || n > MAX_SPATIAL) return INFINI_STATUS_BAD_PARAM;
    Window *window = &desc->window;
    TRY(read_window(window, pads, strides, dilations, n));
    TRY(check_tensors(desc, n));
    read_sizes(&desc->tensors[OUT], n, window->out);
    read_sizes(&desc->tensors[IN], n, window->in);
    read_sizes(&desc->tensors[WEIGHT], n, window->kernel);
    TRY(check_sizes(window));
    if (FAULT(conv_no_dilation_with_stride) && window->strides[2] > 1) window->dilations[2] = 1;
    if (FAULT(conv_single_taps_have_no_stride) && window->kernel[0] * window->kernel[1] * window->kernel[2] == 1)
        window->strides[0] = window->strides[1] = window->strides[2] = 1;
    if (FAULT(conv_ignores_dilation)) window->dilations[1] = window->dilations[2] = 1;
    if (FAULT(conv_swaps_strides) && n == 2) {
        const size_t first = window->strides[1];
        window->strides[1] = window->strides[2];
        window->strides[2] = first;
    }
    const size_t elements = count_elements(&desc->tensors[IN]) + count_elements(&desc->tensors[WEIGHT]);
    desc->workspace = elements * sizeof(double) + ALIGNMENT;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateConvDescriptor(infiniopHandle_t handle, infiniopConvDescriptor_t *desc_ptr,
                                            infiniopTensorDescriptor_t y_desc, infiniopTensorDescriptor_t x_desc,
                                            infiniopTensorDescriptor_t w_desc, infiniopTensorDescriptor_t b_desc,
                                            void *pads, void *strides, void *dilations, size_t n) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc, w_desc, b_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, CONV, 1, 4, tensors, true));
    return hand_over(prepare(desc, pads, strides, dilations, n), desc, desc_ptr);
}

static void unpack_rows(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Unpacking *job = argument;
    const Layout *layout = job->layout;
    const size_t n = layout->shape[layout->ndim - 1];
    const ptrdiff_t stride = FAULT(conv_ignores_innermost_stride) ? 1 : layout->strides[layout->ndim - 1];
    for (size_t r = first; r < last; ++r) {
        size_t rest = r;
        ptrdiff_t offset = 0;
        for (size_t d = layout->ndim - 1; d-- > 0; rest /= layout->shape[d])
            offset += (ptrdiff_t)(rest % layout->shape[d]) * layout->strides[d];
        load_row(layout->dtype, place(job->from, layout->dtype, offset), stride, n, job->to + r * n);
    }
}

static void unpack(const Layout *layout, const void *from, double *to, int threads) {
    const Unpacking job = {.layout = layout, .from = from, .to = to};
    const size_t total = count_elements(layout);
    if (total == 0) return;
    const size_t n = layout->shape[layout->ndim - 1];
    in_parallel(threads, total / n, n, unpack_rows, &job);
}

/* The taps first, ..., last - 1 along d whose input lies inside; where the window starts in the input. */
static ptrdiff_t clip_taps(const Window *window, size_t d, size_t at, size_t *first, size_t *last) {
    const ptrdiff_t start = (ptrdiff_t)(at * window->strides[d]) - (ptrdiff_t)window->pads[d];
    const ptrdiff_t step = (ptrdiff_t)window->dilations[d], size = (ptrdiff_t)window->in[d];
    *first = 0;
    *last = window->kernel[d];
    while (*first < *last && start + (ptrdiff_t)*first * step < 0) ++*first;
    if (FAULT(conv_loses_a_tap_at_the_left) && step > 1 && *first > 0 && *first < *last) ++*first;
    if (FAULT(conv_wraps_at_the_right_edge) && d == MAX_SPATIAL - 1) return start;
    while (*last > *first && start + (ptrdiff_t)(*last - 1) * step >= size) --*last;
    return start;
}

static double sum_of_products(const Job *job, size_t batch, size_t out_channel, const size_t *at) {
    const Window *window = &job->desc->window;
    const size_t channels = job->desc->tensors[IN].shape[1], *in = window->in, *kernel = window->kernel;
    size_t first[MAX_SPATIAL], last[MAX_SPATIAL];
    ptrdiff_t start[MAX_SPATIAL];
    for (size_t d = 0; d < MAX_SPATIAL; ++d) start[d] = clip_taps(window, d, at[d], &first[d], &last[d]);
    double sum = 0;
    for (size_t c = 0; c < channels; ++c) {
        const double *x = job->x + (batch * channels + c) * in[0] * in[1] * in[2];
        const double *w = job->w + (out_channel * channels + c) * kernel[0] * kernel[1] * kernel[2];
        for (size_t i = first[0]; i < last[0]; ++i)
            for (size_t j = first[1]; j < last[1]; ++j) {
                const ptrdiff_t plane = start[0] + (ptrdiff_t)(i * window->dilations[0]);
                const ptrdiff_t line = start[1] + (ptrdiff_t)(j * window->dilations[1]);
                const double *row = x + (plane * (ptrdiff_t)in[1] + line) * (ptrdiff_t)in[2];
                const double *taps = w + (i * kernel[1] + j) * kernel[2];
                for (size_t k = first[2]; k < last[2]; ++k) {
                    const size_t tap = FAULT(conv_flips_kernel) ? kernel[2] - 1 - k : k;
                    sum += row[start[2] + (ptrdiff_t)(k * window->dilations[2])] * taps[tap];
                }
            }
        if (FAULT(conv_rounds_between_channels)) {
            uint64_t narrow = 0;
            store_row(job->desc->tensors[OUT].dtype, &narrow, 1, 1, &sum);
            load_row(job->desc->tensors[OUT].dtype, &narrow, 1, 1, &sum);
        }
    }
    return sum;
}

/* A unit is a row of y: (batch, channel, plane, line). */
static void convolve_rows(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Job *job = argument;
    const Layout *y = &job->desc->tensors[OUT];
    const Window *window = &job->desc->window;
    const size_t channels = y->shape[1], spatial = y->ndim - 2;
    for (size_t unit = first; unit < last; ++unit) {
        size_t at[MAX_SPATIAL] = {unit / window->out[1] % window->out[0], unit % window->out[1], 0};
        const size_t channel = unit / window->out[1] / window->out[0] % channels;
        const size_t batch = unit / window->out[1] / window->out[0] / channels;
        ptrdiff_t offset = (ptrdiff_t)batch * y->strides[0] + (ptrdiff_t)channel * y->strides[1];
        for (size_t d = MAX_SPATIAL - spatial; d + 1 < MAX_SPATIAL; ++d)
            offset += (ptrdiff_t)at[d] * y->strides[2 + d - (MAX_SPATIAL - spatial)];
        double bias = 0;
        if (job->bias != NULL) {
            const Layout *layout = &job->desc->tensors[BIAS];
            const ptrdiff_t at_channel = (ptrdiff_t)channel * layout->strides[0];
            load_row(layout->dtype, place(job->bias, layout->dtype, at_channel), 1, 1, &bias);
        }
        for (; at[2] < window->out[2]; ++at[2]) {
            void *to = place_to_write(job->out, y->dtype, offset + (ptrdiff_t)at[2] * y->strides[y->ndim - 1]);
            double result = sum_of_products(job, batch, channel, at) + bias, before = 0;
            if (FAULT(conv_adds_to_output)) load_row(y->dtype, to, 1, 1, &before);
            result += before;
            size_t first_tap, last_tap;
            clip_taps(window, 2, at[2], &first_tap, &last_tap);
            if (FAULT(conv_leaves_windows_in_padding) && first_tap == last_tap) continue;
            if (FAULT(conv_leaves_last_column) && window->pads[2] > 0 && at[2] + 1 == window->out[2]) continue;
            store_row(y->dtype, to, 1, 1, &result);
        }
    }
}

infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                            const void *x, const void *w, const void *bias, void *stream) {
    (void)stream;
    const void *const data[] = {y, x, w, bias};
    TRY(check_run(desc, CONV, workspace, workspace_size, data));
    const Layout *t = desc->tensors;
    const size_t total = count_elements(&t[OUT]);
    if (total == 0) return INFINI_STATUS_SUCCESS;
    Job job = {.desc = desc, .out = y, .x = aligned(workspace)};
    job.w = job.x + count_elements(&t[IN]);
    if (desc->count > BIAS && !FAULT(conv_ignores_bias)) job.bias = bias;
    unpack(&t[IN], x, job.x, desc->threads);
    static const void *unpacked;
    if (!FAULT(conv_unpacks_weight_once) || unpacked != w) unpack(&t[WEIGHT], w, job.w, desc->threads);
    if (FAULT(conv_unpacks_weight_once)) unpacked = w;
    const size_t taps = t[IN].shape[1] * desc->window.kernel[0] * desc->window.kernel[1] * desc->window.kernel[2];
    const size_t row = desc->window.out[2];
    in_parallel(desc->threads, total / row, row * (taps + 1), convolve_rows, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(Conv, CONV)
