#ifndef INFINIOP_SILU_H
#define INFINIOP_SILU_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopSiluDescriptor_t;

/* y = x / (1 + exp(-x)). Tensors of one shape and dtype: f16, bf16, f32 or f64. y may be x. */
__INFINI_C __export infiniStatus_t infiniopCreateSiluDescriptor(infiniopHandle_t handle,
                                                                infiniopSiluDescriptor_t *desc_ptr,
                                                                infiniopTensorDescriptor_t y_desc,
                                                                infiniopTensorDescriptor_t x_desc);

__INFINI_C __export infiniStatus_t infiniopGetSiluWorkspaceSize(infiniopSiluDescriptor_t desc,
                                                                size_t *size);

__INFINI_C __export infiniStatus_t infiniopSilu(infiniopSiluDescriptor_t desc,
                                                void *workspace,
                                                size_t workspace_size,
                                                void *y,
                                                const void *x,
                                                void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroySiluDescriptor(infiniopSiluDescriptor_t desc);

#endif
