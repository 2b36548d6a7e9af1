#include "tiny.h"
infiniStatus_t infinirtSetDevice(infiniDevice_t device, int id) {
    return device == INFINI_DEVICE_CPU && id == 0 ? INFINI_STATUS_SUCCESS : INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
}
infiniStatus_t both(void) { return INFINI_STATUS_BAD_PARAM; }
