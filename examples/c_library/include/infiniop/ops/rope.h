#ifndef INFINIOP_ROPE_H
#define INFINIOP_ROPE_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor *infiniopRoPEDescriptor_t;

/* Which elements are a pair: neighbours (2i, 2i + 1), or those of the halves (i, i + size / 2). */
typedef enum {
    INFINIOP_ROPE_ALGO_GPT_J = 0,
    INFINIOP_ROPE_ALGO_GPT_NEOX = 1,
} infiniopRoPEAlgo_t;

/* Rotates the pairs of each vector: (a cos - b sin, b cos + a sin). y and x: (length, heads, size) or (batch,
 * length, heads, size), sin_table and cos_table: (positions, size / 2), all of one dtype: f16, bf16, f32 or f64.
 * pos_ids: (length), or (batch, length) too where there is a batch, of any integer type; an id outside of the tables
 * is refused when it is run, before anything is written. y may be x. */
__INFINI_C __export infiniStatus_t infiniopCreateRoPEDescriptor(infiniopHandle_t handle,
                                                                infiniopRoPEDescriptor_t *desc_ptr,
                                                                infiniopTensorDescriptor_t y_desc,
                                                                infiniopTensorDescriptor_t x_desc,
                                                                infiniopTensorDescriptor_t pos_ids_desc,
                                                                infiniopTensorDescriptor_t sin_table_desc,
                                                                infiniopTensorDescriptor_t cos_table_desc,
                                                                infiniopRoPEAlgo_t algo);

__INFINI_C __export infiniStatus_t infiniopGetRoPEWorkspaceSize(infiniopRoPEDescriptor_t desc,
                                                                size_t *size);

__INFINI_C __export infiniStatus_t infiniopRoPE(infiniopRoPEDescriptor_t desc,
                                                void *workspace,
                                                size_t workspace_size,
                                                void *y,
                                                const void *x,
                                                const void *pos_ids,
                                                const void *sin_table,
                                                const void *cos_table,
                                                void *stream);

__INFINI_C __export infiniStatus_t infiniopDestroyRoPEDescriptor(infiniopRoPEDescriptor_t desc);

#endif
