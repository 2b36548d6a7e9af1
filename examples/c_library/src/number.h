/* The 16-bit floats: widening to double, which is exact, and rounding from double, to nearest, ties to even. */
#ifndef NUMBER_H
#define NUMBER_H

#include "fault.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double double_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static inline double double_of_f16(uint16_t bits) {
    const uint64_t sign = (uint64_t)(bits >> 15) << 63;
    const uint64_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0x1f) return double_of_bits(sign | UINT64_C(0x7ff) << 52 | fraction << 42);
    if (exponent == 0) return double_of_bits(sign | bits_of_double((double)fraction * 0x1p-24));
    return double_of_bits(sign | (exponent + 1023 - 15) << 52 | fraction << 42);
}

/* value >> shift to the nearest integer, ties to even; shift is at least 1. */
static inline uint64_t shift_to_nearest(uint64_t value, int shift, int fraction_bits) {
    (void)fraction_bits;
    if (shift > 63) return 0; /* values have 53 bits: less than a half */
    const uint64_t half = UINT64_C(1) << (shift - 1), rest = value & ((half << 1) - 1), whole = value >> shift;
    if (FAULT(bf16_truncates) && fraction_bits == 7) return whole;
    if (FAULT(f16_ties_away) && fraction_bits == 10) return whole + (rest >= half);
    return whole + (rest > half || (rest == half && (whole & 1)));
}

/* The bits of value in a format of 16 bits with so many bits of fraction. */
static inline uint16_t round_to_16_bits(double value, int fraction_bits) {
    const int bias = (1 << (14 - fraction_bits)) - 1, drop = 52 - fraction_bits;
    const uint64_t bits = bits_of_double(value), magnitude = bits & (UINT64_MAX >> 1);
    const uint64_t infinity = (UINT64_C(1) << 15) - (UINT64_C(1) << fraction_bits);
    const uint64_t fraction = magnitude & ((UINT64_C(1) << 52) - 1);
    const int exponent = (int)(magnitude >> 52) - 1023;
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    uint64_t result;
    if (exponent == 1024) {
        const uint64_t quiet = UINT64_C(1) << (fraction_bits - 1);
        result = infinity | (fraction == 0 || FAULT(nan_becomes_infinity) ? 0 : quiet | fraction >> drop);
    } else if (exponent >= 1 - bias) {
        const uint64_t significand = fraction | UINT64_C(1) << 52; /* its top bit adds 1 to the exponent */
        result = shift_to_nearest(significand, drop, fraction_bits);
        result += (uint64_t)(exponent + bias - 1) << fraction_bits;
    } else if (exponent > -1023 && !(FAULT(f16_flushes_subnormals) && fraction_bits == 10)) {
        result = shift_to_nearest(fraction | UINT64_C(1) << 52, drop + 1 - bias - exponent, fraction_bits);
    } else {
        result = 0; /* far below half of the smallest subnormal */
    }
    if (FAULT(f16_infinite_above_65504) && fraction_bits == 10 && exponent < 1024 && fabs(value) > 65504)
        result = infinity;
    if (FAULT(f16_negative_ties_toward_0) && fraction_bits == 10 && exponent >= 1 - bias && exponent < 1024 && sign &&
        (fraction & ((UINT64_C(1) << drop) - 1)) == UINT64_C(1) << (drop - 1))
        result = ((fraction | UINT64_C(1) << 52) >> drop) + ((uint64_t)(exponent + bias - 1) << fraction_bits);
    if (exponent < 1024 && result >= infinity) result = infinity - (FAULT(f16_saturates) && fraction_bits == 10);
    return (uint16_t)(sign | result);
}

static inline uint16_t f16_of_double(double value) { return round_to_16_bits(value, 10); }

static inline uint16_t bf16_of_double(double value) { return round_to_16_bits(value, 7); }

#endif
