/* What libinfiniop declares (January 2026), for libraries of this interface that come without headers. */
#include <stddef.h>

typedef enum {
    INFINI_STATUS_SUCCESS, INFINI_STATUS_INTERNAL_ERROR, INFINI_STATUS_NOT_IMPLEMENTED, INFINI_STATUS_BAD_PARAM,
    INFINI_STATUS_NULL_POINTER, INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED, INFINI_STATUS_DEVICE_NOT_FOUND,
    INFINI_STATUS_DEVICE_NOT_INITIALIZED, INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED,
    INFINI_STATUS_BAD_TENSOR_DTYPE = 10, INFINI_STATUS_BAD_TENSOR_SHAPE, INFINI_STATUS_BAD_TENSOR_STRIDES,
    INFINI_STATUS_INSUFFICIENT_WORKSPACE
} infiniStatus_t;
typedef enum {
    INFINI_DEVICE_CPU, INFINI_DEVICE_NVIDIA, INFINI_DEVICE_CAMBRICON, INFINI_DEVICE_ASCEND, INFINI_DEVICE_METAX,
    INFINI_DEVICE_MOORE, INFINI_DEVICE_ILUVATAR, INFINI_DEVICE_KUNLUN, INFINI_DEVICE_HYGON, INFINI_DEVICE_QY
} infiniDevice_t;
typedef enum {
    INFINI_DTYPE_INVALID, INFINI_DTYPE_BYTE, INFINI_DTYPE_BOOL, INFINI_DTYPE_I8, INFINI_DTYPE_I16, INFINI_DTYPE_I32,
    INFINI_DTYPE_I64, INFINI_DTYPE_U8, INFINI_DTYPE_U16, INFINI_DTYPE_U32, INFINI_DTYPE_U64, INFINI_DTYPE_F8,
    INFINI_DTYPE_F16, INFINI_DTYPE_F32, INFINI_DTYPE_F64, INFINI_DTYPE_C16, INFINI_DTYPE_C32, INFINI_DTYPE_C64,
    INFINI_DTYPE_C128, INFINI_DTYPE_BF16
} infiniDtype_t;
typedef enum { INFINIOP_ROPE_ALGO_GPT_J, INFINIOP_ROPE_ALGO_GPT_NEOX } infiniopRoPEAlgo_t;

typedef struct InfiniopHandle *infiniopHandle_t;
typedef struct InfiniopTensorDescriptor *infiniopTensorDescriptor_t;

infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id);
infiniStatus_t infinirtGetDevice(infiniDevice_t *device_ptr, int *device_id_ptr);
infiniStatus_t infinirtDeviceSynchronize(void);
infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr);
infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle);
infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype);
infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);

#define ARGUMENTS(...) __VA_ARGS__
#define D(NAME) infiniopTensorDescriptor_t NAME##_desc
#define IN(NAME) const void *NAME
#define OUT(NAME) void *NAME
#define CREATE_AND_DESTROY(NAME, CREATE)                                                                             \
    typedef struct InfiniopDescriptor *infiniop##NAME##Descriptor_t;                                                 \
    infiniStatus_t infiniopCreate##NAME##Descriptor(infiniopHandle_t handle, infiniop##NAME##Descriptor_t *desc_ptr, \
                                                    CREATE);                                                         \
    infiniStatus_t infiniopDestroy##NAME##Descriptor(infiniop##NAME##Descriptor_t desc);
#define OPERATOR(NAME, CREATE, RUN)                                                                                 \
    CREATE_AND_DESTROY(NAME, ARGUMENTS(CREATE))                                                                     \
    infiniStatus_t infiniopGet##NAME##WorkspaceSize(infiniop##NAME##Descriptor_t desc, size_t *size);               \
    infiniStatus_t infiniop##NAME(infiniop##NAME##Descriptor_t desc, void *workspace, size_t workspace_size, RUN,   \
                                  void *stream);
#define UNARY(NAME) OPERATOR(NAME, ARGUMENTS(D(y), D(x)), ARGUMENTS(OUT(y), IN(x)))
#define BINARY(NAME) OPERATOR(NAME, ARGUMENTS(D(c), D(a), D(b)), ARGUMENTS(OUT(c), IN(a), IN(b)))

