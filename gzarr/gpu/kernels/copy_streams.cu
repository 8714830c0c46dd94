// copy_streams: copies many byte streams of any length and alignment, such as the raw streams of Blosc frames.
//
// One thread copies 16 bytes. Units are numbered stream by stream; unit_start holds the prefix sums of ceil(nbytes /
// 16), so one long stream and thousands of short ones are balanced equally well.
//
// Traffic for each byte: one read and one write. If source and destination are aligned differently, units are cut out
// of aligned words: 24 bytes are loaded for 16, the rest from L1.
#include "unit.cuh"

extern "C" __global__ void copy_streams(i64 n_streams, const u64 *src, const u64 *dst, const i64 *nbytes,
                                        const i64 *unit_start) {
    if (n_streams == 0) return;
    i64 total = unit_start[n_streams];
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 stream = find_row(unit_start, n_streams, unit);
        const u8 *from = at_address(src[stream]);
        u8 *to = (u8 *)dst[stream];
        i64 position = (unit - unit_start[stream]) * 16;
        i64 left = nbytes[stream] - position;
        if (left >= 16) {
            store_unit(to + position, load_unit(from + position, from, from + nbytes[stream]));
        } else {
            store_bytes(to + position, load_bytes(from + position, left), left);
        }
    }
}
