#ifndef INFINIOP_MUL_H
#define INFINIOP_MUL_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopMulDescriptor_t;

/* c = a * b, element by element. Tensors of one shape and dtype: f16, bf16, f32 or f64, or an integer, which wraps
 * around. c may be a or b. */
__INFINI_C __export infiniStatus_t infiniopCreateMulDescriptor(infiniopHandle_t handle,
                                                               infiniopMulDescriptor_t *desc_ptr,
                                                               infiniopTensorDescriptor_t c_desc,
                                                               infiniopTensorDescriptor_t a_desc,
                                                               infiniopTensorDescriptor_t b_desc);

__INFINI_C __export infiniStatus_t infiniopGetMulWorkspaceSize(infiniopMulDescriptor_t desc,
                                                               size_t *size);

__INFINI_C __export infiniStatus_t infiniopMul(infiniopMulDescriptor_t desc,
                                               void *workspace,
                                               size_t workspace_size,
                                               void *c,
                                               const void *a,
                                               const void *b,
                                               void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyMulDescriptor(infiniopMulDescriptor_t desc);

#endif
