#ifndef INFINIOP_GEMM_H
#define INFINIOP_GEMM_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopGemmDescriptor_t;

/* c = alpha * a @ b + beta * c for c (M, N), a (M, K), b (K, N), or each with a batch in front. One dtype: f16,
 * bf16, f32 or f64. With alpha 0 neither a nor b is read, with beta 0 c is not. c must not overlap a or b. */
__INFINI_C __export infiniStatus_t infiniopCreateGemmDescriptor(infiniopHandle_t handle,
                                                                infiniopGemmDescriptor_t *desc_ptr,
                                                                infiniopTensorDescriptor_t c_desc,
                                                                infiniopTensorDescriptor_t a_desc,
                                                                infiniopTensorDescriptor_t b_desc);

__INFINI_C __export infiniStatus_t infiniopGetGemmWorkspaceSize(infiniopGemmDescriptor_t desc,
                                                                size_t *size);

__INFINI_C __export infiniStatus_t infiniopGemm(infiniopGemmDescriptor_t desc,
                                                void *workspace,
                                                size_t workspace_size,
                                                void *c,
                                                const void *a,
                                                const void *b,
                                                float alpha,
                                                float beta,
                                                void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyGemmDescriptor(infiniopGemmDescriptor_t desc);

#endif
