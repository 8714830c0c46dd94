// shuffle_items: shuffles the bytes or bits of plain chunks as Blosc's filters do, for what is common: items of 1, 2, 4,
// 8 or 16 bytes, chunks of one size at aligned addresses, and blocks of whole units. shuffle does the rest.
//
// A thread takes a unit: K items of T bytes, which are next to each other. For bytes, a unit has up to 16 bytes, as the
// addresses allow, and K bytes go to each of T planes. For bits, it has eight items, or 16 of one byte, and K / 8 bytes
// go to each of 8 T bit rows. source.cuh says how a block is shuffled.
//
// Traffic for each byte: one read and one write. A warp writes 32 K contiguous bytes to each plane, or 4 K to each bit
// row. Eight items of 4 or 8 bytes are two or four loads, of which each takes half of every sector that it touches.
#include "parts.cuh"
#include "words.cuh"

// W bytes of some, from byte `at` on, a multiple of W.
template <int W, int ALL> GPU Words<W> cut_words(const Words<ALL> &words, int at) {
    Words<W> result;
#pragma unroll
    for (int k = 0; k < (W + 3) / 4; k++) result.at[k] = words.at[at / 4 + k] >> (W < 4 ? 8 * (at & 3) : 0);
    return result;
}

// K bytes of each of T planes, from K items of T bytes. It is what join_items does, items and planes interchanged.
template <int T, int K> GPU Words<T * K> split_items(const Words<T * K> &words) {
    if constexpr (T == 1) {
        return words;
    } else {
        u32 items[K][(T + 3) / 4];
#pragma unroll
        for (int k = 0; k < K; k++) {
            Words<T> item = cut_words<T>(words, k * T);
#pragma unroll
            for (int m = 0; m < (T + 3) / 4; m++) items[k][m] = item.at[m];
        }
        return join_items<K, T>(items);
    }
}

// A unit in its chunk and in its block.
struct Spot {
    const u8 *from; // of the unit
    u8 *to;         // of the block
    u32 number;     // of the unit in the block
    u32 n_units;    // in the block
};

template <int T, int K> GPU void shuffle_bytes(const Spot &spot) {
    Words<T * K> planes = split_items<T, K>(load_words<T * K>(spot.from));
    u8 *to = spot.to + spot.number * K;
#pragma unroll
    for (int j = 0; j < T; j++) store_words<K>(to + (u64)(spot.n_units * K) * j, cut_words<K>(planes, j * K));
}

template <int T, int K> GPU void shuffle_bits(const Spot &spot) {
    const int G = K / 8;
    Words<T * K> words = load_words<T * K>(spot.from);
    u32 rows[T][2 * G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        Words<8 * T> planes = split_items<T, 8>(cut_words<8 * T>(words, g * 8 * T));
#pragma unroll
        for (int j = 0; j < T; j++) {
            Words<8> bits = cut_words<8>(planes, j * 8);
            transpose_bits(bits.at[0], bits.at[1]);
            rows[j][2 * g] = bits.at[0];
            rows[j][2 * g + 1] = bits.at[1];
        }
    }
    u8 *to = spot.to + spot.number * G;
#pragma unroll
    for (int j = 0; j < T; j++) {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            u32 first = rows[j][b / 4] >> 8 * (b % 4);
            Words<G> bits = {G == 1 ? first : __byte_perm(first, rows[j][(2 + b / 4) % (2 * G)] >> 8 * (b % 4), 0x40)};
            store_words<G>(to + (u64)(spot.n_units * G) * (8 * j + b), bits);
        }
    }
}

// kind: 8 log2 T + log2 K, and 64 for bits. per_chunk, per_block: units of a chunk, and of a block but the last,
// which may be short; the magic number and shift after each are its divisor. There are fewer than 2^31 units.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    shuffle_items(i64 n_chunks, const u64 *src, const u64 *dst, i64 kind, i64 per_chunk, i64 chunk_magic, i64 chunk_shift,
                  i64 per_block, i64 block_magic, i64 block_shift) {
    Divisor by_chunk = {(u32)chunk_magic, (u32)chunk_shift}, by_block = {(u32)block_magic, (u32)block_shift};
    u32 total = (u32)(n_chunks * per_chunk);
    u32 log_nbytes = ((u32)kind >> 3 & 7) + ((u32)kind & 7);
    for (u32 unit = (u32)thread_index(); unit < total; unit += (u32)thread_count()) {
        u32 chunk = divide(unit, by_chunk);
        u32 inside = unit - chunk * (u32)per_chunk;
        u32 begin = divide(inside, by_block) * (u32)per_block;
        u32 left = (u32)per_chunk - begin;
        Spot spot;
        spot.from = at_address(src[chunk]) + ((u64)inside << log_nbytes);
        spot.to = (u8 *)dst[chunk] + ((u64)begin << log_nbytes);
        spot.number = inside - begin;
        spot.n_units = left < (u32)per_block ? left : (u32)per_block;
        switch ((u32)kind) {
        case 8: shuffle_bytes<2, 1>(spot); break;
        case 9: shuffle_bytes<2, 2>(spot); break;
        case 10: shuffle_bytes<2, 4>(spot); break;
        case 11: shuffle_bytes<2, 8>(spot); break;
        case 16: shuffle_bytes<4, 1>(spot); break;
        case 17: shuffle_bytes<4, 2>(spot); break;
        case 18: shuffle_bytes<4, 4>(spot); break;
        case 24: shuffle_bytes<8, 1>(spot); break;
        case 25: shuffle_bytes<8, 2>(spot); break;
        case 32: shuffle_bytes<16, 1>(spot); break;
        case 67: shuffle_bits<1, 8>(spot); break;
        case 68: shuffle_bits<1, 16>(spot); break;
        case 75: shuffle_bits<2, 8>(spot); break;
        case 83: shuffle_bits<4, 8>(spot); break;
        default: shuffle_bits<8, 8>(spot); break;
        }
    }
}
