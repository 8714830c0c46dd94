// Arithmetic and casts of floats with the host's bits: subnormal numbers are preserved, and NaNs keep their bits.
//
// CuPy compiles with -ftz=true behind all other options, so every 4-byte float operation of the compiler flushes
// subnormal numbers to zero. Therefore the instructions are written here, without .ftz. GPUs have a single 4-byte NaN;
// the rule here is that of SSE: the result is the first operand that is a NaN, made quiet. The NaN of an invalid
// operation is the host's, which the caller passes.
#pragma once
#include "common.cuh"

template <typename Float> struct Layout;
template <> struct Layout<float> {
    typedef u32 Bits;
    static constexpr u32 infinity = 0x7f800000u, quiet = 0x00400000u;
    static constexpr int mantissa = 23, bias = 127;
};
template <> struct Layout<double> {
    typedef u64 Bits;
    static constexpr u64 infinity = 0x7ff0000000000000ull, quiet = 0x0008000000000000ull;
    static constexpr int mantissa = 52, bias = 1023;
};

template <typename Float> union Cell {
    Float number;
    typename Layout<Float>::Bits bits;
};

template <typename Float> GPU typename Layout<Float>::Bits bits_of(Float x) {
    Cell<Float> cell;
    cell.number = x;
    return cell.bits;
}

template <typename Float> GPU Float with_bits(u64 bits) {
    Cell<Float> cell;
    cell.bits = (typename Layout<Float>::Bits)bits;
    return cell.number;
}

// With integers, because comparisons of floats flush too.
template <typename Float> GPU bool is_nan(Float x) {
    typedef typename Layout<Float>::Bits Bits;
    return (Bits)(bits_of(x) << 1) > (Bits)(Layout<Float>::infinity << 1);
}

#ifdef __CUDA_ARCH__
#define EXACT(name, instruction, sign)                                                                                 \
    GPU float name(float a, float b) {                                                                                 \
        float result;                                                                                                  \
        asm(instruction ".rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));                                        \
        return result;                                                                                                 \
    }                                                                                                                  \
    GPU double name(double a, double b) {                                                                              \
        double result;                                                                                                 \
        asm(instruction ".rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));                                        \
        return result;                                                                                                 \
    }
#define EXACT_CAST(name, from, to, instruction, in, out, plain)                                                        \
    GPU to name(from x) {                                                                                              \
        to result;                                                                                                     \
        asm(instruction " %0, %1;" : out(result) : in(x));                                                             \
        return result;                                                                                                 \
    }
#else
#define EXACT(name, instruction, sign)                                                                                 \
    GPU float name(float a, float b) { return a sign b; }                                                              \
    GPU double name(double a, double b) { return a sign b; }
#define EXACT_CAST(name, from, to, instruction, in, out, plain)                                                        \
    GPU to name(from x) { return plain(x); }
#endif

EXACT(ieee_add, "add", +)
EXACT(ieee_subtract, "sub", -)
EXACT(ieee_multiply, "mul", *)
EXACT(ieee_divide, "div", /)
EXACT_CAST(ieee_rint, float, float, "cvt.rni.f32.f32", "f", "=f", __builtin_rintf)
EXACT_CAST(ieee_rint, double, double, "cvt.rni.f64.f64", "d", "=d", __builtin_rint)
EXACT_CAST(ieee_widen, float, double, "cvt.f64.f32", "f", "=d", (double))
EXACT_CAST(ieee_narrow, double, float, "cvt.rn.f32.f64", "d", "=f", (float))

template <typename Float> GPU Float quieted(Float x) { return with_bits<Float>(bits_of(x) | Layout<Float>::quiet); }

// The result of an operation, or the NaN that the host returns. own_nan: bits of the NaN of an invalid operation.
template <typename Float> GPU Float settled(Float result, Float a, Float b, i64 own_nan) {
    if (!is_nan(result)) return result;
    if (is_nan(a)) return quieted(a);
    return is_nan(b) ? quieted(b) : with_bits<Float>((u64)own_nan);
}

template <typename Float> GPU Float add(Float a, Float b, i64 own_nan) {
    return settled(ieee_add(a, b), a, b, own_nan);
}
template <typename Float> GPU Float subtract(Float a, Float b, i64 own_nan) {
    return settled(ieee_subtract(a, b), a, b, own_nan);
}
template <typename Float> GPU Float multiply(Float a, Float b, i64 own_nan) {
    return settled(ieee_multiply(a, b), a, b, own_nan);
}
template <typename Float> GPU Float divide_floats(Float a, Float b, i64 own_nan) {
    return settled(ieee_divide(a, b), a, b, own_nan);
}
template <typename Float> GPU Float round_to_even(Float x) { return is_nan(x) ? quieted(x) : ieee_rint(x); }

GPU float as_float(float x) { return x; }
GPU double as_double(double x) { return x; }

// A NaN keeps its sign and upper bits.
GPU double as_double(float x) {
    if (!is_nan(x)) return ieee_widen(x);
    u64 bits = bits_of(x);
    return quieted(with_bits<double>((bits & 0x80000000u) << 32 | Layout<double>::infinity | (bits & 0x7fffffu) << 29));
}
GPU float as_float(double x) {
    if (!is_nan(x)) return ieee_narrow(x);
    u64 bits = bits_of(x);
    return quieted(with_bits<float>((bits >> 32 & 0x80000000u) | Layout<float>::infinity | (bits >> 29 & 0x7fffffu)));
}

// A 2-byte float. NaNs keep all bits too, as NumPy casts them with integers.
template <typename Float> GPU Float from_half(u16 half) {
    typedef Layout<Float> To;
    u64 sign = (u64)(half >> 15) << (8 * sizeof(Float) - 1), exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 0) return with_bits<Float>(sign | bits_of(ieee_multiply((Float)mantissa, (Float)0x1p-24)));
    u64 rest = mantissa << (To::mantissa - 10);
    if (exponent == 31) return with_bits<Float>(sign | To::infinity | rest);
    return with_bits<Float>(sign | (exponent + To::bias - 15) << To::mantissa | rest);
}
