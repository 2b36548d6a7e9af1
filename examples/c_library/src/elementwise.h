/* Operators whose elements depend on the elements at the same index only. */
#ifndef ELEMENTWISE_H
#define ELEMENTWISE_H

#include "operator.h"

typedef void FloatKernel(size_t n, const double *const *in, double *out);
typedef void IntegerKernel(size_t n, infiniDtype_t dtype, const uint64_t *const *in, uint64_t *out);

/* One output, then the inputs, all of one shape and dtype; the output may be any input. */
infiniStatus_t create_elementwise(infiniopHandle_t handle, void *desc_ptr, Operator operator, size_t count,
                                  const infiniopTensorDescriptor_t *tensors, bool (*accepts)(infiniDtype_t));

/* data: the output, then the inputs. `integers` is NULL where the operator takes floats only. */
infiniStatus_t run_elementwise(const struct InfiniopDescriptor *desc, Operator operator, const void *workspace,
                               size_t workspace_size, void *out, const void *const *data, FloatKernel *floats,
                               IntegerKernel *integers);

#endif
