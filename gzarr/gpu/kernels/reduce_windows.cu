// reduce_windows: makes one element of each window of an array: its mean, its median, or one of its elements.
//
// One thread makes one element; threads beside each other do so for windows that follow each other along the last axis.
// Windows have at most four axes along which they are longer than 1, and are shorter where an axis ends. Their elements
// are visited in C order: sums of floats begin with 0 and are added in this order. Sums of integers are exact.
//
// Numbers are put in order as unsigned integers, their keys: the sign of signed ones is flipped, or all bits of negative
// floats. Both zeros have one key, and NaNs have one that is larger than any other.
//
// Traffic for each byte: one read. Mode and median read a window again for each of its elements, from the cache.
#include "floats.cuh"
#include "parts.cuh"

// How the bits of numbers are understood; what is made of a window: positions in gzarr.backend.WINDOW_METHODS.
enum { UNSIGNED, SIGNED, FLOATING };
enum { MEAN, MODE, MIN, MAX, MEDIAN };

// What the host says of an axis. count: windows; from, to: bytes from one window, or its result, to the next; slot: the
// axis of windows that it is, or -1.
struct ReducedAxis {
    i64 count, magic, shift, from, to, length, factor, slot;
};

struct Window {
    const u8 *at;
    u32 a, b, c, d;
    i64 step_a, step_b, step_c, step_d;

    GPU u64 count() const { return (u64)a * b * c * d; }
};

// Call a function for each element, in C order, until it returns true.
template <typename T, typename Visit> GPU void each(const Window &window, Visit visit) {
#pragma unroll 1
    for (u32 i = 0; i < window.a; i++) {
#pragma unroll 1
        for (u32 j = 0; j < window.b; j++) {
#pragma unroll 1
            for (u32 k = 0; k < window.c; k++) {
                const u8 *at = window.at + i * window.step_a + j * window.step_b + k * window.step_c;
#pragma unroll 1
                for (u32 l = 0; l < window.d; l++, at += window.step_d) {
                    if (visit(*(const T *)at)) return;
                }
            }
        }
    }
}

template <typename T> struct Keys {
    static const int BITS = 8 * sizeof(T);
    static constexpr T sign = (T)((T)1 << (BITS - 1)), no_number = (T)~(T)0;
    static constexpr T infinity = BITS == 16 ? (T)0x7c00u : BITS == 32 ? (T)0x7f800000u : (T)0x7ff0000000000000ull;
};

// kind: of the numbers; reversed: whether large ones come first, but NaNs are last all the same.
template <typename T> GPU T key_of(T bits, i64 kind, bool reversed) {
    typedef Keys<T> K;
    if (kind == FLOATING) {
        T magnitude = bits & (T)~K::sign;
        if (magnitude > K::infinity) return K::no_number;
        bits = (bits & K::sign) != 0 && magnitude != 0 ? (T)~bits : (T)(magnitude | K::sign);
    } else if (kind == SIGNED) {
        bits ^= K::sign;
    }
    return reversed ? (T)~bits : bits;
}

template <typename T> GPU T value_of(T key, i64 kind, bool reversed) {
    typedef Keys<T> K;
    if (reversed) key = (T)~key;
    if (kind == FLOATING) return (key & K::sign) != 0 ? (T)(key ^ K::sign) : (T)~key;
    return kind == SIGNED ? (T)(key ^ K::sign) : key;
}

template <typename T> GPU T smallest(const Window &window, i64 kind, bool reversed) {
    T best = Keys<T>::no_number;
    each<T>(window, [&](T bits) {
        T key = key_of(bits, kind, reversed);
        best = key < best ? key : best;
        return false;
    });
    return value_of(best, kind, reversed);
}

