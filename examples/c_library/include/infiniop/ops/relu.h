#ifndef INFINIOP_RELU_H
#define INFINIOP_RELU_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopReluDescriptor_t;

/* y = max(x, 0); NaN stays NaN. Tensors of one shape and dtype: f16, bf16, f32 or f64. y may be x. */
__INFINI_C __export infiniStatus_t infiniopCreateReluDescriptor(infiniopHandle_t handle,
                                                                infiniopReluDescriptor_t *desc_ptr,
                                                                infiniopTensorDescriptor_t y_desc,
                                                                infiniopTensorDescriptor_t x_desc);

__INFINI_C __export infiniStatus_t infiniopGetReluWorkspaceSize(infiniopReluDescriptor_t desc,
                                                                size_t *size);

__INFINI_C __export infiniStatus_t infiniopRelu(infiniopReluDescriptor_t desc,
                                                void *workspace,
                                                size_t workspace_size,
                                                void *y,
                                                const void *x,
                                                void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyReluDescriptor(infiniopReluDescriptor_t desc);

#endif
