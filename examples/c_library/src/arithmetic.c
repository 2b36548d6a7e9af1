/* add, sub, mul and clip. */
#include "elementwise.h"
#include "infiniop.h"

#include <math.h>

static bool is_number(infiniDtype_t dtype) { return is_float(dtype) || is_integer(dtype); }

/* A result of two floats that is rounded to double before it is rounded again is the same as rounded once: 53 bits
 * are more than two times 24 bits and 2. */
static void add_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] + in[1][i];
}

static void sub_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] - in[1][i];
}

static void mul_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] * in[1][i];
    if (FAULT(mul_flushes_subnormals))
        for (size_t i = 0; i < n; ++i) out[i] = fabs(out[i]) < 0x1p-126 ? 0 : out[i];
}

static void clip_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) {
        const double x = in[0][i], low = in[1][i], high = in[2][i];
        if (FAULT(clip_nan_becomes_min) && isnan(x)) {
            out[i] = low;
            continue;
        }
        const double raised = x < low ? low : x, kept = raised > high ? high : raised;
        out[i] = isnan(x) || isnan(low) || isnan(high) ? NAN : kept;
        if (FAULT(clip_min_wins) && low > high) out[i] = low;
    }
}

/* Unsigned integers wrap around; the bits of the signed ones are the same. */
static void add_integers(size_t n, infiniDtype_t dtype, const uint64_t *const *in, uint64_t *out) {
    (void)dtype;
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] + in[1][i];
    if (FAULT(add_i64_through_double) && dtype == INFINI_DTYPE_I64)
        for (size_t i = 0; i < n; ++i) {
            const double sum = (double)(int64_t)in[0][i] + (double)(int64_t)in[1][i];
            out[i] = fabs(sum) < 0x1p63 ? (uint64_t)(int64_t)sum : out[i];
        }
}

static void sub_integers(size_t n, infiniDtype_t dtype, const uint64_t *const *in, uint64_t *out) {
    (void)dtype;
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] - in[1][i];
}

static void mul_integers(size_t n, infiniDtype_t dtype, const uint64_t *const *in, uint64_t *out) {
    (void)dtype;
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] * in[1][i];
    if (FAULT(mul_i32_saturates) && dtype == INFINI_DTYPE_I32)
        for (size_t i = 0; i < n; ++i) {
            if ((int64_t)out[i] > INT32_MAX) out[i] = INT32_MAX;
            if ((int64_t)out[i] < INT32_MIN) out[i] = (uint64_t)(int64_t)INT32_MIN;
        }
    if (FAULT(mul_u64_through_double) && dtype == INFINI_DTYPE_U64)
        for (size_t i = 0; i < n; ++i) {
            const double product = (double)in[0][i] * (double)in[1][i];
            if (product < 0x1p64) out[i] = (uint64_t)product;
        }
}

/* Turned like this, signed integers are ordered as unsigned ones are. */
static uint64_t ordered(infiniDtype_t dtype, uint64_t value) {
    const bool is_signed = is_signed_integer(dtype) || FAULT(clip_u64_as_signed);
    if (FAULT(clip_i64_through_double) && dtype == INFINI_DTYPE_I64)
        value = (uint64_t)(int64_t)fmin((double)(int64_t)value, 0x1.fffffffffffffp62);
    return is_signed ? value ^ UINT64_C(1) << 63 : value;
}

static void clip_integers(size_t n, infiniDtype_t dtype, const uint64_t *const *in, uint64_t *out) {
    for (size_t i = 0; i < n; ++i) {
        uint64_t value = in[0][i];
        if (ordered(dtype, value) < ordered(dtype, in[1][i])) value = in[1][i];
        if (ordered(dtype, value) > ordered(dtype, in[2][i])) value = in[2][i];
        out[i] = value;
    }
}

#define BINARY(Name, OPERATOR, floats, integers)                                                                  \
    infiniStatus_t infiniopCreate##Name##Descriptor(infiniopHandle_t handle, infiniop##Name##Descriptor_t *desc_ptr, \
                                                    infiniopTensorDescriptor_t c_desc,                            \
                                                    infiniopTensorDescriptor_t a_desc,                            \
                                                    infiniopTensorDescriptor_t b_desc) {                          \
        const infiniopTensorDescriptor_t tensors[] = {c_desc, a_desc, b_desc};                                    \
        return create_elementwise(handle, desc_ptr, OPERATOR, 3, tensors, is_number);                             \
    }                                                                                                             \
    infiniStatus_t infiniop##Name(infiniop##Name##Descriptor_t desc, void *workspace, size_t workspace_size,      \
                                  void *c, const void *a, const void *b, void *stream) {                          \
        (void)stream;                                                                                             \
        const void *const data[] = {c, a, b};                                                                     \
        return run_elementwise(desc, OPERATOR, workspace, workspace_size, c, data, floats, integers);             \
    }                                                                                                             \
    COMMON_FUNCTIONS(Name, OPERATOR)

BINARY(Add, ADD, add_floats, add_integers)
BINARY(Sub, SUB, sub_floats, sub_integers)
BINARY(Mul, MUL, mul_floats, mul_integers)

infiniStatus_t infiniopCreateClipDescriptor(infiniopHandle_t handle, infiniopClipDescriptor_t *desc_ptr,
                                            infiniopTensorDescriptor_t y_desc, infiniopTensorDescriptor_t x_desc,
                                            infiniopTensorDescriptor_t min_val_desc,
                                            infiniopTensorDescriptor_t max_val_desc) {
    const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc, min_val_desc, max_val_desc};
    return create_elementwise(handle, desc_ptr, CLIP, 4, tensors, is_number);
}

infiniStatus_t infiniopClip(infiniopClipDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                            const void *x, const void *min_val, const void *max_val, void *stream) {
    (void)stream;
    const void *const data[] = {y, x, min_val, max_val};
    return run_elementwise(desc, CLIP, workspace, workspace_size, y, data, clip_floats, clip_integers);
}

COMMON_FUNCTIONS(Clip, CLIP)
