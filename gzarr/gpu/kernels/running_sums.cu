// running_sums: cumulative sums of each row of floats, added one after the other (decodes delta).
//
// Floats must be added in the host's order, or the last bits differ, so a row is one chain: one thread takes one row,
// or one part of a row of complex numbers (parts = 2). Rows of 4- or 8-byte floats, aligned to that. own_nan: bits of
// the host's result of an invalid operation. later_nan: whether the host keeps the later one of two NaNs.
//
// Traffic for each byte: one read and one write. Each thread has its own row, so cache lines are used completely as
// long as L1 holds one for each thread. The latency of additions limits short batches of long rows.
#include "floats.cuh"

template <typename Float> GPU void add_up(const Float *from, Float *to, i64 n, i64 step, i64 own_nan, i64 later_nan) {
    Float sum = 0;
    for (i64 k = 0; k < n; k += step) {
        // The first float is copied, because 0 + -0.0 would be 0.0.
        sum = k == 0 ? from[k] : later_nan ? add(from[k], sum, own_nan) : add(sum, from[k], own_nan);
        to[k] = sum;
    }
}

extern "C" __global__ void running_sums(i64 n_rows, i64 n_floats, i64 itemsize, i64 parts, i64 own_nan, i64 later_nan,
                                        const void *src, void *dst) {
    for (i64 chain = thread_index(); chain < n_rows * parts; chain += thread_count()) {
        i64 row = chain / parts, part = chain % parts;
        i64 start = row * n_floats + part;
        if (itemsize == 4) {
            add_up((const float *)src + start, (float *)dst + start, n_floats - part, parts, own_nan, later_nan);
        } else {
            add_up((const double *)src + start, (double *)dst + start, n_floats - part, parts, own_nan, later_nan);
        }
    }
}
