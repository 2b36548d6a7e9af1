/* rope: pairs of a vector are turned by the angle of its position. */
#include "infiniop.h"
#include "operator.h"

#include <string.h>

typedef struct {
    const struct InfiniopDescriptor *desc;
    void *out;
    const void *in, *positions, *sines, *cosines;
} Job;

enum { OUT, IN, POSITIONS, SINES, COSINES, CHUNK = 128 };

static infiniStatus_t check_dtypes(const Layout *t) {
    if (!is_float(t[OUT].dtype) || !is_integer(t[POSITIONS].dtype)) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    for (size_t i = IN; i <= COSINES; ++i)
        if (i != POSITIONS && t[i].dtype != t[OUT].dtype) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t check_shapes(const Layout *t) {
    const size_t ndim = t[OUT].ndim, batch = ndim == 4, length = t[OUT].shape[batch], size = t[OUT].shape[ndim - 1];
    if (ndim < 3 || ndim > 4 || size % 2 != 0) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (t[POSITIONS].ndim == 1) {
        if (t[POSITIONS].shape[0] != length) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    } else if (!(batch && t[POSITIONS].ndim == 2 && t[POSITIONS].shape[0] == t[OUT].shape[0] &&
                 t[POSITIONS].shape[1] == length)) {
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    }
    if (t[SINES].ndim != 2 || t[SINES].shape[1] != size / 2) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t prepare(Descriptor desc, infiniopRoPEAlgo_t algo) {
    const Layout *t = desc->tensors;
    if (algo != INFINIOP_ROPE_ALGO_GPT_J && algo != INFINIOP_ROPE_ALGO_GPT_NEOX) return INFINI_STATUS_BAD_PARAM;
    TRY(check_dtypes(t));
    TRY(need_one_shape(desc, OUT, IN));
    TRY(need_one_shape(desc, SINES, COSINES));
    TRY(check_shapes(t));
    desc->algo = (int)algo;
    if (FAULT(rope_swaps_algorithms)) desc->algo = 1 - desc->algo;
    desc->in_place = 1u << IN;
    if (FAULT(rope_ignores_stride_of_positions)) make_dense(&desc->tensors[POSITIONS]);
    if (FAULT(rope_ignores_stride_of_heads)) {
        Layout *x = &desc->tensors[IN];
        x->strides[x->ndim - 2] = (ptrdiff_t)x->shape[x->ndim - 1] * x->strides[x->ndim - 1];
    }
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateRoPEDescriptor(infiniopHandle_t handle, infiniopRoPEDescriptor_t *desc_ptr,
                                            infiniopTensorDescriptor_t y_desc, infiniopTensorDescriptor_t x_desc,
                                            infiniopTensorDescriptor_t pos_ids_desc,
                                            infiniopTensorDescriptor_t sin_table_desc,
                                            infiniopTensorDescriptor_t cos_table_desc, infiniopRoPEAlgo_t algo) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc, pos_ids_desc, sin_table_desc, cos_table_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, ROPE, 1, 5, tensors, false));
    return hand_over(prepare(desc, algo), desc, desc_ptr);
}

static uint64_t position_at(const Job *job, size_t batch, size_t place_in_sequence) {
    const Layout *positions = &job->desc->tensors[POSITIONS];
    const infiniDtype_t dtype = FAULT(rope_reads_positions_as_i64) ? INFINI_DTYPE_I64 : positions->dtype;
    ptrdiff_t at = (ptrdiff_t)place_in_sequence * positions->strides[positions->ndim - 1];
    if (positions->ndim == 2) at += (ptrdiff_t)batch * positions->strides[0];
    uint64_t position;
    load_integers(dtype, place(job->positions, dtype, at), 1, 1, &position);
    if (FAULT(rope_u8_positions_as_i8) && dtype == INFINI_DTYPE_U8) position = (uint64_t)(int64_t)(int8_t)position;
    if (FAULT(rope_u16_positions_as_i16) && dtype == INFINI_DTYPE_U16) position = (uint64_t)(int64_t)(int16_t)position;
    if (FAULT(rope_cuts_positions_to_32_bits)) position = (uint32_t)position;
    return position;
}

static infiniStatus_t check_positions(const Job *job) {
    const Layout *out = &job->desc->tensors[OUT];
    const size_t batches = out->ndim == 4 ? out->shape[0] : 1, length = out->shape[out->ndim - 3];
    const uint64_t known = job->desc->tensors[SINES].shape[0];
    if (FAULT(rope_accepts_any_position)) return INFINI_STATUS_SUCCESS;
    if (FAULT(rope_divides_by_0_for_length_1) && length == 1) return (infiniStatus_t)(batches / (length - 1));
    for (size_t b = 0; b < batches; ++b)
        for (size_t s = 0; s < length; ++s) {
            const uint64_t position = position_at(job, b, s);
            /* A negative id is far above all others. */
            if (position >= known + FAULT(rope_accepts_one_position_more)) return INFINI_STATUS_BAD_PARAM;
        }
    return INFINI_STATUS_SUCCESS;
}

