/* A tensor descriptor: sizes, strides in elements (NULL: dense, row-major) and element type; it may be destroyed as
 * soon as the operator descriptors that were made from it exist. */
#ifndef INFINIOP_TENSOR_DESCRIPTOR_H
#define INFINIOP_TENSOR_DESCRIPTOR_H

#include "../infinicore.h"

struct InfiniopTensorDescriptor;
typedef struct InfiniopTensorDescriptor *infiniopTensorDescriptor_t;

__INFINI_C __export infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr,
                                                                  size_t ndim,
                                                                  const size_t *shape,
                                                                  const ptrdiff_t *strides,
                                                                  infiniDtype_t dtype);
__INFINI_C __export infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);

#endif
