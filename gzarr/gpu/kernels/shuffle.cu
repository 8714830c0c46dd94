// shuffle: shuffles the bytes or bits of plain chunks as Blosc's filters do, block by block, into other memory.
//
// The inverse of unshuffle, with the same tables, for items of any size. One thread takes 16 plain bytes, one by one.
// Units are numbered chunk by chunk; unit_start holds the prefix sums of ceil(nbytes / 16). Chunks that are PLAIN are
// copied.
//
// Bit shuffle: one byte of eight items makes a cell of eight bytes, each of which holds one bit of the eight items. Cells
// are numbered item group by item group, and a thread makes the cells whose number times eight is in its unit, wherever
// their bytes are, so each byte of the result has one writer.
#include "source.cuh"

// The shuffled bytes of eight items, of their byte j: cell = group * typesize + j.
GPU void make_cell(const Place &place, u8 *block, u32 typesize, i64 cell) {
    i64 group = (i64)divide((u64)cell, typesize);
    i64 j = cell - group * typesize;
    const u8 *from = place.block + group * 8 * typesize + j;
    u64 bytes = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) bytes |= (u64)from[i * typesize] << (8 * i);
    bytes = transpose_bits(bytes);
    i64 row_nbytes = place.n / 8;
    u8 *to = block + 8 * j * row_nbytes + group;
#pragma unroll
    for (int b = 0; b < 8; b++) to[b * row_nbytes] = (u8)(bytes >> (8 * b));
}

// n <= 16 plain bytes, one by one, which is correct for every chunk. The loop is not unrolled, as in plain_bytes.
GPU void shuffle_bytes(const Source &source, u8 *to, i64 position, i64 n) {
    Place place = locate(source, position);
#pragma unroll 1
    for (i64 p = position; p < position + n; p++, place.at++) {
        if (place.at == place.size) place = locate(source, p);
        u8 *block = to + (p - place.at);
        if (place.at >= place.body) {
            block[place.at] = source.data[p];
        } else if (source.mode == BYTE_SHUFFLED) {
            i64 i = (i64)divide((u64)place.at, source.typesize);
            block[(place.at - i * source.typesize) * place.n + i] = source.data[p];
        } else if (place.at % 8 == 0) {
            make_cell(place, block, source.typesize, place.at / 8);
        }
    }
}

extern "C" __global__ void shuffle(i64 n_chunks, const u64 *src, const u64 *dst, const i64 *unit_start, const u8 *mode,
                                   const i32 *typesize, const i64 *blocksize, const i64 *nbytes) {
    if (n_chunks == 0) return;
    Sources sources = {src, mode, typesize, blocksize, nbytes};
    i64 total = unit_start[n_chunks];
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 chunk = find_row(unit_start, n_chunks, unit);
        Source source = source_of(sources, chunk);
        u8 *to = (u8 *)dst[chunk];
        i64 position = (unit - unit_start[chunk]) * 16;
        i64 left = source.nbytes - position;
        i64 n = left < 16 ? left : 16;
        if (source.mode == PLAIN) {
            if (n == 16) {
                store_unit(to + position, load_unit(source.data + position, source.data, source.data + source.nbytes));
            } else {
                store_bytes(to + position, load_bytes(source.data + position, n), n);
            }
            continue;
        }
        shuffle_bytes(source, to, position, n);
    }
}
