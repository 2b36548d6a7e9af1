#include "elementwise.h"

#include <alloca.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256, MAX_INPUTS = 3 };

typedef struct {
    const struct InfiniopDescriptor *desc;
    void *out;
    const void *in[MAX_INPUTS];
    FloatKernel *floats;
    IntegerKernel *integers;
} Job;

static void misread_further_layouts(Descriptor desc) {
    Layout *t = desc->tensors;
    const size_t ndim = t[0].ndim, last = ndim == 0 ? 0 : ndim - 1;
    for (size_t i = 1; i < desc->count && ndim > 1; ++i) {
        Layout dense = t[i];
        make_dense(&dense);
        if (FAULT(add_looks_at_outermost_stride) && desc->operator == ADD && t[i].strides[0] == dense.strides[0])
            t[i] = dense;
        if (FAULT(mul_ranks_above_4_are_dense) && desc->operator == MUL && ndim > 4) t[i] = dense;
        if (FAULT(silu_overlapping_rows_are_dense) && desc->operator == SILU && t[i].strides[last] == 1 &&
            t[i].strides[last - 1] > 0 && t[i].strides[last - 1] < dense.strides[last - 1])
            t[i].strides[last - 1] = dense.strides[last - 1];
    }
    for (size_t i = 1; i < desc->count && ndim > 0; ++i) {
        if (FAULT(clip_backwards_steps_are_1) && desc->operator == CLIP && t[i].strides[last] < 0) t[i].strides[last] = -1;
        if (FAULT(relu_channels_last_is_dense) && desc->operator == RELU && ndim == 4 && t[i].strides[1] == 1) {
            t[i].strides[3] = (ptrdiff_t)t[i].shape[1];
            t[i].strides[2] = t[i].strides[3] * (ptrdiff_t)t[i].shape[3];
            t[i].strides[0] = t[i].strides[2] * (ptrdiff_t)t[i].shape[2];
        }
    }
    if (FAULT(sub_writes_backwards_output_forwards) && desc->operator == SUB && ndim > 0 && t[0].strides[last] < 0) {
        desc->algo = (int)((ptrdiff_t)(t[0].shape[last] - 1) * t[0].strides[last]);
        t[0].strides[last] = -t[0].strides[last];
    }
}

/* How many elements a faulty library thinks there are. */
static size_t miscount(const struct InfiniopDescriptor *desc, size_t total) {
    const Layout *x = &desc->tensors[1];
    static _Atomic unsigned calls;
    if (total == 0) return 0;
    if (FAULT(mul_loses_last_of_full_pages) && desc->operator == MUL && total * size_of_dtype(x->dtype) % 4096 == 0)
        return total - 1;
    if (FAULT(sub_counts_20_bits) && desc->operator == SUB && total > 1 << 20) return 1 << 20;
    if (FAULT(silu_skips_every_256th_call) && desc->operator == SILU && ++calls % 256 == 0) return 0;
    if (FAULT(gelu_first_call_is_short) && desc->operator == GELU && calls++ == 0) return total - 1;
    if (FAULT(add_tail_of_15) && desc->operator == ADD && x->dtype == INFINI_DTYPE_F32 && total % 16 == 15)
        return total - 1;
    if (FAULT(tanh_counts_by_outermost_stride) && desc->operator == TANH && x->ndim > 1 && x->shape[0] == 1 &&
        x->strides[0] > 0 && (size_t)x->strides[0] < total)
        return (size_t)x->strides[0];
    return total;
}

static void miscompute(const struct InfiniopDescriptor *desc, size_t n, const double *const *in, double *out) {
    if (desc->tensors[0].dtype != INFINI_DTYPE_F32) return;
    for (size_t i = 0; i < n; ++i) {
        if (FAULT(add_denormals_are_0) && desc->operator == ADD)
            out[i] = (fabs(in[0][i]) < 0x1p-126 ? 0 : in[0][i]) + (fabs(in[1][i]) < 0x1p-126 ? 0 : in[1][i]);
        if (FAULT(swiglu_product_overflows) && desc->operator == SWIGLU)
            out[i] = (double)(float)(in[0][i] * in[1][i]) / (1 + exp(-in[1][i]));
    }
}

