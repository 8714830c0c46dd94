// unshuffle: writes decoded chunks whose Blosc blocks are still shuffled as plain bytes to other memory.
//
// It takes what copy_bytes and copy_bits do not: items of odd sizes, tails, and addresses that are not aligned. One thread
// makes 16 plain bytes, one by one. Units are numbered chunk by chunk; unit_start holds the prefix sums of
// ceil(nbytes / 16). Chunks that are PLAIN are copied.
#include "source.cuh"

extern "C" __global__ void unshuffle(i64 n_chunks, const u64 *src, const u64 *dst, const i64 *unit_start,
                                     const u8 *mode, const i32 *typesize, const i64 *blocksize, const i64 *nbytes) {
    if (n_chunks == 0) return;
    Sources sources = {src, mode, typesize, blocksize, nbytes};
    i64 total = unit_start[n_chunks];
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 chunk = find_row(unit_start, n_chunks, unit);
        Source source = source_of(sources, chunk);
        i64 position = (unit - unit_start[chunk]) * 16;
        u8 *to = (u8 *)dst[chunk] + position;
        i64 left = source.nbytes - position;
        if (source.mode == PLAIN) {
            const u8 *from = source.data + position;
            if (left < 16) {
                store_bytes(to, load_bytes(from, left), left);
            } else {
                store_unit(to, load_unit(from, source.data, source.data + source.nbytes));
            }
        } else if (left < 16) {
            store_bytes(to, plain_bytes(source, position, left), left);
        } else {
            store_unit(to, plain_bytes(source, position, 16));
        }
    }
}
