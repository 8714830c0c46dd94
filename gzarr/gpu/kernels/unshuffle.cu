// unshuffle: turns decoded chunks whose Blosc blocks are still shuffled into plain bytes elsewhere.
//
// One thread makes 16 plain bytes; units are numbered chunk after chunk, unit_start being the prefix sums of
// ceil(nbytes / 16). Chunks that are PLAIN are copied.
//
// Traffic for each byte: one read, one written; writes are whole lines where dst is a multiple of 16, reads are
// contiguous over the warp in each plane. Items whose size is no power of two up to 16 go byte by byte, through L1.
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
        if (left >= 16) {
            store_unit(to, plain_unit(source, position));
        } else {
            store_bytes(to, plain_bytes(source, position, left), left);
        }
    }
}
