#ifndef INFINIOP_ADD_H
#define INFINIOP_ADD_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopAddDescriptor_t;

/* c = a + b, element by element. Tensors of one shape and dtype: f16, bf16, f32 or f64, or an integer, which wraps
 * around. c may be a or b. */
__INFINI_C __export infiniStatus_t infiniopCreateAddDescriptor(infiniopHandle_t handle,
                                                               infiniopAddDescriptor_t *desc_ptr,
                                                               infiniopTensorDescriptor_t c_desc,
                                                               infiniopTensorDescriptor_t a_desc,
                                                               infiniopTensorDescriptor_t b_desc);

__INFINI_C __export infiniStatus_t infiniopGetAddWorkspaceSize(infiniopAddDescriptor_t desc,
                                                               size_t *size);

__INFINI_C __export infiniStatus_t infiniopAdd(infiniopAddDescriptor_t desc,
                                               void *workspace,
                                               size_t workspace_size,
                                               void *c,
                                               const void *a,
                                               const void *b,
                                               void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyAddDescriptor(infiniopAddDescriptor_t desc);

#endif