// Of the keys that are most frequent, the smallest; those of NaNs only if there is no other.
template <typename T> GPU T mode_of(const Window &window, i64 kind) {
    T best = key_of(*(const T *)window.at, kind, false), differ = 0;
    each<T>(window, [&](T bits) {
        differ |= (T)(key_of(bits, kind, false) ^ best);
        return differ != 0;
    });
    if (differ == 0) return value_of(best, kind, false);
    u32 most = 0;
    best = Keys<T>::no_number;
    each<T>(window, [&](T bits) {
        T key = key_of(bits, kind, false);
        if (kind == FLOATING && key == Keys<T>::no_number) return false;
        u32 same = 0;
        each<T>(window, [&](T other) {
            same += key_of(other, kind, false) == key;
            return false;
        });
        if (same > most || (same == most && key < best)) {
            most = same;
            best = key;
        }
        return false;
    });
    return value_of(best, kind, false);
}

// The two keys in the middle, or twice the one, NaNs left out.
template <typename T> GPU void find_middle(const Window &window, i64 kind, T *low, T *high) {
    u32 numbers = 0;
    each<T>(window, [&](T bits) {
        numbers += !(kind == FLOATING && key_of(bits, kind, false) == Keys<T>::no_number);
        return false;
    });
    u32 first = numbers == 0 ? 0 : (numbers - 1) / 2, second = numbers / 2, found = 0;
    each<T>(window, [&](T bits) {
        T key = key_of(bits, kind, false);
        u32 less = 0, same = 0;
        each<T>(window, [&](T other) {
            T with = key_of(other, kind, false);
            less += with < key;
            same += with == key;
            return false;
        });
        if (less <= first && first - less < same) {
            *low = key;
            found |= 1;
        }
        if (less <= second && second - less < same) {
            *high = key;
            found |= 2;
        }
        return found == 3;
    });
}

template <typename T> GPU T median_of_integers(const Window &window, i64 kind) {
    T low = 0, high = 0;
    find_middle(window, kind, &low, &high);
    T apart = (T)(high - low), below = (T)(low + apart / 2);
    return value_of((T)(below + (apart & below & 1)), kind, false);
}

// The quotient of high * 2^64 + low and n, below 2^64, rounded half to even. n <= 2^30.
GPU u64 rounded(u64 high, u64 low, u64 n) {
    u64 quotient, rest;
    if (high == 0) {
        quotient = divide(low, n);
        rest = low - quotient * n;
    } else {
        u64 upper = high << 32 | low >> 32;
        quotient = divide(upper, n);
        u64 lower = (upper - quotient * n) << 32 | (low & 0xffffffffu);
        u64 digits = divide(lower, n);
        rest = lower - digits * n;
        quotient = quotient << 32 | digits;
    }
    return quotient + (2 * rest > n || (2 * rest == n && (quotient & 1) != 0));
}

// A signed integer is averaged as an unsigned one with its sign flipped, which keeps even numbers even.
template <typename T> GPU T mean_of_integers(const Window &window, i64 kind) {
    T flip = kind == SIGNED ? Keys<T>::sign : (T)0;
    u64 high = 0, low = 0;
    each<T>(window, [&](T bits) {
        u64 x = (T)(bits ^ flip);
        low += x;
        if (sizeof(T) == 8) high += low < x;
        return false;
    });
    return (T)((T)rounded(high, low, window.count()) ^ flip);
}

// A 4-byte float as a 2-byte one, rounded half to even. The sum of a small one and 0.5 rounds to its last bit.
GPU u16 to_half(float x) {
    u32 bits = bits_of(x), sign = bits & 0x80000000u, magnitude = bits ^ sign, half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u;
    } else if (magnitude >= 0x47800000u) {
        half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {
        half = bits_of(ieee_add(with_bits<float>(magnitude), 0.5f)) - (126u << 23);
    } else {
        half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    }
    return (u16)(half | sign >> 16);
}

GPU void become_float(float *to, u16 bits) { *to = from_half<float>(bits); }
GPU void become_float(float *to, u32 bits) { *to = with_bits<float>(bits); }
GPU void become_float(double *to, u64 bits) { *to = with_bits<double>(bits); }
GPU void become_bits(u16 *to, float x) { *to = to_half(x); }
GPU void become_bits(u32 *to, float x) { *to = bits_of(x); }
GPU void become_bits(u64 *to, double x) { *to = bits_of(x); }