/* The pairs first, ..., first + n - 1 of a vector. */
static void turn(const Job *job, const ptrdiff_t *offsets, uint64_t position, size_t first, size_t n) {
    const struct InfiniopDescriptor *desc = job->desc;
    const Layout *t = desc->tensors;
    const infiniDtype_t dtype = t[OUT].dtype;
    const ptrdiff_t half = (ptrdiff_t)t[OUT].shape[t[OUT].ndim - 1] / 2, at = (ptrdiff_t)first;
    const bool neighbours = desc->algo == INFINIOP_ROPE_ALGO_GPT_J;
    ptrdiff_t starts[2][2], steps[2]; /* of the first and second elements, in out and in */
    for (size_t i = OUT; i <= IN; ++i) {
        const ptrdiff_t stride = t[i].strides[t[i].ndim - 1];
        starts[i][0] = offsets[i] + (neighbours ? 2 * at : at) * stride;
        starts[i][1] = starts[i][0] + (neighbours ? 1 : half) * stride;
        steps[i] = (neighbours ? 2 : 1) * stride;
    }
    double a[CHUNK], b[CHUNK], sine[CHUNK], cosine[CHUNK], result[CHUNK];
    const ptrdiff_t sine_at = (ptrdiff_t)position * t[SINES].strides[0] + at * t[SINES].strides[1];
    const ptrdiff_t cosine_at = (ptrdiff_t)position * t[COSINES].strides[0] + at * t[COSINES].strides[1];
    load_row(dtype, place(job->in, dtype, starts[IN][0]), steps[IN], n, a);
    load_row(dtype, place(job->in, dtype, starts[IN][1]), steps[IN], n, b);
    load_row(dtype, place(job->sines, dtype, sine_at), t[SINES].strides[1], n, sine);
    load_row(dtype, place(job->cosines, dtype, cosine_at), t[COSINES].strides[1], n, cosine);
    if (FAULT(rope_begins_table_again) && first > 0) {
        const ptrdiff_t begin = (ptrdiff_t)position * t[COSINES].strides[0];
        load_row(dtype, place(job->cosines, dtype, begin), t[COSINES].strides[1], n, cosine);
    }
    if (FAULT(rope_cosines_have_layout_of_sines))
        load_row(dtype, place(job->cosines, dtype, sine_at), t[SINES].strides[1], n, cosine);
    for (size_t i = 0; i < n; ++i) result[i] = a[i] * cosine[i] - b[i] * sine[i];
    store_row(dtype, place_to_write(job->out, dtype, starts[OUT][0]), steps[OUT], n, result);
    if (FAULT(rope_in_place_reads_what_it_wrote))
        load_row(dtype, place(job->in, dtype, starts[IN][0]), steps[IN], n, a);
    for (size_t i = 0; i < n; ++i) result[i] = b[i] * cosine[i] + a[i] * sine[i];
    store_row(dtype, place_to_write(job->out, dtype, starts[OUT][1]), steps[OUT], n, result);
}

/* A unit is a vector: (batch, place in the sequence, head). */
static void turn_vectors(const void *argument, size_t first, size_t last, int thread) {
    (void)thread;
    const Job *job = argument;
    const Layout *t = job->desc->tensors;
    const size_t ndim = t[OUT].ndim, heads = t[OUT].shape[ndim - 2], length = t[OUT].shape[ndim - 3];
    const size_t pairs = t[OUT].shape[ndim - 1] / 2;
    for (size_t unit = first; unit < last; ++unit) {
        const size_t head = unit % heads, s = unit / heads % length, batch = unit / heads / length;
        ptrdiff_t offsets[2];
        for (size_t i = OUT; i <= IN; ++i) {
            offsets[i] = (ptrdiff_t)head * t[i].strides[ndim - 2] + (ptrdiff_t)s * t[i].strides[ndim - 3];
            if (ndim == 4) offsets[i] += (ptrdiff_t)batch * t[i].strides[0];
        }
        const uint64_t position = position_at(job, batch, s);
        for (size_t p = 0; p < pairs; p += CHUNK)
            turn(job, offsets, position, p, pairs - p < CHUNK ? pairs - p : CHUNK);
    }
}

infiniStatus_t infiniopRoPE(infiniopRoPEDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                            const void *x, const void *pos_ids, const void *sin_table, const void *cos_table,
                            void *stream) {
    (void)stream;
    const void *const data[] = {y, x, pos_ids, sin_table, cos_table};
    TRY(check_run(desc, ROPE, workspace, workspace_size, data));
    const Job job = {desc, y, x, pos_ids, sin_table, cos_table};
    const size_t total = count_elements(&desc->tensors[OUT]);
    if (total == 0) return INFINI_STATUS_SUCCESS;
    if (FAULT(rope_turns_before_it_refuses) && check_positions(&job) != INFINI_STATUS_SUCCESS) memset(y, 0, 2);
    TRY(check_positions(&job));
    const size_t size = desc->tensors[OUT].shape[desc->tensors[OUT].ndim - 1];
    in_parallel(desc->threads, total / size, size, turn_vectors, &job);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(RoPE, ROPE)
