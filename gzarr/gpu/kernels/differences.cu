// differences: the first float of each row, then the difference of each float to the one before it (encodes delta).
//
// For complex numbers (parts = 2), each part is subtracted from the same part of the number before. own_nan: bits of
// the host's result of an invalid operation. Rows of 4- or 8-byte floats, aligned to that. One thread takes one float.
//
// Traffic for each byte: one read from memory, one from the cache, and one write, all coalesced.
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
