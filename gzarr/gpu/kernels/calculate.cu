// calculate: casts numbers to floats, does up to three steps of arithmetic, and casts the results to another float
// type.
//
// source and target are indices of NUMBERS, op_1 to op_3 of OPERATIONS (see kernels/__init__.py); work, 4 or 8, is the
// size of the floats in which the arithmetic is done, and operand_1 to operand_3 are their bits. own_nan: bits of the
// host's result of an invalid operation. spread: floats written for each number: 1, or 2 for complex numbers, of which
// the second is zero. Rows are contiguous, and aligned as their numbers. One thread takes one number.
//
// Traffic for each byte: one read and one write, coalesced.
#include "casts.cuh"

template <typename Float> GPU Float load_as(i64 type, const void *src, i64 k) {
    Float x = 0;
    switch (type) {
    case 0: x = (Float)(((const u8 *)src)[k] != 0); break;
    case 1: x = (Float)((const signed char *)src)[k]; break;
    case 2: x = (Float)((const short *)src)[k]; break;
    case 3: x = (Float)((const i32 *)src)[k]; break;
    case 4: x = (Float)((const i64 *)src)[k]; break;
    case 5: x = (Float)((const u8 *)src)[k]; break;
    case 6: x = (Float)((const u16 *)src)[k]; break;
    case 7: x = (Float)((const u32 *)src)[k]; break;
    case 8: x = (Float)((const u64 *)src)[k]; break;
    case 9: x = from_half<Float>(((const u16 *)src)[k]); break;
    case 10: become(&x, ((const float *)src)[k]); break;
    default: become(&x, ((const double *)src)[k]); break;
    }
    return x;
}

template <typename Float> GPU Float step(Float x, i64 op, i64 operand, i64 own_nan) {
    Float other = with_bits<Float>((u64)operand);
    switch (op) {
    case 1: return add(x, other, own_nan);
    case 2: return subtract(x, other, own_nan);
    case 3: return multiply(x, other, own_nan);
    case 4: return divide_floats(x, other, own_nan);
    case 5: return round_to_even(x);
    default: return x;
    }
}

template <typename Float> GPU void store_as(i64 type, void *dst, i64 k, Float x) {
    if (type == 10) {
        become((float *)dst + k, x);
    } else {
        become((double *)dst + k, x);
    }
}

extern "C" __global__ void calculate(i64 n_numbers, i64 source, i64 work, i64 target, i64 op_1, i64 operand_1, i64 op_2,
                                     i64 operand_2, i64 op_3, i64 operand_3, i64 own_nan, i64 spread, const void *src,
                                     void *dst) {
    for (i64 k = thread_index(); k < n_numbers; k += thread_count()) {
        if (work == 4) {
            float x = step(load_as<float>(source, src, k), op_1, operand_1, own_nan);
            x = step(step(x, op_2, operand_2, own_nan), op_3, operand_3, own_nan);
            store_as(target, dst, k * spread, x);
        } else {
            double x = step(load_as<double>(source, src, k), op_1, operand_1, own_nan);
            x = step(step(x, op_2, operand_2, own_nan), op_3, operand_3, own_nan);
            store_as(target, dst, k * spread, x);
        }
        if (spread == 2) store_as(target, dst, k * spread + 1, 0.0f);
    }
}
