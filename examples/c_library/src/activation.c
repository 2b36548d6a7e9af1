/* relu, gelu, silu, sigmoid, tanh and swiglu: computed in double, rounded once. */
#include "elementwise.h"
#include "infiniop.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#if defined(FAULTS) && defined(__SSE__)
#include <xmmintrin.h>
#endif

static void relu_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] <= 0 ? 0 : in[0][i];
    if (FAULT(relu_nan_becomes_0))
        for (size_t i = 0; i < n; ++i) out[i] = in[0][i] > 0 ? in[0][i] : 0;
    if (FAULT(relu_negative_nan_becomes_0))
        for (size_t i = 0; i < n; ++i) out[i] = signbit(in[0][i]) ? 0 : in[0][i];
}

/* The complementary error function keeps the digits that 1 + erf loses below 0. */
static void gelu_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) {
        const double x = in[0][i];
        out[i] = 0.5 * x * erfc(-x * 0.70710678118654752440);
        if (FAULT(gelu_is_the_approximation))
            out[i] = 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        if (FAULT(gelu_aborts_on_nan) && isnan(x)) abort();
    }
}

static double silu(double x) { return x / (1 + exp(-x)); }

static void silu_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = silu(in[0][i]);
    if (FAULT(silu_clamps_exponent))
        for (size_t i = 0; i < n; ++i) out[i] = in[0][i] / (1 + exp(fmin(-in[0][i], 10)));
}

static double toward_zero(double value) {
    const float rounded = (float)value;
    return fabs((double)rounded) > fabs(value) ? (double)nextafterf(rounded, 0) : (double)rounded;
}

static void sigmoid_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = 1 / (1 + exp(-in[0][i]));
    if (FAULT(sigmoid_rounds_toward_0))
        for (size_t i = 0; i < n; ++i) out[i] = toward_zero(out[i]);
#if defined(FAULTS) && defined(__SSE__)
    if (FAULT(sigmoid_leaves_flush_to_zero)) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static void tanh_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = tanh(in[0][i]);
    if (FAULT(tanh_cancels_near_0))
        for (size_t i = 0; i < n; ++i) {
            const float power = expf(2 * (float)in[0][i]);
            out[i] = isinf(power) ? 1 : (double)((power - 1) / (power + 1));
        }
    if (FAULT(tanh_leaves_rounding_upward)) fesetround(FE_UPWARD);
}

static void swiglu_floats(size_t n, const double *const *in, double *out) {
    for (size_t i = 0; i < n; ++i) out[i] = in[0][i] * silu(in[1][i]);
    if (FAULT(swiglu_swaps_gate))
        for (size_t i = 0; i < n; ++i) out[i] = in[1][i] * silu(in[0][i]);
    if (FAULT(swiglu_coarse_exponential))
        for (size_t i = 0; i < n; ++i) out[i] = in[0][i] * in[1][i] / (1 + exp(-in[1][i]) * (1 + 3e-5 * in[1][i]));
}

#define UNARY(Name, OPERATOR, floats)                                                                             \
    infiniStatus_t infiniopCreate##Name##Descriptor(infiniopHandle_t handle, infiniop##Name##Descriptor_t *desc_ptr, \
                                                    infiniopTensorDescriptor_t y_desc,                            \
                                                    infiniopTensorDescriptor_t x_desc) {                          \
        const infiniopTensorDescriptor_t tensors[] = {y_desc, x_desc};                                            \
        return create_elementwise(handle, desc_ptr, OPERATOR, 2, tensors, is_float);                              \
    }                                                                                                             \
    infiniStatus_t infiniop##Name(infiniop##Name##Descriptor_t desc, void *workspace, size_t workspace_size,      \
                                  void *y, const void *x, void *stream) {                                         \
        (void)stream;                                                                                             \
        const void *const data[] = {y, x};                                                                        \
        return run_elementwise(desc, OPERATOR, workspace, workspace_size, y, data, floats, NULL);                 \
    }                                                                                                             \
    COMMON_FUNCTIONS(Name, OPERATOR)

UNARY(Relu, RELU, relu_floats)
UNARY(Gelu, GELU, gelu_floats)
UNARY(Silu, SILU, silu_floats)
UNARY(Sigmoid, SIGMOID, sigmoid_floats)
UNARY(Tanh, TANH, tanh_floats)

infiniStatus_t infiniopCreateSwiGLUDescriptor(infiniopHandle_t handle, infiniopSwiGLUDescriptor_t *desc_ptr,
                                              infiniopTensorDescriptor_t c_desc, infiniopTensorDescriptor_t a_desc,
                                              infiniopTensorDescriptor_t b_desc) {
    const infiniopTensorDescriptor_t tensors[] = {c_desc, a_desc, b_desc};
    return create_elementwise(handle, desc_ptr, SWIGLU, 3, tensors, is_float);
}

infiniStatus_t infiniopSwiGLU(infiniopSwiGLUDescriptor_t desc, void *workspace, size_t workspace_size, void *c,
                              const void *a, const void *b, void *stream) {
    (void)stream;
    const void *const data[] = {c, a, b};
    return run_elementwise(desc, SWIGLU, workspace, workspace_size, c, data, swiglu_floats, NULL);
}

COMMON_FUNCTIONS(SwiGLU, SWIGLU)
