// take_rows: copies rows of an array, in the order of a list, into the rows of another one, and casts them on the way.
//
// The bytes, or the numbers, of a row are contiguous, and cut into units: one thread makes one. Without a cast
// (target: -1), a unit has 2^log_each bytes, 16 if addresses and rows allow it. With one, it has 2^log_each numbers, 4
// or 1, of the type `source`, which become floats of the type `target`: indices of NUMBERS (kernels/__init__.py).
//
// Traffic for each byte: one read and one write. Units beside each other are so in both arrays.
#include "casts.cuh"
#include "parts.cuh"
#include "words.cuh"

// The bits of number k of some, and of others above them.
template <int NBYTES, int W> GPU u64 bits_at(const Words<W> &words, int k) {
    if (NBYTES == 8) return words.at[2 * k % ((W + 3) / 4)] | (u64)words.at[(2 * k + 1) % ((W + 3) / 4)] << 32;
    return words.at[k * NBYTES / 4] >> 8 * (k * NBYTES % 4);
}

template <int NBYTES, int W> GPU void put_bits(Words<W> &words, int k, u64 bits) {
    if (NBYTES == 8) {
        words.at[2 * k % (W / 4)] = (u32)bits;
        words.at[(2 * k + 1) % (W / 4)] = (u32)(bits >> 32);
    } else {
        words.at[k] = (u32)bits;
    }
}

template <typename Float, int T, int K> GPU void cast_unit(const u8 *from, u8 *to, u32 unit) {
    const int IN = Number<T>::NBYTES, OUT = sizeof(Float);
    Words<K * IN> numbers = load_words<K * IN>(from + (u64)unit * (K * IN));
    Words<K * OUT> floats;
#pragma unroll
    for (int k = 0; k < K; k++) {
        put_bits<OUT, K * OUT>(floats, k, bits_of(number_as<Float, T>(bits_at<IN, K * IN>(numbers, k))));
    }
    store_words<K * OUT>(to + (u64)unit * (K * OUT), floats);
}

template <typename Float, int K> GPU void cast_units(i64 source, const u8 *from, u8 *to, u32 unit) {
    switch (source) {
    case 0: cast_unit<Float, 0, K>(from, to, unit); break;
    case 1: cast_unit<Float, 1, K>(from, to, unit); break;
    case 2: cast_unit<Float, 2, K>(from, to, unit); break;
    case 3: cast_unit<Float, 3, K>(from, to, unit); break;
    case 4: cast_unit<Float, 4, K>(from, to, unit); break;
    case 5: cast_unit<Float, 5, K>(from, to, unit); break;
    case 6: cast_unit<Float, 6, K>(from, to, unit); break;
    case 7: cast_unit<Float, 7, K>(from, to, unit); break;
    case 8: cast_unit<Float, 8, K>(from, to, unit); break;
    case 9: cast_unit<Float, 9, K>(from, to, unit); break;
    case 10: cast_unit<Float, 10, K>(from, to, unit); break;
    default: cast_unit<Float, 11, K>(from, to, unit); break;
    }
}

template <int V> GPU void copy_unit(const u8 *from, u8 *to, u32 unit) {
    store_words<V>(to + (u64)unit * V, load_words<V>(from + (u64)unit * V));
}

GPU void copy_units(i64 log_nbytes, const u8 *from, u8 *to, u32 unit) {
    switch (log_nbytes) {
    case 0: copy_unit<1>(from, to, unit); break;
    case 1: copy_unit<2>(from, to, unit); break;
    case 2: copy_unit<4>(from, to, unit); break;
    case 3: copy_unit<8>(from, to, unit); break;
    default: copy_unit<16>(from, to, unit); break;
    }
}

// per_row: units; magic, shift: its divisor. There are fewer than 2^31 units in all. pool_step, out_step: bytes from one
// row to the next.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    take_rows(i64 n_rows, const i64 *slots, i64 per_row, i64 magic, i64 shift, const void *pool, i64 pool_step,
              void *out, i64 out_step, i64 source, i64 target, i64 log_each) {
    Divisor by = {(u32)magic, (u32)shift};
    u32 total = (u32)(n_rows * per_row);
    for (u32 number = (u32)thread_index(); number < total; number += (u32)thread_count()) {
        u32 row = divide(number, by), unit = number - row * (u32)per_row;
        const u8 *from = (const u8 *)pool + slots[row] * pool_step;
        u8 *to = (u8 *)out + (i64)row * out_step;
        if (target < 0) {
            copy_units(log_each, from, to, unit);
        } else if (target == 10) {
            if (log_each == 2) {
                cast_units<float, 4>(source, from, to, unit);
            } else {
                cast_units<float, 1>(source, from, to, unit);
            }
        } else {
            if (log_each == 2) {
                cast_units<double, 4>(source, from, to, unit);
            } else {
                cast_units<double, 1>(source, from, to, unit);
            }
        }
    }
}
