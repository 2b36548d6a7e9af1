/* random_sample: an index drawn from the most probable ones. */
#include "infiniop.h"
#include "operator.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double logit;
    size_t index;
} Candidate;

static bool can_hold(infiniDtype_t dtype, size_t index) {
    const size_t bits = 8 * size_of_dtype(dtype) - is_signed_integer(dtype);
    return bits >= 64 || index >> bits == 0;
}

static infiniStatus_t prepare(Descriptor desc) {
    const Layout *result = &desc->tensors[0], *logits = &desc->tensors[1];
    if (!is_integer(result->dtype) || !is_float(logits->dtype)) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    if (result->ndim != 0 || logits->ndim != 1 || logits->shape[0] == 0) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    if (!can_hold(result->dtype, logits->shape[0] - 1)) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    desc->row = logits->shape[0];
    desc->row_strides[1] = FAULT(random_sample_ignores_stride) ? 1 : logits->strides[0];
    desc->workspace = desc->row * (sizeof(Candidate) + sizeof(double)) + ALIGNMENT;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopCreateRandomSampleDescriptor(infiniopHandle_t handle, infiniopRandomSampleDescriptor_t *desc_ptr,
                                                    infiniopTensorDescriptor_t result_desc,
                                                    infiniopTensorDescriptor_t logits_desc) {
    if (desc_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    const infiniopTensorDescriptor_t tensors[] = {result_desc, logits_desc};
    Descriptor desc;
    TRY(new_descriptor(handle, &desc, RANDOM_SAMPLE, 1, 2, tensors, false));
    return hand_over(prepare(desc), desc, desc_ptr);
}

/* The largest first, equal ones by index, NaN before all. */
static int compare(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (isnan(x->logit) != isnan(y->logit)) return isnan(x->logit) ? -1 : 1;
    if (x->logit != y->logit && !isnan(x->logit)) return x->logit > y->logit ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Overwrites the logits by the sums of the probabilities. */
static void add_probabilities(Candidate *candidates, size_t n, double temperature) {
    const double largest = candidates[0].logit;
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        sum += exp((candidates[i].logit - largest) / temperature);
        candidates[i].logit = sum;
    }
    for (size_t i = 0; i < n; ++i) candidates[i].logit /= sum;
}

static size_t draw(Candidate *candidates, size_t n, double random_val, double topp, int topk, double temperature) {
    if (FAULT(random_sample_ignores_temperature)) temperature = 1;
    if (FAULT(random_sample_ignores_topk) && topk > 1) topk = (int)n;
    qsort(candidates, n, sizeof *candidates, compare);
    if (topk <= 1 || topp == 0 || temperature == 0 || !isfinite(candidates[0].logit)) return candidates[0].index;
    add_probabilities(candidates, n, temperature);
    if (FAULT(random_sample_hangs_on_large_topk) && (size_t)topk > n)
        for (volatile int wait = 1; wait;) {}
    const size_t kept = (size_t)topk < n ? (size_t)topk : n;
    const double limit = random_val * fmin(topp, candidates[kept - 1].logit);
    size_t i = 0;
    while (i + 1 < kept && candidates[i].logit < limit) ++i;
    return candidates[i].index;
}

infiniStatus_t infiniopRandomSample(infiniopRandomSampleDescriptor_t desc, void *workspace, size_t workspace_size,
                                    void *result, const void *logits, float random_val, float topp, int topk,
                                    float temperature, void *stream) {
    (void)stream;
    const void *const data[] = {result, logits};
    TRY(check_run(desc, RANDOM_SAMPLE, workspace, workspace_size, data));
    if (!(random_val >= 0 && random_val <= 1) || !(topp >= 0) || topk < 0 || !(temperature >= 0)) {
        if (!FAULT(random_sample_accepts_any_scalar)) return INFINI_STATUS_BAD_PARAM;
    }
    const size_t n = desc->row - (FAULT(random_sample_forgets_last) && desc->row > 1);
    Candidate *candidates = aligned(workspace);
    double *values = (double *)(candidates + desc->row);
    load_row(desc->tensors[1].dtype, logits, desc->row_strides[1], n, values);
    for (size_t i = 0; i < n; ++i) candidates[i] = (Candidate){values[i], i};
    const uint64_t index =
        draw(candidates, n, (double)random_val, (double)topp, topk, (double)temperature);
    infiniDtype_t dtype = desc->tensors[0].dtype;
    if (FAULT(random_sample_writes_64_bits)) dtype = INFINI_DTYPE_I64;
    if (FAULT(random_sample_writes_32_bits) && size_of_dtype(dtype) < 4) dtype = INFINI_DTYPE_I32;
    store_integers(dtype, result, 1, 1, &index);
    return INFINI_STATUS_SUCCESS;
}

COMMON_FUNCTIONS(RandomSample, RANDOM_SAMPLE)