BINARY(Add)
BINARY(Sub)
BINARY(Mul)
BINARY(SwiGLU)
UNARY(Relu)
UNARY(Gelu)
UNARY(Silu)
UNARY(Sigmoid)
UNARY(Tanh)
UNARY(Softplus)
UNARY(Zeros)
UNARY(Ones)
UNARY(CausalSoftmax)
UNARY(LogSoftmax)
OPERATOR(Clip, ARGUMENTS(D(y), D(x), D(min), D(max)), ARGUMENTS(OUT(y), IN(x), IN(min), IN(max)))
OPERATOR(Softmax, ARGUMENTS(D(y), D(x), int axis), ARGUMENTS(OUT(y), IN(x)))
OPERATOR(LPNorm, ARGUMENTS(D(y), D(x), int axis, int p, float eps), ARGUMENTS(OUT(y), IN(x)))
OPERATOR(RMSNorm, ARGUMENTS(D(y), D(x), D(w), float epsilon), ARGUMENTS(OUT(y), IN(x), IN(w)))
OPERATOR(AddRMSNorm, ARGUMENTS(D(y), D(a), D(b), D(weight), float epsilon, D(residual_out)),
         ARGUMENTS(OUT(y), IN(a), IN(b), IN(weight), OUT(residual_out)))
OPERATOR(LayerNorm, ARGUMENTS(D(output), D(standardization), D(std), D(input), D(weight), D(bias), float eps),
         ARGUMENTS(OUT(output), OUT(standardization), OUT(std), IN(input), IN(weight), IN(bias)))
OPERATOR(Gemm, ARGUMENTS(D(c), D(a), D(b)), ARGUMENTS(OUT(c), IN(a), IN(b), float alpha, float beta))
OPERATOR(I8Gemm, ARGUMENTS(D(out), D(bias), D(x), D(x_scale), D(weights), D(weights_scale)),
         ARGUMENTS(OUT(out), IN(bias), IN(x), IN(x_scale), IN(weights), IN(weights_scale)))
OPERATOR(Conv, ARGUMENTS(D(y), D(x), D(w), D(bias), void *pads, void *strides, void *dilations, size_t n),
         ARGUMENTS(OUT(y), IN(x), IN(w), IN(bias)))
OPERATOR(RoPE, ARGUMENTS(D(y), D(x), D(pos_ids), D(sin), D(cos), infiniopRoPEAlgo_t algo),
         ARGUMENTS(OUT(y), IN(x), IN(pos_ids), IN(sin), IN(cos)))
OPERATOR(RandomSample, ARGUMENTS(D(result), D(probs)),
         ARGUMENTS(OUT(result), IN(probs), float random_val, float topp, int topk, float temperature))
OPERATOR(Topksoftmax, ARGUMENTS(D(x)), ARGUMENTS(OUT(values), OUT(indices), IN(x), size_t topk, int norm))
OPERATOR(Topkrouter, ARGUMENTS(D(x), D(correction_bias)),
         ARGUMENTS(OUT(values), OUT(indices), IN(x), IN(correction_bias), float routed_scaling_factor, size_t topk))
OPERATOR(DequantizeAWQ, ARGUMENTS(D(out), D(qweight), D(scales), D(zeros)),
         ARGUMENTS(OUT(out), IN(qweight), IN(scales), IN(zeros)))
OPERATOR(Attention, ARGUMENTS(D(out), D(q), D(k), D(v), D(k_cache), D(v_cache), size_t pos),
         ARGUMENTS(OUT(out), IN(q), IN(k), IN(v), OUT(k_cache), OUT(v_cache)))
OPERATOR(PagedCaching, ARGUMENTS(D(k_cache), D(v_cache), D(k), D(v), D(slot_mapping)),
         ARGUMENTS(OUT(k_cache), OUT(v_cache), IN(k), IN(v), IN(slot_mapping)))
OPERATOR(PagedAttention,
         ARGUMENTS(D(out), D(q), D(k_cache), D(v_cache), D(block_tables), D(seq_lens), D(alibi_slopes), float scale),
         ARGUMENTS(OUT(out), IN(q), IN(k_cache), IN(v_cache), IN(block_tables), IN(seq_lens), IN(alibi_slopes)))
OPERATOR(PagedAttentionPrefill,
         ARGUMENTS(D(out), D(q), D(k_cache), D(v_cache), D(block_tables), D(seq_lens), D(cum_seq_lens_q),
                   D(alibi_slopes), float scale),
         ARGUMENTS(OUT(out), IN(q), IN(k_cache), IN(v_cache), IN(block_tables), IN(seq_lens), IN(cum_seq_lens_q),
                   IN(alibi_slopes)))
CREATE_AND_DESTROY(Rearrange, ARGUMENTS(D(dst), D(src)))
infiniStatus_t infiniopRearrange(infiniopRearrangeDescriptor_t desc, OUT(dst), IN(src), void *stream);
