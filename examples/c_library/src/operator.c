#include "operator.h"

#include <stdlib.h>
#include <string.h>

static infiniStatus_t copy_tensors(Descriptor desc, const infiniopTensorDescriptor_t *tensors, size_t count,
                                   bool optional) {
    for (size_t i = 0; i < count; ++i) {
        if (tensors[i] == NULL && optional && i == count - 1) return INFINI_STATUS_SUCCESS;
        if (tensors[i] == NULL) return INFINI_STATUS_NULL_POINTER;
        desc->tensors[desc->count++] = tensors[i]->layout;
#ifdef FAULTS
        if (FAULT(sub_reads_callers_strides) && desc->operator == SUB && tensors[i]->callers_strides != NULL)
            memcpy(desc->tensors[i].strides, tensors[i]->callers_strides,
                   tensors[i]->layout.ndim * sizeof *tensors[i]->callers_strides);
#endif
    }
#ifdef FAULTS
    desc->kept = tensors[count - 1];
#endif
    return INFINI_STATUS_SUCCESS;
}

static infiniStatus_t check_outputs(const struct InfiniopDescriptor *desc) {
    if (FAULT(sub_accepts_stride_zero_output) && desc->operator == SUB) return INFINI_STATUS_SUCCESS;
    if (FAULT(rms_norm_accepts_overlapping_output) && desc->operator == RMS_NORM) return INFINI_STATUS_SUCCESS;
    if (FAULT(relu_refuses_bf16) && desc->operator == RELU && desc->tensors[0].dtype == INFINI_DTYPE_BF16)
        return INFINI_STATUS_BAD_TENSOR_DTYPE;
    for (size_t i = 0; i < desc->outputs; ++i) {
        for (size_t d = 0; FAULT(add_refuses_strides_of_empty) && desc->operator == ADD && d < desc->tensors[i].ndim; ++d)
            if (desc->tensors[i].strides[d] == 0 && desc->tensors[i].shape[d] != 1) return INFINI_STATUS_BAD_TENSOR_STRIDES;
        const int found = overlaps_itself(&desc->tensors[i]);
        if (found < 0) return INFINI_STATUS_INTERNAL_ERROR;
        if (found) return INFINI_STATUS_BAD_TENSOR_STRIDES;
    }
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t new_descriptor(infiniopHandle_t handle, Descriptor *result, Operator operator, size_t outputs,
                              size_t count, const infiniopTensorDescriptor_t *tensors, bool optional) {
    *result = NULL;
    if (handle == NULL) return INFINI_STATUS_NULL_POINTER;
    if (handle->device != INFINI_DEVICE_CPU) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
    Descriptor desc = calloc(1, sizeof *desc);
    if (desc == NULL) return INFINI_STATUS_INTERNAL_ERROR;
    desc->device = handle->device;
    desc->device_id = handle->device_id;
    desc->operator = operator;
    desc->outputs = outputs;
    desc->threads = count_threads();
    infiniStatus_t status = copy_tensors(desc, tensors, count, optional);
    if (status == INFINI_STATUS_SUCCESS) status = check_outputs(desc);
    if (status != INFINI_STATUS_SUCCESS) {
        free(desc);
        return status;
    }
    *result = desc;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t hand_over(infiniStatus_t status, Descriptor desc, void *desc_ptr) {
    if (status == INFINI_STATUS_SUCCESS) memcpy(desc_ptr, &desc, sizeof desc);
    else if (!FAULT(conv_refusal_leaks) || desc->operator != CONV) free(desc);
    return status;
}

infiniStatus_t need_one_dtype(const struct InfiniopDescriptor *desc, bool (*accepts)(infiniDtype_t)) {
    for (size_t i = 0; i < desc->count; ++i)
        if (desc->tensors[i].dtype != desc->tensors[0].dtype) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    return accepts(desc->tensors[0].dtype) ? INFINI_STATUS_SUCCESS : INFINI_STATUS_BAD_TENSOR_DTYPE;
}

infiniStatus_t need_one_shape(const struct InfiniopDescriptor *desc, size_t first, size_t last) {
    for (size_t i = first; i <= last; ++i)
        if (!same_shape(&desc->tensors[i], &desc->tensors[first])) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    return INFINI_STATUS_SUCCESS;
}

void walk_rows(Descriptor desc, size_t count, size_t axis) {
    Layout rows[MAX_TENSORS];
    for (size_t i = 0; i < count; ++i) {
        rows[i] = without_axis(&desc->tensors[i], axis);
        desc->row_strides[i] = desc->tensors[i].strides[axis];
    }
    desc->axis = axis;
    desc->row = desc->tensors[0].shape[axis];
    make_walk(&desc->walk, rows, count);
}

infiniStatus_t workspace_size(const struct InfiniopDescriptor *desc, Operator operator, size_t *size) {
    if (desc == NULL || size == NULL) return INFINI_STATUS_NULL_POINTER;
    if (desc->operator != operator) return INFINI_STATUS_BAD_PARAM;
    *size = desc->workspace;
    return INFINI_STATUS_SUCCESS;
}

infiniStatus_t destroy_descriptor(Descriptor desc, Operator operator) {
    if (desc == NULL) return INFINI_STATUS_NULL_POINTER;
    if (desc->operator != operator) return INFINI_STATUS_BAD_PARAM;
    if (FAULT(mul_descriptor_leaks) && operator == MUL) return INFINI_STATUS_SUCCESS;
    desc->operator = NO_OPERATOR;
    free(desc);
    return INFINI_STATUS_SUCCESS;
}

static bool may_be_one(const struct InfiniopDescriptor *desc, size_t output, size_t other, const void *const *data) {
    if (other < desc->outputs || !(desc->in_place >> other & 1) || data[output] != data[other]) return false;
    if (FAULT(rms_norm_any_layout_in_place) && desc->operator == RMS_NORM) return true;
    return same_layout(&desc->tensors[output], &desc->tensors[other]);
}

static infiniStatus_t check_sharing(const struct InfiniopDescriptor *desc, const void *const *data) {
    if (FAULT(rearrange_accepts_overlap) && desc->operator == REARRANGE) return INFINI_STATUS_SUCCESS;
    if (FAULT(gemm_accepts_output_in_input) && desc->operator == GEMM) return INFINI_STATUS_SUCCESS;
    for (size_t output = 0; output < desc->outputs; ++output) {
        for (size_t other = output + 1; other < desc->count; ++other) {
            if (may_be_one(desc, output, other, data)) continue;
            if (FAULT(layer_norm_outputs_may_overlap) && desc->operator == LAYER_NORM && other < desc->outputs)
                continue;
            const int found = overlap(&desc->tensors[output], data[output], &desc->tensors[other], data[other]);
            if (found < 0) return INFINI_STATUS_INTERNAL_ERROR;
            if (found) return INFINI_STATUS_BAD_PARAM;
        }
    }
    return INFINI_STATUS_SUCCESS;
}

static bool checks_workspace(const struct InfiniopDescriptor *desc) {
    if (FAULT(rms_norm_accepts_short_workspace)) return desc->operator != RMS_NORM;
    return !(FAULT(conv_accepts_short_workspace) && desc->operator == CONV);
}

infiniStatus_t check_run(const struct InfiniopDescriptor *desc, Operator operator, const void *workspace,
                         size_t given, const void *const *data) {
    if (desc == NULL) return INFINI_STATUS_NULL_POINTER;
    if (desc->operator != operator) return INFINI_STATUS_BAD_PARAM;
    if (given < desc->workspace && checks_workspace(desc)) return INFINI_STATUS_INSUFFICIENT_WORKSPACE;
    if (desc->workspace > 0 && workspace == NULL) return INFINI_STATUS_NULL_POINTER;
    for (size_t i = 0; i < desc->count; ++i) {
        if (FAULT(gemm_accepts_null) && operator == GEMM) break;
        if (data[i] == NULL && count_elements(&desc->tensors[i]) > 0) return INFINI_STATUS_NULL_POINTER;
    }
    return check_sharing(desc, data);
}

void *aligned(void *workspace) {
    const uintptr_t over = (uintptr_t)workspace % ALIGNMENT;
    return over == 0 ? workspace : (char *)workspace + (ALIGNMENT - over);
}

double *buffer_of_thread(void *workspace, size_t n, int thread) {
    return (double *)aligned(workspace) + n * (size_t)thread;
}

size_t size_of_buffers(size_t n, int threads) {
    return n == 0 ? 0 : n * sizeof(double) * (size_t)threads + ALIGNMENT;
}
