// copy_bits: copies boxes of bit-shuffled chunks, with items of 1, 2, 4, 8 or 16 bytes.
//
// Eight items share the bytes of their bit rows. A thread makes 32 items (K = 32; 16 of eight bytes) of words of the
// rows, or 8 items of bytes. For one, all eight are loaded, and come from L1 seven times. Rows narrower than a word are
// packed, one of each of several bytes of an item to a word, so that an operation takes four bytes.
//
// Traffic for each byte: one read and one write. A warp reads 128 or 32 contiguous bytes of each bit row. What it makes
// is contiguous in each thread: one store writes half of every sector that it touches if items have 4 or 8 bytes.
#include "rows.cuh"

// Items of T bytes. Byte G p + g of word i of n is byte 4 / G * n + p of item 8 g + i.
template <int T, int G> GPU Words<8 * G * T> join_groups(const u32 (&groups)[T * G / 4][8]) {
    const int N = T * G / 4;
    Words<8 * G * T> words;
#pragma unroll
    for (int q = 0; q < 8 * T; q += 4) { // bytes of eight items
        int i = q / T, n = q % T * G / 4;
        if (G == 1) {
            words.at[q / 4] = groups[n][i];
        } else if (G == 2) {
            words.at[q / 4] = __byte_perm(groups[n][i], groups[(n + 1) % N][i], 0x6420);
            words.at[2 * T * (G - 1) + q / 4] = __byte_perm(groups[n][i], groups[(n + 1) % N][i], 0x7531);
        } else {
            u32 four[4];
#pragma unroll
            for (int k = 0; k < 4; k++) four[k] = groups[(q + k) % N][(q + k) / T];
#pragma unroll
            for (int g = 0; g < G; g++) {
                u32 low = zip_bytes(four, four + 1, g >> 1), high = zip_bytes(four + 2, four + 3, g >> 1);
                words.at[2 * T * g + q / 4] = __byte_perm(low, high, (g & 1) == 0 ? 0x5410 : 0x7632);
            }
        }
    }
    return words;
}

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;

    GPU Words<T * K> operator()(u32 offset) const {
        Item item = item_of<T>(blocks, blocks.start + offset * (T * K));
        u32 row_nbytes = item.n_items >> 3;
        const u8 *from = chunk + (item.block + (item.number >> 3));
        if constexpr (K >= 8 && T * K >= 32) {
            const int G = K / 8, N = T * G / 4;
            u32 groups[N][8];
#pragma unroll
            for (int row = 0; row < 8 * T; row++) {
                u32(&words)[8] = groups[row * G / 32];
                int p = row / 8 % (4 / G);
                set_item<G>(&words[row % 8], p, load_words<G>(from + (u64)row_nbytes * row));
                if (row % (32 / G) == 32 / G - 1) transpose_words(words);
            }
            return join_groups<T, G>(groups);
        } else {
            u32 planes[T][(K + 3) / 4];
#pragma unroll
            for (int j = 0; j < T; j++) {
                u32 low = four_bytes(from + (u64)row_nbytes * (8 * j), row_nbytes);
                u32 high = four_bytes(from + (u64)row_nbytes * (8 * j + 4), row_nbytes);
                transpose_bits(low, high);
                if (K == 8) {
                    planes[j][0] = low;
                    planes[j][1 % ((K + 3) / 4)] = high;
                } else {
                    planes[j][0] = ((item.number & 4) == 0 ? low : high) >> (8 * (item.number & 3));
                }
            }
            return join_items<T, K>(planes);
        }
    }
};

template <int T, int K> GPU void unshuffle(const Part &part, const i32 *__restrict__ lists, u32 first, u32 swap_unit) {
    const Blocks held = part.blocks; // registers have no room for these beside units of 128 bytes
    Unshuffled<T, K> load = {part.from, T * K == 128 ? part.blocks : held};
#pragma unroll 1
    for (u32 end = first + BLOCK_UNITS; first != end && first < part.n_units; first += BLOCK_THREADS) {
        Turn<1> turn = find_units<1>(part, lists, first);
        copy_units<Unshuffled<T, K>, 1, 1>(part, turn, load, swap_unit);
    }
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    copy_bits(i64 n_parts, i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists,
              i64 swap_unit) {
    Grid grid = {(const Part *)parts, lists, (u32)(n_parts * blocks_each), (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    for (u32 block = blockIdx.x; block < grid.n_blocks; block += gridDim.x) {
        const Part &part = part_of(grid, block);
        u32 first = first_unit(grid, block);
        switch (part.kind) { // 8 log2 T + log2 K
        case 0: unshuffle<1, 1>(part, lists, first, swap); break;
        case 3: unshuffle<1, 8>(part, lists, first, swap); break;
        case 5: unshuffle<1, 32>(part, lists, first, swap); break;
        case 8: unshuffle<2, 1>(part, lists, first, swap); break;
        case 11: unshuffle<2, 8>(part, lists, first, swap); break;
        case 13: unshuffle<2, 32>(part, lists, first, swap); break;
        case 16: unshuffle<4, 1>(part, lists, first, swap); break;
        case 19: unshuffle<4, 8>(part, lists, first, swap); break;
        case 21: unshuffle<4, 32>(part, lists, first, swap); break;
        case 24: unshuffle<8, 1>(part, lists, first, swap); break;
        case 28: unshuffle<8, 16>(part, lists, first, swap); break;
        case 27: unshuffle<8, 8>(part, lists, first, swap); break;
        case 32: unshuffle<16, 1>(part, lists, first, swap); break;
        default: unshuffle<16, 8>(part, lists, first, swap); break;
        }
    }
}
