#ifndef INFINIOP_CAUSAL_SOFTMAX_H
#define INFINIOP_CAUSAL_SOFTMAX_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopCausalSoftmaxDescriptor_t;

/* Softmax over the last dimension of (rows, columns) or (batch, rows, columns), where row i sees the columns up to i
 * + columns - rows; the others become 0, whatever stands in them. rows <= columns. y and x of one shape and dtype:
 * f16, bf16, f32 or f64. y may be x. */
__INFINI_C __export infiniStatus_t infiniopCreateCausalSoftmaxDescriptor(infiniopHandle_t handle,
                                                                         infiniopCausalSoftmaxDescriptor_t *desc_ptr,
                                                                         infiniopTensorDescriptor_t y_desc,
                                                                         infiniopTensorDescriptor_t x_desc);

__INFINI_C __export infiniStatus_t infiniopGetCausalSoftmaxWorkspaceSize(infiniopCausalSoftmaxDescriptor_t desc,
                                                                         size_t *size);

__INFINI_C __export infiniStatus_t infiniopCausalSoftmax(infiniopCausalSoftmaxDescriptor_t desc,
                                                         void *workspace,
                                                         size_t workspace_size,
                                                         void *y,
                                                         const void *x,
                                                         void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyCausalSoftmaxDescriptor(infiniopCausalSoftmaxDescriptor_t desc);

#endif
