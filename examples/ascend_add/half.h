// IEEE 754 binary16 in software, so that the example needs no accelerator and no compiler extension.
#pragma once

#include <cstdint>
#include <cstring>

inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t fraction = half & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
        const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    const uint32_t bits = exponent == 31 ? sign | 0x7f800000u | (fraction << 13)
                                         : sign | ((exponent + 112u) << 23) | (fraction << 13);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounds once, ties to even.
inline uint16_t float_to_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more: infinity
    if (magnitude < 0x33000001u) return sign;             // at most half of the smallest subnormal
    const uint32_t exponent = magnitude >> 23;
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t dropped = exponent < 113u ? 126u - exponent : 13u;  // bits below the last one that stays
    uint32_t kept = significand >> dropped;
    const uint32_t rest = significand & ((1u << dropped) - 1u);
    const uint32_t tie = 1u << (dropped - 1u);
    if (rest > tie || (rest == tie && (kept & 1u))) ++kept;
    const uint32_t base = exponent < 113u ? 0u : (exponent - 113u) << 10;  // the hidden bit of kept adds one more
    return static_cast<uint16_t>(sign | (base + kept));
}
