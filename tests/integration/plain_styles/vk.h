#ifndef VK_H
#define VK_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* c = a + b */
void vadd_f32(size_t n, const float *a, const float *b, float *c);
void vadd_f64(size_t n, const double *a, const double *b, double *c);
/* y[i*incy] = x[i*incx] * alpha */
int vscale_f32(size_t n, double alpha, const float *x, ptrdiff_t incx, float *y, ptrdiff_t incy);
int vscale_f64(size_t n, double alpha, const double *x, ptrdiff_t incx, double *y, ptrdiff_t incy);
int vclip_f32(size_t n, double lo, double hi, const float *x, float *y);
int vexp_f32(size_t n, const float *x, float *y);
int vexp_f64(size_t n, const double *x, double *y);
/* *result = sum */
int vsum_f32(size_t n, const float *x, ptrdiff_t inc, float *result);
void vgt_f32(size_t n, const float *a, const float *b, unsigned char *out);
int vargmax_f32(size_t n, const float *x, long long *index);
void vcvt_f32_f64(size_t n, const float *x, double *y);
void vgather_f32(size_t rows, size_t cols, size_t n, const float *table, const int *index, float *out);
const char *vk_strerror(int code);
#ifdef __cplusplus
}
#endif
#endif