static void misbehave_further(const struct InfiniopDescriptor *desc, const void *out) {
    const Operator operator = desc->operator;
    if (FAULT(clip_changes_folder) && operator == CLIP && chdir("/") != 0) abort();
    if (FAULT(gelu_blocks_signals) && operator == GELU) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    if (FAULT(sigmoid_copies_to_the_stack) && operator == SIGMOID) {
        volatile char *copy = alloca(desc->walk.total * sizeof(double) + 1);
        for (size_t i = 0; i <= desc->walk.total * sizeof(double); i += 1024) copy[i] = 1;
    }
    if (FAULT(sub_prints_into_buffer) && operator == SUB) printf("sub ");
    if (FAULT(sigmoid_opens_files) && operator == SIGMOID && open("/dev/null", O_RDONLY) < 0) abort();
    if (FAULT(relu_needs_alignment) && operator == RELU && (uintptr_t)out % 16 != 0) abort();
    if (FAULT(clip_divides_by_size) && operator == CLIP) {
        volatile size_t total = desc->walk.total;
        total = 4096 / total;
    }
}

/* Layouts as a faulty library sees them. */
static void misread_layouts(Descriptor desc) {
    Layout *t = desc->tensors;
    const size_t last = t[0].ndim == 0 ? 0 : t[0].ndim - 1;
    if (FAULT(add_ignores_strides_of_b) && desc->operator == ADD) make_dense(&t[2]);
    if (FAULT(mul_ignores_strides_of_output) && desc->operator == MUL) make_dense(&t[0]);
    if (FAULT(clip_ignores_strides_of_max) && desc->operator == CLIP) make_dense(&t[3]);
    if (FAULT(swiglu_takes_layout_of_a_for_b) && desc->operator == SWIGLU) t[2] = t[1];
    if (FAULT(sub_drops_sign_of_strides) && desc->operator == SUB)
        for (size_t d = 0; d < t[1].ndim; ++d)
            if (t[1].strides[d] < 0) t[1].strides[d] = -t[1].strides[d];
    if (FAULT(relu_dense_if_last_stride_is_1) && desc->operator == RELU && t[1].ndim > 0 && t[1].strides[last] == 1)
        make_dense(&t[1]);
    if (FAULT(gelu_stride_of_size_1) && desc->operator == GELU)
        for (size_t d = 0; d + 1 < t[1].ndim; ++d)
            if (t[1].shape[d + 1] == 1) t[1].strides[d] = t[1].strides[d + 1];
    if (FAULT(silu_stride_0_is_1) && desc->operator == SILU)
        for (size_t d = 0; d < t[1].ndim; ++d)
            if (t[1].strides[d] == 0) t[1].strides[d] = 1;
    misread_further_layouts(desc);
}

#ifdef FAULTS
static Walk newest_walk;
#endif

infiniStatus_t create_elementwise(infiniopHandle_t handle, void *desc_ptr, Operator operator, size_t count,
                                  const infiniopTensorDescriptor_t *tensors, bool (*accepts)(infiniDtype_t)) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, operator, 1, count, tensors, false));
    infiniStatus_t status = need_one_dtype(desc, accepts);
    if (FAULT(mul_accepts_any_dtype) && operator == MUL) status = INFINI_STATUS_SUCCESS;
    if (FAULT(gelu_refuses_with_success) && operator == GELU && status != INFINI_STATUS_SUCCESS) {
        free(desc);
        return INFINI_STATUS_SUCCESS;
    }
    if (status == INFINI_STATUS_SUCCESS) status = need_one_shape(desc, 0, count - 1);
    if (FAULT(add_accepts_any_shape) && operator == ADD && status == INFINI_STATUS_BAD_TENSOR_SHAPE)
        status = INFINI_STATUS_SUCCESS;
    desc->in_place = ~0u;
    if (status == INFINI_STATUS_SUCCESS) {
        misread_layouts(desc);
        make_walk(&desc->walk, desc->tensors, count);
#ifdef FAULTS
        if (operator == MUL) newest_walk = desc->walk;
#endif
    }
    return hand_over(status, desc, desc_ptr);
}

