/* Handles and tensor descriptors. */
#include "infinirt.h"
#include "operator.h"

#include <stdlib.h>
#include <string.h>

infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr) {
    if (handle_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    infiniopHandle_t handle = malloc(sizeof *handle);
    if (handle == NULL) return INFINI_STATUS_INTERNAL_ERROR;
    const infiniStatus_t status = infinirtGetDevice(&handle->device, &handle->device_id);
    if (status != INFINI_STATUS_SUCCESS) {
        free(handle);
        return status;
    }
    *handle_ptr = handle;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle) {
    if (handle == NULL) return INFINI_STATUS_NULL_POINTER;
    free(handle);
    return INFINI_STATUS_SUCCESS;
}

/* Whether the tensor has a size in bytes that an address can reach, empty ones included: their strides are kept. */
static bool is_countable(size_t ndim, const size_t *shape, size_t element) {
    size_t bytes = element;
    for (size_t d = 0; d < ndim; ++d) {
        const size_t size = shape[d] == 0 ? 1 : shape[d];
        if (size > (size_t)PTRDIFF_MAX / bytes) return false;
        bytes *= size;
    }
    return true;
}

/* Whether every element has an offset in bytes. */
static bool is_reachable(const Layout *layout) {
    size_t reach = size_of_dtype(layout->dtype);
    for (size_t d = 0; d < layout->ndim; ++d) {
        if (layout->shape[d] < 2 || layout->strides[d] == 0) continue;
        const size_t stride = layout->strides[d] < 0 ? 0 - (size_t)layout->strides[d] : (size_t)layout->strides[d];
        const size_t most = ((size_t)PTRDIFF_MAX - reach) / size_of_dtype(layout->dtype);
        if (stride > most / (layout->shape[d] - 1)) return false;
        reach += stride * (layout->shape[d] - 1) * size_of_dtype(layout->dtype);
    }
    return true;
}

infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype) {
    if (desc_ptr == NULL || (shape == NULL && ndim > 0)) return INFINI_STATUS_NULL_POINTER;
    if (size_of_dtype(dtype) == 0) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    if (ndim > MAX_NDIM || !is_countable(ndim, shape, size_of_dtype(dtype))) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    Layout layout = {.dtype = dtype, .ndim = ndim};
    if (ndim > 0) memcpy(layout.shape, shape, ndim * sizeof *shape);
    if (strides == NULL) make_dense(&layout);
    else if (ndim > 0) memcpy(layout.strides, strides, ndim * sizeof *strides);
    if (!is_reachable(&layout)) return INFINI_STATUS_BAD_TENSOR_STRIDES;

    infiniopTensorDescriptor_t desc = malloc(sizeof *desc);
    if (desc == NULL) return INFINI_STATUS_INTERNAL_ERROR;
    desc->layout = layout;
#ifdef FAULTS
    desc->callers_strides = strides;
#endif
    *desc_ptr = desc;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc) {
    if (desc == NULL) return INFINI_STATUS_NULL_POINTER;
    if (FAULT(add_keeps_tensor_descriptor)) {
        volatile ptrdiff_t *strides = desc->layout.strides; /* what is freed next is not optimised away */
        for (size_t d = 0; d < MAX_NDIM; ++d) strides[d] = 0;
    }
    free(desc);
    return INFINI_STATUS_SUCCESS;
}
