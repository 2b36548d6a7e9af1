#ifndef INFINIOP_RANDOM_SAMPLE_H
#define INFINIOP_RANDOM_SAMPLE_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopRandomSampleDescriptor_t;

/* Draws the index of one of the logits. They are sorted, the largest first (equal ones by index), and their softmax
 * at the given temperature is added up; the result is the first index at which the sum reaches random_val *
 * min(topp, sum of the first topk). topk <= 1, topp 0, or temperature 0 give the index of the largest. result: 0-d,
 * any integer type that can hold the index; logits: (n) with n >= 1, f16, bf16, f32 or f64. */
__INFINI_C __export infiniStatus_t infiniopCreateRandomSampleDescriptor(infiniopHandle_t handle,
                                                                        infiniopRandomSampleDescriptor_t *desc_ptr,
                                                                        infiniopTensorDescriptor_t result_desc,
                                                                        infiniopTensorDescriptor_t logits_desc);

__INFINI_C __export infiniStatus_t infiniopGetRandomSampleWorkspaceSize(infiniopRandomSampleDescriptor_t desc,
                                                                        size_t *size);

__INFINI_C __export infiniStatus_t infiniopRandomSample(infiniopRandomSampleDescriptor_t desc,
                                                        void *workspace,
                                                        size_t workspace_size,
                                                        void *result,
                                                        const void *logits,
                                                        float random_val,
                                                        float topp,
                                                        int topk,
                                                        float temperature,
                                                        void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyRandomSampleDescriptor(infiniopRandomSampleDescriptor_t desc);

#endif
