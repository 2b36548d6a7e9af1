// A context in every call, shapes as arrays, rows at distances in bytes.
#include <stddef.h>
#include <stdint.h>
typedef enum { T_OK = 0, T_NULL = -1, T_ARG = -2 } t_status;
typedef struct t_ctx t_ctx;
#define T_TANH 2
t_status t_new(t_ctx **out, int threads);
t_ctx *t_made(void);
void t_end(t_ctx *);
t_status t_scale_rows(t_ctx *, float *out, const float *in, size_t rows, size_t cols, ptrdiff_t stride);
t_status t_mul(t_ctx *, void *out, size_t out_bytes, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
               int rows, int cols);
t_status t_sum(t_ctx *, float *out, const float *in, int ndim, const int64_t *shape, int axis);
t_status t_copy(t_ctx *, float *out, const ptrdiff_t *to, const float *in, const ptrdiff_t *from, int ndim,
                const size_t *shape);
t_status t_norm(t_ctx *, float *out, const float *in, size_t rows, size_t cols, float eps, int flags);
