// shuffle: shuffles the bytes or bits of plain chunks as Blosc's filters do, block by block, into other memory.
//
// The inverse of unshuffle, with the same tables. One thread takes 16 plain bytes. Units are numbered chunk by chunk;
// unit_start holds the prefix sums of ceil(nbytes / 16). Chunks that are PLAIN are copied.
//
// Byte shuffle: a thread writes 16 / typesize bytes to each plane, so a warp writes each plane contiguously. Bit
// shuffle: one byte of eight items makes a cell of eight bytes, each of which holds one bit of the eight items. Cells
// are numbered item group by item group, and a thread makes the cells whose number times eight is in its unit, wherever
// their bytes are, so each byte of the result has one writer. A warp writes 32 contiguous bytes to each bit row.
//
// Traffic for each byte: one read (in bit shuffles from L1 if a thread reads pairs of bytes) and one write, in runs of
// at least 32 bytes. Items whose size is not a power of two up to 16 are shuffled byte by byte.
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

// Two cells of one group, for items of an even size: bytes j and j + 1 are read together where they may be.
GPU void make_two_cells(const Place &place, u8 *block, u32 typesize, i64 cell) {
    i64 group = (i64)divide((u64)cell, typesize);
    i64 j = cell - group * typesize;
    const u8 *from = place.block + group * 8 * typesize + j;
    u64 first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u64 pair = load_number(from + i * typesize, 2);
        first |= (pair & 0xff) << (8 * i);
        second |= pair >> 8 << (8 * i);
    }
    first = transpose_bits(first);
    second = transpose_bits(second);
    i64 row_nbytes = place.n / 8;
    u8 *to = block + 8 * j * row_nbytes + group;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        to[b * row_nbytes] = (u8)(first >> (8 * b));
        to[(8 + b) * row_nbytes] = (u8)(second >> (8 * b));
    }
}

// Sixteen plain bytes, beginning with an item: 16 / T bytes to each of the T planes.
template <int T> GPU void split_planes(const Unit &unit, const Place &place, u8 *block) {
    const int K = 16 / T;
    u8 *plane = block + place.at / T;
#pragma unroll
    for (int j = 0; j < T; j++) {
        u64 bytes = 0;
#pragma unroll
        for (int k = 0; k < K; k++) bytes |= (get(unit, k * T + j) & 0xff) << (8 * k);
        store_number(plane + j * place.n, bytes, K);
    }
}

GPU void shuffle_unit(const Source &source, const Place &place, u8 *block, i64 position) {
    if (source.mode == BIT_SHUFFLED) {
        if (source.typesize % 2 == 0) {
            make_two_cells(place, block, source.typesize, place.at / 8);
        } else {
            make_cell(place, block, source.typesize, place.at / 8);
            make_cell(place, block, source.typesize, place.at / 8 + 1);
        }
        return;
    }
    Unit unit = load_unit(source.data + position, source.data, source.data + source.nbytes);
    switch (source.typesize) {
    case 2: split_planes<2>(unit, place, block); break;
    case 4: split_planes<4>(unit, place, block); break;
    case 8: split_planes<8>(unit, place, block); break;
    default: split_planes<16>(unit, place, block);
    }
}

// n <= 16 plain bytes, one by one, which is correct for every chunk. The loop is not unrolled, as in plain_bytes.
GPU void shuffle_bytes(const Source &source, u8 *to, i64 position, i64 n) {
#pragma unroll 1
    for (i64 p = position; p < position + n; p++) {
        Place place = locate(source, p);
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

// Whether the 16 bytes from place.at on can be taken together.
GPU bool is_whole(const Source &source, const Place &place) {
    if (place.at + 16 > place.body) return false;
    if (source.mode == BIT_SHUFFLED) return place.at % 16 == 0;
    i64 typesize = source.typesize;
    return typesize <= 16 && (typesize & (typesize - 1)) == 0 && (place.at & (typesize - 1)) == 0;
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
        Place place = locate(source, position);
        if (n == 16 && is_whole(source, place)) {
            shuffle_unit(source, place, to + (position - place.at), position);
        } else {
            shuffle_bytes(source, to, position, n);
        }
    }
}
