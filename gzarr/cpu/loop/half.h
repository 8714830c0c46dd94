/* Numbers of 16 bits as numbers of 32 and 64. */
#ifndef GZARR_HALF_H
#define GZARR_HALF_H

#include <stdint.h>
#include <string.h>

typedef uint16_t half;

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_of(half value) {
    const uint32_t exponent_mask = 0x7C00u << 13, magnitude = (uint32_t)(value & 0x7FFF) << 13;
    const uint32_t exponent = magnitude & exponent_mask, sign = (uint32_t)(value & 0x8000) << 16;
    uint32_t bits = magnitude + (112u << 23);
    if (exponent == exponent_mask) {
        bits += 112u << 23; /* infinite, or no number */
    } else if (!exponent) {
        const float small = float_of_bits(bits + (1u << 23)) - float_of_bits(113u << 23);
        memcpy(&bits, &small, sizeof bits);
    }
    return float_of_bits(bits | sign);
}

/* As NumPy, which keeps all bits of what is no number, also the one that a conversion by the processor would set. */
static inline double double_of(half value) {
    double wide = (double)float_of(value);
    if ((value & 0x7FFF) > 0x7C00) {
        const uint64_t bits = (uint64_t)(value & 0x8000) << 48 | UINT64_C(0x7FF) << 52 | (uint64_t)(value & 0x3FF) << 42;
        memcpy(&wide, &bits, sizeof wide);
    }
    return wide;
}

static inline half half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits & 0x80000000u;
    uint32_t result;
    bits ^= sign;
    if (bits > 0x7F800000u) { /* no number: as NumPy, its payload is kept, and not all of it may be lost */
        result = 0x7C00u + ((bits & 0x7FFFFFu) >> 13);
        result += result == 0x7C00u;
    } else if (bits >= 0x47800000u) {
        result = 0x7C00u;
    } else if (bits < 0x38800000u) { /* the sum rounds to the last bit that is kept */
        const float sum = float_of_bits(bits) + 0.5f;
        memcpy(&result, &sum, sizeof result);
        result -= 126u << 23;
    } else {
        result = (bits - (112u << 23) + 0xFFFu + (bits >> 13 & 1)) >> 13;
    }
    return (half)(result | sign >> 16);
}

#endif
