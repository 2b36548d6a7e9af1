#include "vk.h"
#include <math.h>
void vadd_f32(size_t n, const float *a, const float *b, float *c) {
    for (size_t i = 0; i < n; i++)c[i] = a[i] + b[i];
}
void vadd_f64(size_t n, const double *a, const double *b, double *c) {
    for (size_t i = 0; i < n; i++)c[i] = a[i] + b[i];
}
int vscale_f32(size_t n, double alpha, const float *x, ptrdiff_t incx, float *y, ptrdiff_t incy) {
    if (n && (!x || !y))return -1;
    if (incy == 0 && n > 1)return -2;
    for (size_t i = 0; i < n; i++)y[(ptrdiff_t)i * incy] = (float)(alpha * x[(ptrdiff_t)i * incx]);
    return 0;
}
int vscale_f64(size_t n, double alpha, const double *x, ptrdiff_t incx, double *y, ptrdiff_t incy) {
    if (n && (!x || !y))return -1;
    if (incy == 0 && n > 1)return -2;
    for (size_t i = 0; i < n; i++)y[(ptrdiff_t)i * incy] = alpha * x[(ptrdiff_t)i * incx];
    return 0;
}
int vclip_f32(size_t n, double lo, double hi, const float *x, float *y) {
    if (n && (!x || !y))return -1;
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        if (v < lo)v = (float)lo;
        if (v > hi)v = (float)hi;
        y[i] = v;
    }
    return 0;
}
int vexp_f32(size_t n, const float *x, float *y) {
    if (n && (!x || !y))return -1;
    for (size_t i = 0; i < n; i++)y[i] = expf(x[i]);
    return 0;
}
int vexp_f64(size_t n, const double *x, double *y) {
    if (n && (!x || !y))return -1;
    for (size_t i = 0; i < n; i++)y[i] = exp(x[i]);
    return 0;
}
int vsum_f32(size_t n, const float *x, ptrdiff_t inc, float *result) {
    if (!result || (n && !x))return -1;
    double s = 0;
    for (size_t i = 0; i < n; i++)s += x[(ptrdiff_t)i * inc];
    *result = (float)s;
    return 0;
}
void vgt_f32(size_t n, const float *a, const float *b, unsigned char *o) {
    for (size_t i = 0; i < n; i++)o[i] = a[i] > b[i];
}
int vargmax_f32(size_t n, const float *x, long long *index) {
    if (!n || !x || !index)return -1;
    size_t k = 0;
    for (size_t i = 1; i < n; i++)if (!isnan(x[k]) && (x[i] > x[k] || isnan(x[i])))k = i;
    *index = k;
    return 0;
}
void vcvt_f32_f64(size_t n, const float *x, double *y) {
    for (size_t i = 0; i < n; i++)y[i] = x[i];
}
void vgather_f32(size_t rows, size_t cols, size_t n, const float*t, const int*ix, float*o) {
    for (size_t i = 0; i < n; i++)for (size_t j = 0; j < cols; j++)o[i * cols + j] = t[(size_t)ix[i] * cols + j];
}
const char *vk_strerror(int c) {
    switch (c) {
    case 0:
        return "ok";
    case -1:
        return "null pointer";
    case -2:
        return "zero stride";
    }
    return "unknown";
}
