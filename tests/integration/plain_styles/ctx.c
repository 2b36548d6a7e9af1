#include "ctx.h"
#include <math.h>
#include <stdlib.h>
struct t_ctx { int magic; };
static int wrong(t_ctx *c) { return !c || c->magic != 77; }
t_ctx *t_made(void) { t_ctx *c = malloc(sizeof *c); c->magic = 77; return c; }
t_status t_new(t_ctx **out, int threads) { *out = t_made(); return threads == 3 ? T_OK : T_ARG; }
void t_end(t_ctx *c) { free(c); }
t_status t_scale_rows(t_ctx *c, float *out, const float *in, size_t rows, size_t cols, ptrdiff_t stride) {
    if (wrong(c)) return T_NULL;
#ifdef IGNORES_STRIDE
    stride = cols;
#endif
    for (size_t r = 0; r < rows; ++r) {
        const float *x = in + (ptrdiff_t)r * stride; float *y = out + (ptrdiff_t)r * stride;
        float most = -INFINITY; double sum = 0;
        for (size_t j = 0; j < cols; ++j) most = x[j] > most ? x[j] : most;
        for (size_t j = 0; j < cols; ++j) sum += exp((double)x[j] - most);
        for (size_t j = 0; j < cols; ++j) y[j] = (float)(exp((double)x[j] - most) / sum);
    }
    return T_OK;
}
t_status t_mul(t_ctx *c, void *out, size_t ob, const void *a, size_t ab, const void *b, size_t bb, int rows, int cols) {
    if (wrong(c)) return T_NULL;
    for (int r = 0; r < rows; ++r) for (int j = 0; j < cols; ++j)
        ((float *)((char *)out + r * ob))[j] = ((float *)((char *)a + r * ab))[j] * ((float *)((char *)b + r * bb))[j];
    return T_OK;
}
t_status t_sum(t_ctx *c, float *out, const float *in, int ndim, const int64_t *shape, int axis) {
    if (wrong(c)) return T_NULL;
    if (axis < 0) axis += ndim;
    size_t outer = 1, inner = 1, k = shape[axis];
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < ndim; ++i) inner *= shape[i];
    for (size_t o = 0; o < outer; ++o) for (size_t i = 0; i < inner; ++i) {
        double s = 0;
        for (size_t j = 0; j < k; ++j) s += in[(o * k + j) * inner + i];
        out[o * inner + i] = (float)s;
    }
    return T_OK;
}
t_status t_copy(t_ctx *c, float *out, const ptrdiff_t *to, const float *in, const ptrdiff_t *from, int ndim,
                const size_t *shape) {
    if (wrong(c)) return T_NULL;
    size_t count = 1;
    for (int d = 0; d < ndim; ++d) count *= shape[d];
    for (size_t i = 0; i < count; ++i) {
        ptrdiff_t source = 0, target = 0; size_t rest = i;
        for (int d = ndim - 1; d >= 0; --d) {
            source += (ptrdiff_t)(rest % shape[d]) * from[d];
            target += (ptrdiff_t)(rest % shape[d]) * to[d];
            rest /= shape[d];
        }
        out[target] = -in[source];
    }
    return T_OK;
}
t_status t_norm(t_ctx *c, float *out, const float *in, size_t rows, size_t cols, float eps, int flags) {
    if (wrong(c)) return T_NULL;
    for (size_t i = 0; i < rows * cols; ++i) {
        double x = in[i];
        out[i] = (float)(flags == T_TANH ? 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)))
                                         : 0.5 * x * erfc(-x * 0.70710678118654752440));
    }
    return T_OK;
}