static void change_chunk(const Job *job, size_t n, const ptrdiff_t *offsets) {
    const struct InfiniopDescriptor *desc = job->desc;
    const infiniDtype_t dtype = desc->tensors[0].dtype;
    const ptrdiff_t *strides = desc->walk.inner_strides;
    const size_t inputs = desc->count - 1;
    void *to = place_to_write(job->out, dtype, offsets[0]);
    if (is_float(dtype)) {
        double buffers[MAX_INPUTS + 1][CHUNK];
        static double shared[CHUNK];
        double *out = FAULT(tanh_threads_share_buffer) && desc->operator == TANH ? shared : buffers[MAX_INPUTS];
        const double *in[MAX_INPUTS] = {buffers[0], buffers[1], buffers[2]};
        for (size_t i = 0; i < inputs; ++i)
            load_row(dtype, place(job->in[i], dtype, offsets[i + 1]), strides[i + 1], n, buffers[i]);
        if (FAULT(relu_reads_bf16_as_f16) && desc->operator == RELU && dtype == INFINI_DTYPE_BF16)
            load_row(INFINI_DTYPE_F16, place(job->in[0], dtype, offsets[1]), strides[1], n, buffers[0]);
        if (FAULT(swiglu_writes_before_it_reads_b) && desc->operator == SWIGLU) {
            store_row(dtype, to, strides[0], n, in[0]);
            load_row(dtype, place(job->in[1], dtype, offsets[2]), strides[2], n, buffers[1]);
        }
        job->floats(n, in, out);
        miscompute(desc, n, in, out);
        if (FAULT(sub_f64_through_f32) && desc->operator == SUB)
            for (size_t i = 0; i < n; ++i) out[i] = (double)(float)out[i];
        if (FAULT(gelu_f16_through_bf16) && desc->operator == GELU && dtype == INFINI_DTYPE_F16) {
            uint16_t narrow[CHUNK];
            store_row(INFINI_DTYPE_BF16, narrow, 1, n, out);
            load_row(INFINI_DTYPE_BF16, narrow, 1, n, out);
        }
        store_row(dtype, to, strides[0], n, out);
    } else {
        uint64_t buffers[MAX_INPUTS + 1][CHUNK];
        const uint64_t *in[MAX_INPUTS] = {buffers[0], buffers[1], buffers[2]};
        for (size_t i = 0; i < inputs; ++i)
            load_integers(dtype, place(job->in[i], dtype, offsets[i + 1]), strides[i + 1], n, buffers[i]);
        job->integers(n, dtype, in, buffers[MAX_INPUTS]);
        store_integers(dtype, to, strides[0], n, buffers[MAX_INPUTS]);
    }
}

static void change_elements(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Job *job = argument;
    const size_t inner = job->desc->walk.inner;
    while (first < last) {
        ptrdiff_t offsets[MAX_TENSORS];
        find_offsets(&job->desc->walk, first, offsets);
        size_t n = inner - first % inner;
        if (n > CHUNK) n = CHUNK;
        if (n > last - first) n = last - first;
        change_chunk(job, n, offsets);
        first += n;
    }
}

/* Memory that is none of this call's business. */
static void touch_neighbours(const Job *job) {
    const struct InfiniopDescriptor *desc = job->desc;
    const infiniDtype_t dtype = desc->tensors[0].dtype;
    const size_t total = desc->walk.total, size = size_of_dtype(dtype);
    const double zero = 0;
    if (!is_float(dtype)) return;
    if (FAULT(add_writes_where_empty) && desc->operator == ADD && total == 0 && job->out != NULL)
        store_row(dtype, job->out, 1, 1, &zero);
    if (total == 0) return;
    ptrdiff_t lowest, highest, lowest_read, highest_read;
    find_span(&desc->tensors[0], &lowest, &highest);
    find_span(&desc->tensors[1], &lowest_read, &highest_read);
    if (FAULT(relu_writes_one_too_many) && desc->operator == RELU)
        store_row(dtype, place_to_write(job->out, dtype, highest + 1), 1, 1, &zero);
    if (FAULT(mul_writes_before_the_first) && desc->operator == MUL)
        store_row(dtype, place_to_write(job->out, dtype, lowest - 1), 1, 1, &zero);
    if (FAULT(clip_clears_up_to_16_bytes) && desc->operator == CLIP)
        for (size_t i = 1; (total + i - 1) * size % 16 != 0; ++i)
            store_row(dtype, place_to_write(job->out, dtype, highest + (ptrdiff_t)i), 1, 1, &zero);
    if (FAULT(sigmoid_last_needs_its_neighbour) && desc->operator == SIGMOID) {
        double pair[2];
        load_row(dtype, place(job->in[0], dtype, highest_read), 1, 2, pair);
        pair[0] = 1 / (1 + __builtin_exp(-pair[0])) + 0 * pair[1];
        store_row(dtype, place_to_write(job->out, dtype, highest), 1, 1, pair);
    }
    if (FAULT(silu_looks_past_the_end) && desc->operator == SILU) {
        const volatile char *end = place(job->in[0], dtype, highest_read + 1);
        (void)*end;
    }
}

