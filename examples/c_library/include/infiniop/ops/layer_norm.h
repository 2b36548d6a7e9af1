#ifndef INFINIOP_LAYER_NORM_H
#define INFINIOP_LAYER_NORM_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopLayerNormDescriptor_t;

/* standardization = (input - mean) / std, std = sqrt(variance + eps), output = standardization * weight + bias, over
 * the last dimension. output, standardization and input have one shape, std has it without its last size, weight and
 * bias have the last size. bias may be NULL. One dtype: f16, bf16, f32 or f64. One of output and standardization may
 * be input. */
__INFINI_C __export infiniStatus_t infiniopCreateLayerNormDescriptor(infiniopHandle_t handle,
                                                                     infiniopLayerNormDescriptor_t *desc_ptr,
                                                                     infiniopTensorDescriptor_t output_desc,
                                                                     infiniopTensorDescriptor_t input_standardization_desc,
                                                                     infiniopTensorDescriptor_t input_std_deviation_desc,
                                                                     infiniopTensorDescriptor_t input_desc,
                                                                     infiniopTensorDescriptor_t weight_desc,
                                                                     infiniopTensorDescriptor_t bias_desc,
                                                                     float eps);

__INFINI_C __export infiniStatus_t infiniopGetLayerNormWorkspaceSize(infiniopLayerNormDescriptor_t desc,
                                                                     size_t *size);

__INFINI_C __export infiniStatus_t infiniopLayerNorm(infiniopLayerNormDescriptor_t desc,
                                                     void *workspace,
                                                     size_t workspace_size,
                                                     void *output,
                                                     void *input_standardization,
                                                     void *input_std_deviation,
                                                     const void *input,
                                                     const void *weight,
                                                     const void *bias,
                                                     void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyLayerNormDescriptor(infiniopLayerNormDescriptor_t desc);

#endif
