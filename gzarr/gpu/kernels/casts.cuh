// Casts of single numbers to floats, with the bits that NumPy gives.
#pragma once
#include "floats.cuh"

GPU void become(float *to, float x) { *to = x; }
GPU void become(float *to, double x) { *to = as_float(x); }
GPU void become(double *to, float x) { *to = as_double(x); }
GPU void become(double *to, double x) { *to = x; }

// A number's size. T is an index of NUMBERS (see kernels/__init__.py).
template <int T> struct Number {
    static const int NBYTES = T == 0 || T == 1 || T == 5               ? 1
                              : T == 2 || T == 6 || T == 9             ? 2
                              : T == 3 || T == 7 || T == 10 ? 4 : 8;
};

// The number that some bits are, as a float. bits: the number's own, and any above them.
template <typename Float, int T> GPU Float number_as(u64 bits) {
    Float x = 0;
    if constexpr (T == 0) x = (Float)((u8)bits != 0);
    if constexpr (T == 1) x = (Float)(signed char)bits;
    if constexpr (T == 2) x = (Float)(short)bits;
    if constexpr (T == 3) x = (Float)(i32)bits;
    if constexpr (T == 4) x = (Float)(i64)bits;
    if constexpr (T == 5) x = (Float)(u8)bits;
    if constexpr (T == 6) x = (Float)(u16)bits;
    if constexpr (T == 7) x = (Float)(u32)bits;
    if constexpr (T == 8) x = (Float)bits;
    if constexpr (T == 9) x = from_half<Float>((u16)bits);
    if constexpr (T == 10) become(&x, with_bits<float>(bits));
    if constexpr (T == 11) become(&x, with_bits<double>(bits));
    return x;
}