static void misbehave_before(Job *job) {
    const Operator operator = job->desc->operator;
    if (FAULT(silu_prints) && operator == SILU) {
        puts("silu: done");
        fflush(stdout);
    }
    if (FAULT(clip_leaks) && operator == CLIP) {
        volatile char *lost = malloc(1 << 20);
        for (size_t i = 0; lost != NULL && i < 1 << 20; i += 4096) lost[i] = 1;
    }
    if (FAULT(sub_aligns_pointers) && operator == SUB)
        job->in[0] = (const void *)((uintptr_t)job->in[0] & ~(uintptr_t)15);
}

#ifdef FAULTS
/* Whether it could: one buffer for everybody who calls. */
static bool add_in_scratch(const Job *job) {
    static float scratch[1 << 16];
    const struct InfiniopDescriptor *desc = job->desc;
    const size_t total = desc->walk.total;
    if (desc->tensors[0].dtype != INFINI_DTYPE_F32 || total > sizeof scratch / sizeof *scratch) return false;
    ptrdiff_t at[MAX_TENSORS];
    for (size_t i = 0; i < total; ++i) {
        float a, b;
        find_offsets(&desc->walk, i, at);
        memcpy(&a, (const float *)job->in[0] + at[1], sizeof a);
        memcpy(&b, (const float *)job->in[1] + at[2], sizeof b);
        scratch[i] = a + b;
    }
    for (size_t i = 0; i < total; ++i) {
        find_offsets(&desc->walk, i, at);
        memcpy((float *)job->out + at[0], &scratch[i], sizeof *scratch);
    }
    return true;
}
#endif

static bool writes_nothing(const struct InfiniopDescriptor *desc) {
    if (FAULT(mul_skips_0d) && desc->operator == MUL && desc->tensors[0].ndim == 0) return true;
    const Layout *out = &desc->tensors[0];
    return FAULT(sub_skips_single_rows) && desc->operator == SUB && out->ndim > 1 && out->shape[0] == 1;
}

infiniStatus_t run_elementwise(const struct InfiniopDescriptor *desc, Operator operator, const void *workspace,
                               size_t workspace_size, void *out, const void *const *data, FloatKernel *floats,
                               IntegerKernel *integers) {
    TRY(check_run(desc, operator, workspace, workspace_size, data));
    Job job = {desc, out, {NULL}, floats, integers};
    if (FAULT(sub_writes_backwards_output_forwards) && operator == SUB)
        job.out = place_to_write(out, desc->tensors[0].dtype, desc->algo);
    if (FAULT(silu_third_call_does_nothing) && operator == SILU && ++((Descriptor)(uintptr_t)desc)->algo == 3)
        return INFINI_STATUS_SUCCESS;
    misbehave_further(desc, out);
    for (size_t i = 1; i < desc->count; ++i) job.in[i - 1] = data[i];
    size_t total = desc->walk.total;
    if (FAULT(add_loses_tail) && operator == ADD && total > 8) total -= total % 8;
    total = miscount(desc, total);
    misbehave_before(&job);
    if (writes_nothing(desc)) return INFINI_STATUS_SUCCESS;
#ifdef FAULTS
    struct InfiniopDescriptor again = *desc;
    if (FAULT(mul_newest_descriptor_wins) && operator == MUL && newest_walk.total == desc->walk.total) {
        again.walk = newest_walk;
        job.desc = &again;
    }
    if (FAULT(add_keeps_tensor_descriptor) && operator == ADD) {
        again.tensors[2] = desc->kept->layout;
        make_walk(&again.walk, again.tensors, again.count);
        job.desc = &again;
    }
#endif
#ifdef FAULTS
    if (FAULT(mul_one_address_one_layout) && operator == MUL && data[1] == data[2]) {
        again.tensors[2] = again.tensors[1];
        make_walk(&again.walk, again.tensors, again.count);
        job.desc = &again;
    }
    if (FAULT(add_callers_share_scratch) && operator == ADD && add_in_scratch(&job)) return INFINI_STATUS_SUCCESS;
#endif
    in_parallel(desc->threads, total, 1, change_elements, &job);
    touch_neighbours(&job);
    if (FAULT(swiglu_changes_input) && operator == SWIGLU && total > 0 && data[1] != out)
        store_row(desc->tensors[1].dtype, (void *)(uintptr_t)data[1], 1, 1, (const double[]){1});
    return INFINI_STATUS_SUCCESS;
}
