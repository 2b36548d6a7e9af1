/* Rows of elements at any stride and address, to and from buffers of one type. */
#ifndef ROW_H
#define ROW_H

#include "infinicore.h"

#include <stddef.h>
#include <stdint.h>

/* base + offset elements of dtype */
const void *place(const void *base, infiniDtype_t dtype, ptrdiff_t offset);
void *place_to_write(void *base, infiniDtype_t dtype, ptrdiff_t offset);

void load_row(infiniDtype_t dtype, const void *from, ptrdiff_t stride, size_t n, double *to);
/* Rounds once. */
void store_row(infiniDtype_t dtype, void *to, ptrdiff_t stride, size_t n, const double *from);

/* Integers, sign-extended to 64 bits and cut off to their size. */
void load_integers(infiniDtype_t dtype, const void *from, ptrdiff_t stride, size_t n, uint64_t *to);
void store_integers(infiniDtype_t dtype, void *to, ptrdiff_t stride, size_t n, const uint64_t *from);

#endif
