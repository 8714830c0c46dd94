// differences: in each row of floats the first, then what each has more than the one before it: a delta filter encodes.
//
// Where complex numbers lie interleaved (parts = 2) each part is subtracted from the same part of the number before.
// own_nan: the bits of what the host makes of an invalid operation. Rows of 4 or 8-byte floats, aligned so. One thread
// takes one float.
//
// Traffic for each byte: one read, and one from the cache; one written, neighbours by neighbouring threads.
#include "floats.cuh"

template <typename Float> GPU void take_away(const Float *from, Float *to, i64 k, i64 step, bool is_first, i64 own_nan) {
    to[k] = is_first ? from[k] : subtract(from[k], from[k - step], own_nan);
}

extern "C" __global__ void differences(i64 n_rows, i64 n_floats, i64 itemsize, i64 parts, i64 own_nan, const void *src,
                                       void *dst) {
    for (i64 k = thread_index(); k < n_rows * n_floats; k += thread_count()) {
        bool is_first = k % n_floats < parts;
        if (itemsize == 4) {
            take_away((const float *)src, (float *)dst, k, parts, is_first, own_nan);
        } else {
            take_away((const double *)src, (double *)dst, k, parts, is_first, own_nan);
        }
    }
}
