#ifndef TINY_H
#define TINY_H
#include <stddef.h>
typedef enum {
    INFINI_STATUS_SUCCESS = 0,
    INFINI_STATUS_NOT_IMPLEMENTED = 2,
    INFINI_STATUS_BAD_PARAM = 3,
    INFINI_STATUS_NULL_POINTER = 4,
    INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED = 5,
    INFINI_STATUS_BAD_TENSOR_DTYPE = 10,
    INFINI_STATUS_BAD_TENSOR_SHAPE = 11,
    INFINI_STATUS_INSUFFICIENT_WORKSPACE = 13,
    INFINI_STATUS_OF_THIS_LIBRARY = 77,
} infiniStatus_t;
typedef enum { INFINI_DEVICE_CPU = 0, INFINI_DEVICE_NVIDIA = 1 } infiniDevice_t;
typedef enum { INFINI_DTYPE_F32 = 13, INFINI_DTYPE_BF16 = 19 } infiniDtype_t;
typedef struct InfiniopHandle *infiniopHandle_t;
typedef struct InfiniopTensorDescriptor *infiniopTensorDescriptor_t;
typedef struct InfiniopDescriptor *infiniopTwiceDescriptor_t;
infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id);
infiniStatus_t both(void);
int aliveNow(void);
infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr);
infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle);
infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype);
infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);
infiniStatus_t infiniopCreateTwiceDescriptor(infiniopHandle_t handle, infiniopTwiceDescriptor_t *desc_ptr,
                                             infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x);
infiniStatus_t infiniopGetTwiceWorkspaceSize(infiniopTwiceDescriptor_t desc, size_t *size);
infiniStatus_t infiniopDestroyTwiceDescriptor(infiniopTwiceDescriptor_t desc);
infiniStatus_t infiniopTwice(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopThrice(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopOverrun(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopScratch(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopMutate(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopLacking(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
infiniStatus_t infiniopAbsent(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y, const void *x, void *stream);
#endif
