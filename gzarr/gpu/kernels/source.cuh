// A decoded chunk whose bytes may still be shuffled by Blosc, read as if they were plain.
//
// Source: c-blosc 1.x shuffle.c and bitshuffle, as described by the frame format of Blosc 1. A chunk is cut into blocks
// of blocksize bytes, the last of which may be short; each block is shuffled separately. A block of n whole items of
// typesize bytes keeps byte j of item i at j * n + i (byte shuffle), or bit b of that byte as bit i % 8 of byte
// (8 j + b) * (n / 8) + i / 8 (bit shuffle). What follows the whole items is plain. A block whose n is no multiple of
// eight is not bit-shuffled at all.
#pragma once
#include "unit.cuh"

enum { PLAIN = 0, BYTE_SHUFFLED = 1, BIT_SHUFFLED = 2 };

struct Source {
    const u8 *data; // null: the chunk is missing
    i64 nbytes;
    i64 blocksize;
    u32 typesize;
    u32 mode;
};

// The position of one byte in its block, and how much of the block is shuffled.
struct Place {
    const u8 *block;
    i64 at;   // of the byte, in the plain block
    i64 size; // of the block
    i64 n;    // whole items in the block
    i64 body; // bytes of the block that are shuffled
};

// The tables that describe chunks, one row each. typesize and blocksize are >= 1 unless the mode is PLAIN.
struct Sources {
    const u64 *address;
    const u8 *mode;
    const i32 *typesize;
    const i64 *blocksize;
    const i64 *nbytes;
};

GPU Source source_of(const Sources &sources, i64 row) {
    Source source;
    source.data = at_address(sources.address[row]);
    source.nbytes = sources.nbytes[row];
    source.blocksize = sources.blocksize[row];
    source.typesize = (u32)sources.typesize[row];
    source.mode = sources.mode[row];
    // The byte shuffle of single bytes changes nothing.
    if (source.mode == BYTE_SHUFFLED && source.typesize < 2) source.mode = PLAIN;
    return source;
}

// The first byte of a block. Blosc chunks are shorter than 2 GiB, so divisions are 32-bit ones.
GPU Place start_of(const Source &source, i64 block) {
    i64 start = block * source.blocksize, rest = source.nbytes - start;
    i64 size = rest < source.blocksize ? rest : source.blocksize;
    i64 n = (i64)divide((u64)size, source.typesize);
    i64 body = source.mode == BIT_SHUFFLED && n % 8 != 0 ? 0 : n * source.typesize;
    return {source.data + start, 0, size, n, body};
}

// The source must be shuffled.
GPU Place locate(const Source &source, i64 position) {
    i64 block = (i64)divide((u64)position, (u64)source.blocksize);
    Place place = start_of(source, block);
    place.at = position - block * source.blocksize;
    return place;
}

// Byte j of item i of a block.
GPU u32 shuffled_byte(const Source &source, const Place &place, i64 i, u32 j) {
    if (source.mode == BYTE_SHUFFLED) return place.block[j * place.n + i];
    i64 row_nbytes = place.n / 8;
    const u8 *row = place.block + 8 * j * row_nbytes + i / 8;
    u32 value = 0;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        value |= ((u32)row[b * row_nbytes] >> (i & 7) & 1) << b;
    }
    return value;
}

// n <= 16 plain bytes of a shuffled source, one by one. The loop is not unrolled, because it would become a hundred times
// as long as the rest of a kernel.
GPU Unit plain_bytes(const Source &source, i64 position, i64 n) {
    Unit unit = {0, 0};
    Place place = locate(source, position);
    i64 i = (i64)divide((u64)place.at, source.typesize);
    u32 j = (u32)(place.at - i * source.typesize);
#pragma unroll 1
    for (int k = 0; k < n; k++, place.at++) {
        if (place.at == place.size) {
            place = locate(source, position + k);
            i = j = 0;
        }
        put(unit, k, place.at < place.body ? shuffled_byte(source, place, i, j) : place.block[place.at]);
        if (++j == source.typesize) {
            j = 0;
            i++;
        }
    }
    return unit;
}
