/* What all operators share: their descriptor, and the checks when one is created and when it is run. */
#ifndef OPERATOR_H
#define OPERATOR_H

#include "fault.h"
#include "infiniop/operator_descriptor.h"
#include "layout.h"
#include "parallel.h"
#include "row.h"

enum { MAX_SPATIAL = 3 };

typedef enum {
    NO_OPERATOR,
    ADD,
    SUB,
    MUL,
    CLIP,
    RELU,
    GELU,
    SILU,
    SIGMOID,
    TANH,
    SWIGLU,
    ZEROS,
    ONES,
    GEMM,
    RMS_NORM,
    LAYER_NORM,
    SOFTMAX,
    CAUSAL_SOFTMAX,
    ROPE,
    REARRANGE,
    RANDOM_SAMPLE,
    CONV,
} Operator;

struct InfiniopHandle {
    infiniDevice_t device;
    int device_id;
};

struct InfiniopTensorDescriptor {
    Layout layout;
#ifdef FAULTS
    const ptrdiff_t *callers_strides;
#endif
};

typedef struct {
    size_t pads[MAX_SPATIAL], strides[MAX_SPATIAL], dilations[MAX_SPATIAL];
    /* Sizes, 1 for dimensions that are not there. */
    size_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL];
} Window;

struct InfiniopDescriptor {
    infiniDevice_t device;
    int device_id;
    Operator operator;
    int threads;
    size_t workspace;
    size_t count, outputs; /* tensors; the outputs come first */
    Layout tensors[MAX_TENSORS];
    unsigned in_place; /* bit i: an output may be tensor i, where they have one layout */
    Walk walk;         /* over elements, or over rows where a row is worked on as a whole */
    size_t axis, row;  /* the dimension of the rows and its size */
    ptrdiff_t row_strides[MAX_TENSORS];
    double eps;
    int algo;
    Window window;
#ifdef FAULTS
    infiniopTensorDescriptor_t kept;
#endif
};

typedef struct InfiniopDescriptor *Descriptor;

/* A descriptor with copies of the tensors, the outputs first; the last may be left out where `optional` says so.
 * All have one of the dtypes that `accepts` knows unless it is NULL. Refuses outputs with two elements at one place. */
infiniStatus_t new_descriptor(infiniopHandle_t handle, Descriptor *result, Operator operator, size_t outputs,
                              size_t count, const infiniopTensorDescriptor_t *tensors, bool optional);
/* `status` itself; a descriptor that is refused is freed, one that is accepted given to the caller. */
infiniStatus_t hand_over(infiniStatus_t status, Descriptor desc, void *desc_ptr);

infiniStatus_t need_one_dtype(const struct InfiniopDescriptor *desc, bool (*accepts)(infiniDtype_t));
infiniStatus_t need_one_shape(const struct InfiniopDescriptor *desc, size_t first, size_t last);
/* Walks over the rows of the first `count` tensors along `axis`. */
void walk_rows(Descriptor desc, size_t count, size_t axis);

infiniStatus_t workspace_size(const struct InfiniopDescriptor *desc, Operator operator, size_t *size);
infiniStatus_t destroy_descriptor(Descriptor desc, Operator operator);

/* Refuses another operator's descriptor, a short workspace, missing data, and outputs that share memory with another
 * tensor in a way that is not allowed. */
infiniStatus_t check_run(const struct InfiniopDescriptor *desc, Operator operator, const void *workspace,
                         size_t given, const void *const *data);

/* The first address of a workspace that is aligned for any type; workspaces are ALIGNMENT bytes larger for it. */
enum { ALIGNMENT = 64 };
void *aligned(void *workspace);

/* Part of a thread in a workspace that gives each thread a buffer of n doubles. */
double *buffer_of_thread(void *workspace, size_t n, int thread);
size_t size_of_buffers(size_t n, int threads);

#define TRY(call)                                              \
    do {                                                       \
        const infiniStatus_t status_ = (call);                 \
        if (status_ != INFINI_STATUS_SUCCESS) return status_;  \
    } while (0)

#define DESTROY_FUNCTION(Name, OPERATOR)                                                       \
    infiniStatus_t infiniopDestroy##Name##Descriptor(infiniop##Name##Descriptor_t desc) {      \
        return destroy_descriptor(desc, OPERATOR);                                             \
    }

#define COMMON_FUNCTIONS(Name, OPERATOR)                                                                 \
    infiniStatus_t infiniopGet##Name##WorkspaceSize(infiniop##Name##Descriptor_t desc, size_t *size) {   \
        return workspace_size(desc, OPERATOR, size);                                                     \
    }                                                                                                    \
    DESTROY_FUNCTION(Name, OPERATOR)

#endif
