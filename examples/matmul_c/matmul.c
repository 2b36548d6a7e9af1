/*
 * matmul A B C MxK KxN: C = A @ B for float32 matrices in raw files, row-major.
 *
 * The kernel works on 16 x 16 blocks and treats what is left over at the edges apart. It has a bug, on purpose: the
 * loop for the columns at the right edge stops at the last full block of the inner dimension, so products are
 * missing there whenever K is no multiple of 16.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

static void full_block(const float *a, const float *b, float *c, int n, int k, int row, int column) {
    float sum[BLOCK][BLOCK];
    memset(sum, 0, sizeof sum);
    for (int p = 0; p < k; ++p)
        for (int i = 0; i < BLOCK; ++i)
            for (int j = 0; j < BLOCK; ++j)
                sum[i][j] += a[(row + i) * k + p] * b[p * n + column + j];
    for (int i = 0; i < BLOCK; ++i)
        for (int j = 0; j < BLOCK; ++j) c[(row + i) * n + column + j] = sum[i][j];
}

static void element(const float *a, const float *b, float *c, int n, int k, int row, int column, int inner) {
    float sum = 0;
    for (int p = 0; p < inner; ++p) sum += a[row * k + p] * b[p * n + column];
    c[row * n + column] = sum;
}

static void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    const int full_m = m - m % BLOCK, full_n = n - n % BLOCK, full_k = k - k % BLOCK;
    for (int row = 0; row < full_m; row += BLOCK)
        for (int column = 0; column < full_n; column += BLOCK) full_block(a, b, c, n, k, row, column);
    for (int row = 0; row < m; ++row)
        for (int column = full_n; column < n; ++column) element(a, b, c, n, k, row, column, full_k); /* the bug: k */
    for (int row = full_m; row < m; ++row)
        for (int column = 0; column < full_n; ++column) element(a, b, c, n, k, row, column, k);
}

static float *read_matrix(const char *path, int rows, int columns) {
    const size_t count = (size_t)rows * (size_t)columns;
    float *values = malloc((count ? count : 1) * sizeof *values);
    FILE *file = fopen(path, "rb");
    if (!file || !values || fread(values, sizeof *values, count, file) != count) {
        fprintf(stderr, "matmul: cannot read %zu numbers from %s\n", count, path);
        exit(1);
    }
    fclose(file);
    return values;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: matmul A B C MxK KxN\n");
        return 2;
    }
    int m, k, inner, n;
    if (sscanf(argv[4], "%dx%d", &m, &k) != 2 || sscanf(argv[5], "%dx%d", &inner, &n) != 2 || inner != k) {
        fprintf(stderr, "matmul: shapes %s and %s do not fit\n", argv[4], argv[5]);
        return 2;
    }
    float *a = read_matrix(argv[1], m, k), *b = read_matrix(argv[2], k, n);
    float *c = malloc((size_t)m * (size_t)n * sizeof *c);
    if (!c) return 1;
    matmul(a, b, c, m, n, k);
    FILE *file = fopen(argv[3], "wb");
    if (!file || fwrite(c, sizeof *c, (size_t)m * (size_t)n, file) != (size_t)m * (size_t)n || fclose(file)) {
        fprintf(stderr, "matmul: cannot write %s\n", argv[3]);
        return 1;
    }
    return 0;
}