template <typename T, typename Float> GPU T mean_of_floats(const Window &window) {
    Float sum = 0;
    each<T>(window, [&](T bits) {
        Float x;
        become_float(&x, bits);
        sum = ieee_add(sum, x);
        return false;
    });
    Float mean = ieee_divide(sum, (Float)(u32)window.count());
    if (is_nan(mean)) mean = with_bits<Float>(Layout<Float>::infinity | Layout<Float>::quiet);
    T result;
    become_bits(&result, mean);
    return result;
}

// The halves of large numbers are added, as their sum is infinite.
template <typename T, typename Float> GPU T median_of_floats(const Window &window) {
    T low = 0, high = 0;
    find_middle(window, FLOATING, &low, &high);
    T result = value_of(low, FLOATING, false);
    if (low == high) return result;
    Float a, b;
    become_float(&a, result);
    become_float(&b, value_of(high, FLOATING, false));
    Float sum = ieee_add(a, b);
    bool overflows = bits_of(sum) << 1 == Layout<Float>::infinity << 1;
    Float middle = ieee_divide(overflows ? ieee_add(ieee_divide(a, (Float)2), ieee_divide(b, (Float)2)) : sum,
                               overflows ? (Float)1 : (Float)2);
    become_bits(&result, is_nan(middle) ? with_bits<Float>(Layout<Float>::infinity | Layout<Float>::quiet) : middle);
    return result;
}

template <typename T> GPU T chosen(const Window &window, i64 kind, i64 method) {
    if (method == MODE) return mode_of<T>(window, kind);
    if (method == MEDIAN) return median_of_integers<T>(window, kind);
    return smallest<T>(window, kind, method == MAX);
}

template <typename T, typename Float> GPU void reduce_numbers(const Window &window, i64 kind, i64 method, u8 *to) {
    if (method == MEDIAN && kind == FLOATING) {
        *(T *)to = median_of_floats<T, Float>(window);
    } else if (method != MEAN) {
        *(T *)to = chosen<T>(window, kind, method);
    } else if (kind == FLOATING) {
        *(T *)to = mean_of_floats<T, Float>(window);
    } else {
        *(T *)to = mean_of_integers<T>(window, kind);
    }
}

// axes: n_axes of them, in C order. There are fewer than 2^31 windows. step_a to step_d: bytes from one element of a
// window to the next along each of its axes, in C order.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 3)
    reduce_windows(i64 n, const i64 *axes, i64 n_axes, const void *block, void *out, i64 step_a, i64 step_b, i64 step_c,
                   i64 step_d, i64 nbytes, i64 kind, i64 method) {
    const ReducedAxis *reduced = (const ReducedAxis *)axes;
    for (u32 number = (u32)thread_index(); number < (u32)n; number += (u32)thread_count()) {
        Window window = {(const u8 *)block, 1, 1, 1, 1, step_a, step_b, step_c, step_d};
        u8 *to = (u8 *)out;
        u32 left = number;
        for (i64 k = n_axes - 1; k >= 0; k--) {
            const ReducedAxis &axis = reduced[k];
            u32 rows = divide(left, Divisor{(u32)axis.magic, (u32)axis.shift});
            i64 at = left - rows * (u32)axis.count;
            left = rows;
            window.at += at * axis.from;
            to += at * axis.to;
            i64 rest = axis.length - at * axis.factor;
            u32 extent = (u32)(rest < axis.factor ? rest : axis.factor);
            window.a = axis.slot == 0 ? extent : window.a;
            window.b = axis.slot == 1 ? extent : window.b;
            window.c = axis.slot == 2 ? extent : window.c;
            window.d = axis.slot == 3 ? extent : window.d;
        }
        if (nbytes == 1) {
            *to = method == MEAN ? mean_of_integers<u8>(window, kind) : chosen<u8>(window, kind, method);
        } else if (nbytes == 2) {
            reduce_numbers<u16, float>(window, kind, method, to);
        } else if (nbytes == 4) {
            reduce_numbers<u32, float>(window, kind, method, to);
        } else {
            reduce_numbers<u64, double>(window, kind, method, to);
        }
    }
}
