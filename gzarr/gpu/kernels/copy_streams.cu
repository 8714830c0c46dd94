// copy_streams: copies many byte streams of any length and alignment, such as the raw streams of Blosc frames.
//
// One thread copies four units of 16 bytes, 32 apart, so that a warp's are contiguous. Units are numbered stream by
// stream; unit_start holds the prefix sums of ceil(nbytes / 16), so one long stream and thousands of short ones are
// balanced equally well.
//
// Traffic for each byte: one read and one write. If source and destination are aligned differently, units are cut out
// of aligned words: 24 bytes are loaded for 16, the rest from L1.
#include "unit.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    copy_streams(i64 n_streams, const u64 *src, const u64 *dst, const i64 *nbytes, const i64 *unit_start) {
    if (n_streams == 0) return;
    i64 total = unit_start[n_streams] * 16;
    for (i64 thread = thread_index(); thread * 64 < total + 2048; thread += thread_count()) {
        i64 stream = 0, begin = 0, end = 0, first = (thread / 32 * 128 + thread % 32) * 16;
#pragma unroll 1
        for (i64 at = first; at < first + 2048 && at < total; at += 512) {
            if (at >= end) {
                stream += find_row(unit_start + stream, n_streams - stream, at / 16);
                begin = unit_start[stream] * 16;
                end = begin + nbytes[stream];
            }
            const u8 *from = at_address(src[stream]);
            u8 *to = (u8 *)dst[stream] + (at - begin);
            i64 left = end - at;
            if (left >= 16) {
                store_unit(to, load_unit(from + (at - begin), from, from + (end - begin)));
            } else {
                store_bytes(to, load_bytes(from + (at - begin), left), left);
            }
        }
    }
}
