/* libinfinirt: the selected device, one for each thread; here there is one device, the processor. */
#include "infinirt.h"

#include "fault.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local infiniDevice_t current_device = INFINI_DEVICE_CPU;
static _Thread_local int current_id = 0;

infiniStatus_t infinirtInit(void) { return INFINI_STATUS_SUCCESS; }

infiniStatus_t infinirtGetAllDeviceCount(int *count_array) {
    if (count_array == NULL) return INFINI_STATUS_NULL_POINTER;
    memset(count_array, 0, INFINI_DEVICE_TYPE_COUNT * sizeof *count_array);
    count_array[INFINI_DEVICE_CPU] = 1;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetDeviceCount(infiniDevice_t device, int *count) {
    if (count == NULL) return INFINI_STATUS_NULL_POINTER;
    if ((unsigned)device >= INFINI_DEVICE_TYPE_COUNT) return INFINI_STATUS_BAD_PARAM;
    *count = device == INFINI_DEVICE_CPU;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id) {
    if (FAULT(device_stays_selected)) current_device = device, current_id = device_id;
    if (device != INFINI_DEVICE_CPU) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
    if (device_id != 0 && !FAULT(any_device_is_accepted)) return INFINI_STATUS_DEVICE_NOT_FOUND;
    current_device = device;
    current_id = device_id;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetDevice(infiniDevice_t *device_ptr, int *device_id_ptr) {
    if (device_ptr == NULL && device_id_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    if (device_ptr != NULL) *device_ptr = current_device;
    if (device_id_ptr != NULL) *device_id_ptr = current_id;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtDeviceSynchronize(void) { return INFINI_STATUS_SUCCESS; }

/* Every call is finished when it returns: a stream is only a name. */
infiniStatus_t infinirtStreamCreate(infinirtStream_t *stream_ptr) {
    if (stream_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    *stream_ptr = malloc(1);
    return *stream_ptr == NULL ? INFINI_STATUS_INTERNAL_ERROR : INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtStreamDestroy(infinirtStream_t stream) {
    free(stream);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtStreamSynchronize(infinirtStream_t stream) {
    (void)stream;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtMalloc(void **p_ptr, size_t size) {
    if (p_ptr == NULL) return INFINI_STATUS_NULL_POINTER;
    *p_ptr = malloc(size);
    return *p_ptr == NULL && size > 0 ? INFINI_STATUS_INTERNAL_ERROR : INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtFree(void *ptr) {
    free(ptr);
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtMemcpy(void *dst, const void *src, size_t size, infinirtMemcpyKind_t kind) {
    if ((unsigned)kind > INFINIRT_MEMCPY_D2D) return INFINI_STATUS_BAD_PARAM;
    if (size == 0) return INFINI_STATUS_SUCCESS;
    if (dst == NULL || src == NULL) return INFINI_STATUS_NULL_POINTER;
    memmove(dst, src, size);
    return INFINI_STATUS_SUCCESS;
}
