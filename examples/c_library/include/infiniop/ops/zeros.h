#ifndef INFINIOP_ZEROS_H
#define INFINIOP_ZEROS_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopZerosDescriptor_t;

/* y = 0. x gives the shape and dtype, its elements are not read. Any dtype that is not complex. y may be x. */
__INFINI_C __export infiniStatus_t infiniopCreateZerosDescriptor(infiniopHandle_t handle,
                                                                 infiniopZerosDescriptor_t *desc_ptr,
                                                                 infiniopTensorDescriptor_t y_desc,
                                                                 infiniopTensorDescriptor_t x_desc);

__INFINI_C __export infiniStatus_t infiniopGetZerosWorkspaceSize(infiniopZerosDescriptor_t desc,
                                                                 size_t *size);

__INFINI_C __export infiniStatus_t infiniopZeros(infiniopZerosDescriptor_t desc,
                                                 void *workspace,
                                                 size_t workspace_size,
                                                 void *y,
                                                 const void *x,
                                                 void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyZerosDescriptor(infiniopZerosDescriptor_t desc);

#endif
