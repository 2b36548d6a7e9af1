#ifndef GX_H
#define GX_H
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
enum gx_type { GX_TYPE_F32 = 0, GX_TYPE_F64 = 1, GX_TYPE_I32 = 2 };
/* as ggml: the first dimension is the fastest, nb are distances in bytes */
struct gx_tensor { enum gx_type type; int64_t ne[4]; size_t nb[4]; void *data; const char *name; };
typedef struct { int32_t n_threads; struct { float eps; bool fast; } norm; const int64_t *axes; int n_axes; } gx_params;
void gx_params_default(gx_params *params);
bool gx_rms_norm(const struct gx_tensor *x, const gx_params *params, struct gx_tensor *out);
bool gx_get_rows(const struct gx_tensor *table, const struct gx_tensor *ids, struct gx_tensor *out);
/* attributes as arrays */
bool gx_permute(const struct gx_tensor *x, const int64_t *axes, int n_axes, struct gx_tensor *out);
const char *gx_last_error(void);

/* as XNNPACK: create, setup with pointers, run, delete */
typedef struct gx_operator *gx_operator_t;
enum gx_flags { GX_FLAG_NONE = 0 };
bool gx_create_clamp(float lo, float hi, enum gx_flags flags, gx_operator_t *op);
bool gx_setup_clamp(gx_operator_t op, size_t batch_bytes, const float *x, float *y);
bool gx_run(gx_operator_t op, void *threadpool);
void gx_delete(gx_operator_t op);
#ifdef __cplusplus
}
#endif
#endif
