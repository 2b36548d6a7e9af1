#ifndef INFINIOP_CONV_H
#define INFINIOP_CONV_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopConvDescriptor_t;

/* Cross-correlation of x (batch, in, ...) with w (out, in, ...) into y (batch, out, ...), with n = 1, 2 or 3
 * dimensions behind the channels, plus bias (out), which may be NULL. pads: n size_t, zeros on both sides; strides:
 * n ptrdiff_t, at least 1; dilations: n size_t, at least 1. One dtype: f16, bf16, f32 or f64. y must not overlap an
 * input. */
__INFINI_C __export infiniStatus_t infiniopCreateConvDescriptor(infiniopHandle_t handle,
                                                                infiniopConvDescriptor_t *desc_ptr,
                                                                infiniopTensorDescriptor_t y_desc,
                                                                infiniopTensorDescriptor_t x_desc,
                                                                infiniopTensorDescriptor_t w_desc,
                                                                infiniopTensorDescriptor_t b_desc,
                                                                void *pads,
                                                                void *strides,
                                                                void *dilations,
                                                                size_t n);

__INFINI_C __export infiniStatus_t infiniopGetConvWorkspaceSize(infiniopConvDescriptor_t desc,
                                                                size_t *size);

__INFINI_C __export infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc,
                                                void *workspace,
                                                size_t workspace_size,
                                                void *y,
                                                const void *x,
                                                const void *w,
                                                const void *bias,
                                                void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyConvDescriptor(infiniopConvDescriptor_t desc);

#endif
