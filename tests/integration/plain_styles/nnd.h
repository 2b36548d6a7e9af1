#ifndef NND_H
#define NND_H
#include <stddef.h>
#include <stdint.h>
typedef struct nnd_context *nnd_handle_t;
typedef struct nnd_tensor_s *nnd_tensor_t;
typedef struct nnd_conv_s *nnd_conv_t;
typedef enum { NND_SUCCESS = 0, NND_BAD_PARAM = 1, NND_NOT_SUPPORTED = 2, NND_ALLOC_FAILED = 3, NND_BAD_WORKSPACE = 4 } nnd_status_t;
typedef enum { NND_FLOAT = 10, NND_DOUBLE = 11 } nnd_dtype_t;
typedef enum { NND_ACT_RELU, NND_ACT_TANH, NND_ACT_SIGMOID } nnd_act_t;
typedef enum { NND_OP_ADD, NND_OP_MUL, NND_OP_MIN, NND_OP_MAX } nnd_op_t;
nnd_status_t nnd_create(nnd_handle_t *handle);
nnd_status_t nnd_destroy(nnd_handle_t handle);
const char *nnd_status_string(nnd_status_t status);
nnd_status_t nnd_tensor_create(nnd_tensor_t *desc);
nnd_status_t nnd_tensor_set_nd(nnd_tensor_t desc, nnd_dtype_t dtype, int nb_dims, const int dims[], const int strides[]);
nnd_status_t nnd_tensor_destroy(nnd_tensor_t desc);
/* y = alpha * act(x) + beta * y; alpha and beta are float for float, double for double */
nnd_status_t nnd_activation(nnd_handle_t, nnd_act_t mode, const void *alpha, nnd_tensor_t x_desc, const void *x,
                            const void *beta, nnd_tensor_t y_desc, void *y);
/* c = op(alpha1 * a, alpha2 * b) + beta * c; b's sizes may be 1 */
nnd_status_t nnd_op_tensor(nnd_handle_t, nnd_op_t op, const void *alpha1, nnd_tensor_t a_desc, const void *a,
                           const void *alpha2, nnd_tensor_t b_desc, const void *b, const void *beta, nnd_tensor_t c_desc, void *c);
/* along the last dimension */
nnd_status_t nnd_softmax_workspace(nnd_handle_t, nnd_tensor_t x_desc, size_t *bytes);
nnd_status_t nnd_softmax(nnd_handle_t, nnd_tensor_t x_desc, const void *x, void *workspace, size_t workspace_bytes,
                         nnd_tensor_t y_desc, void *y);
/* tokens of k and v go to their slots in the caches, blocks x heads x tokens x size; negative slots are left out */
nnd_status_t nnd_cache_put(nnd_handle_t, nnd_tensor_t k_desc, const void *k, nnd_tensor_t v_desc, const void *v, int count,
                           const int64_t *slots, nnd_tensor_t k_cache_desc, void *k_cache, nnd_tensor_t v_cache_desc, void *v_cache);
nnd_status_t nnd_conv_create(nnd_conv_t *conv);
nnd_status_t nnd_conv_set(nnd_conv_t conv, int spatial, const int pad[], const int stride[], const int dilation[], int groups);
nnd_status_t nnd_conv_destroy(nnd_conv_t conv);
nnd_status_t nnd_conv_forward_workspace(nnd_handle_t, nnd_tensor_t x, nnd_tensor_t w, nnd_conv_t conv, nnd_tensor_t y, size_t *bytes);
nnd_status_t nnd_conv_forward(nnd_handle_t, nnd_tensor_t x_desc, const void *x, nnd_tensor_t w_desc, const void *w,
    nnd_conv_t conv, nnd_tensor_t b_desc, const void *b, void *workspace, size_t bytes, nnd_tensor_t y_desc, void *y);
#endif
