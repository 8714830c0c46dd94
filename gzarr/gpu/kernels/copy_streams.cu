// copy_streams: copies many byte streams of any length and alignment, such as the raw streams of Blosc frames.
//
// One thread copies four units of 16 bytes, 32 apart, so that a warp's are contiguous. Units are numbered stream by
// stream; unit_start holds the prefix sums of ceil(nbytes / 16), so one long stream and thousands of short ones are
// balanced equally well.
//
// Traffic for each byte: one read and one write. A unit is stored at a multiple of 16; if the source is aligned
// differently, it is cut out of the two such pieces that it lies across.
#include "windows.cuh"

// The 16 bytes that begin at or up to 15 behind `from`, or what is left of them; of the first, what is before as well.
// before: bytes of the stream before `from`, left: from there on, or 32 and 64 if there are more.
GPU void copy_unit(const u8 *from, u8 *to, u32 before, u32 left) {
    if ((((u64)from | (u64)to) & 15) == 0 && left >= 16) return store_words(to, load_words<16>(from));
    if (before + left < 32) return store_bytes(to, load_bytes(from, left), left);
    const u8 *first = from - before;
    u32 skip = -(u32)(u64)to & 15, span = before + left;
    if (before == 0 && skip != 0) store_before(to, load_window(from, skip, is_inside(from, first, span)), skip);
    if (left <= skip) return;
    left -= skip;
    Words<16> words = load_window(from + skip, left < 16 ? left : 16, is_inside(from + skip, first, span));
    if (left < 16) {
        store_behind(to + skip, words, left);
    } else {
        store_words(to + skip, words);
    }
}

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
            i64 before = at - begin, left = end - at;
            copy_unit(at_address(src[stream]) + before, (u8 *)dst[stream] + before, before < 32 ? (u32)before : 32,
                      left < 64 ? (u32)left : 64);
        }
    }
}
