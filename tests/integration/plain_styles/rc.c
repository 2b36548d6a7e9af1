#include "rc.h"

void rc_gemm(long m, long n, long k, const float *a, long rs_a, long cs_a, const float *b, long rs_b, long cs_b,
             float *c, long rs_c, long cs_c) {
#ifdef STRIDES_SWAPPED
    long t = rs_b;
    rs_b = cs_b;
    cs_b = t;
#endif
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            double sum = 0;
            for (long p = 0; p < k; ++p) sum += (double)a[i * rs_a + p * cs_a] * b[p * rs_b + j * cs_b];
            c[i * rs_c + j * cs_c] = (float)sum;
        }
}

void rc_copy(int m, int n, const float *x, int rs_x_bytes, int cs_x_bytes, float *y, int rs_y, int cs_y) {
#ifdef COLUMNS_ARE_DENSE
    cs_y = 1;
#endif
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            y[i * rs_y + j * cs_y] = *(const float *)((const char *)x + (long)i * rs_x_bytes + (long)j * cs_x_bytes);
}

void rc_relu(long planes, long m, long n, const float *x, long ps, long rs, float *y, long ps_y, long rs_y) {
    for (long p = 0; p < planes; ++p)
        for (long i = 0; i < m; ++i)
            for (long j = 0; j < n; ++j) {
                const float value = x[p * ps + i * rs + j];
                y[p * ps_y + i * rs_y + j] = value < 0 ? 0 : value;
            }
}
