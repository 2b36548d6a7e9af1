/* Row and column strides as numbers, as in BLIS: c = a b, copies, sums of planes. */
void rc_gemm(long m, long n, long k, const float *a, long rs_a, long cs_a, const float *b, long rs_b, long cs_b,
             float *c, long rs_c, long cs_c);
void rc_copy(int m, int n, const float *x, int rs_x_bytes, int cs_x_bytes, float *y, int rs_y, int cs_y);
void rc_relu(long planes, long m, long n, const float *x, long ps, long rs, float *y, long ps_y, long rs_y);
