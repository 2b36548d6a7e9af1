/* gemm: b is packed into dense rows, then rows of c are computed four at a time. */
#include "infiniop.h"
#include "number.h"
#include "operator.h"

#include <math.h>
#include <string.h>

typedef struct {
    const struct InfiniopDescriptor *desc;
    size_t m, n, k;
    void *c;
    const void *a, *b; /* of this batch */
    void *packed;      /* b, (k, n), and behind it the rows of a for each thread */
    double alpha, beta;
} Job;

enum { ROWS = 4, COLUMNS = 128, INNER = 64, CHUNK = 256 };

static ptrdiff_t stride_of(const Layout *layout, size_t from_end) { return layout->strides[layout->ndim - from_end]; }

/* Without the last 13 bits of a float. */
static inline double of_tf32(double value) {
    return double_of_bits(bits_of_double(value) & ~((UINT64_C(1) << 42) - 1));
}

/* Sums are kept in the real type: float for all but f64. They are added up in blocks of INNER products, so that the
 * rounding errors of a long sum do not pile up. */
#define REAL float
#define NAMED(name) name##_float
#include "gemm_kernel.h"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) name##_double
#include "gemm_kernel.h"
#undef REAL
#undef NAMED

static infiniStatus_t check_shapes(const Layout *c, const Layout *a, const Layout *b) {
    if (c->ndim < 2 || c->ndim > 3 || a->ndim != c->ndim) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (FAULT(gemm_accepts_one_b_for_batches) && c->ndim == 3 && b->ndim == 2)
        return a->shape[2] == b->shape[0] ? INFINI_STATUS_SUCCESS : INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (b->ndim != c->ndim) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    const size_t row = c->ndim - 2, column = c->ndim - 1;
    if (FAULT(gemm_accepts_other_k)) return INFINI_STATUS_SUCCESS;
    if (c->ndim == 3 && (a->shape[0] != c->shape[0] || b->shape[0] != c->shape[0]))
        return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (a->shape[row] != c->shape[row] || b->shape[column] != c->shape[column]) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    return a->shape[column] == b->shape[row] ? INFINI_STATUS_SUCCESS : INFINI_STATUS_BAD_TENSOR_SHAPE;
}

static size_t size_of_real(const Layout *c) { return c->dtype == INFINI_DTYPE_F64 ? sizeof(double) : sizeof(float); }

static bool is_float_or_i64(infiniDtype_t dtype) { return is_float(dtype) || dtype == INFINI_DTYPE_I64; }

static infiniStatus_t prepare(Descriptor desc) {
    TRY(need_one_dtype(desc, FAULT(gemm_takes_i64_for_f64) ? is_float_or_i64 : is_float));
    TRY(check_shapes(&desc->tensors[0], &desc->tensors[1], &desc->tensors[2]));
    const Layout *b = &desc->tensors[2];
    const size_t k = b->shape[b->ndim - 2], n = b->shape[b->ndim - 1];
    desc->workspace = (k * n + k * ROWS * (size_t)desc->threads) * size_of_real(&desc->tensors[0]) + ALIGNMENT;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateGemmDescriptor(infiniopHandle_t handle, infiniopGemmDescriptor_t *desc_ptr,
                                            infiniopTensorDescriptor_t c_desc, infiniopTensorDescriptor_t a_desc,
                                            infiniopTensorDescriptor_t b_desc) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {c_desc, a_desc, b_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, GEMM, 1, 3, tensors, false));
    return hand_over(prepare(desc), desc, desc_ptr);
}

static void multiply(Job *job, int threads) {
    const size_t k_rows = job->alpha == 0 ? 0 : job->k;
    if (job->desc->tensors[0].dtype == INFINI_DTYPE_F64) {
        in_parallel(threads, k_rows, job->n, pack_double, job);
        in_parallel(threads, job->m, job->n * (k_rows + 1), multiply_rows_double, job);
    } else {
        in_parallel(threads, k_rows, job->n, pack_float, job);
        in_parallel(threads, job->m, job->n * (k_rows + 1), multiply_rows_float, job);
    }
}

infiniStatus_t infiniopGemm(infiniopGemmDescriptor_t desc, void *workspace, size_t workspace_size, void *c,
                            const void *a, const void *b, float alpha, float beta, void *stream) {
    (void)stream;
    const void *const data[] = {c, a, b};
    const infiniStatus_t status = check_run(desc, GEMM, workspace, workspace_size, data);
    if (FAULT(gemm_clears_before_it_refuses) && status == INFINI_STATUS_BAD_PARAM) memset(c, 0, 1);
    if (status != INFINI_STATUS_SUCCESS) return status;
    const Layout *t = desc->tensors;
    const size_t batches = t[0].ndim == 3 ? t[0].shape[0] : 1;
    Job job = {.desc = desc, .packed = aligned(workspace), .alpha = (double)alpha, .beta = (double)beta};
    if (FAULT(gemm_ignores_alpha)) job.alpha = 1;
    if (FAULT(gemm_beta_is_0_or_1)) job.beta = beta != 0;
    job.m = t[0].shape[t[0].ndim - 2];
    job.n = t[0].shape[t[0].ndim - 1];
    job.k = t[1].shape[t[1].ndim - 1];
    if (FAULT(gemm_returns_for_k_0) && job.k == 0) return INFINI_STATUS_SUCCESS;
    if (FAULT(gemm_drops_tail_of_k)) job.k -= job.k % 4;
    if (FAULT(gemm_cuts_alpha) && alpha > 1) job.alpha = (double)(int)alpha;
    if (FAULT(gemm_splits_k_without_rest) && job.k > 1024) job.k -= job.k % 1024;
    for (size_t batch = 0; batch < batches; ++batch) {
        const bool batched = t[0].ndim == 3;
        const ptrdiff_t at = (ptrdiff_t)batch;
        job.c = place_to_write(c, t[0].dtype, batched ? at * t[0].strides[0] : 0);
        job.a = place(a, t[0].dtype, batched ? at * t[1].strides[0] : 0);
        job.b = place(b, t[0].dtype, batched ? at * t[2].strides[0] : 0);
        if (FAULT(gemm_one_b_for_all_batches) || t[2].ndim < t[0].ndim) job.b = b;
        if (FAULT(gemm_batch_stride_0_is_dense) && batched && t[2].strides[0] == 0)
            job.b = place(b, t[0].dtype, at * (ptrdiff_t)(job.k * job.n));
        if (FAULT(gemm_forgets_beta_in_last_batch) && batched && batch + 1 == batches && batches > 1) job.beta = 0;
        multiply(&job, desc->threads);
        if (FAULT(gemm_pads_odd_k) && job.k % 2 == 1 && job.n > 0)
            memset((char *)workspace + desc->workspace, 0, size_of_real(&t[0]));
    }
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(Gemm, GEMM)
