// copy_bits: copies boxes of bit-shuffled chunks, with items of 1, 2, 4, 8 or 16 bytes.
//
// Eight items share the bytes of their bit rows. A thread makes 32 items (K = 32; 16 of eight bytes) of words of the
// rows, or 8 items of bytes. For one, all eight are loaded, and come from L1 seven times.
//
// Traffic for each byte: one read and one write. A warp reads 128 or 32 contiguous bytes of each bit row. What it makes
// is contiguous in each thread: one store writes half of every sector that it touches if items have 4 or 8 bytes.
#include "rows.cuh"

GPU u32 four_bytes(const u8 *__restrict__ from, u32 stride) {
    u32 a = from[0], b = from[stride], c = from[2 * (u64)stride], d = from[3 * (u64)stride];
    return __byte_perm(__byte_perm(a, b, 0x1140), __byte_perm(c, d, 0x1140), 0x5410);
}

// Swap the bits of `mask`, moved up by d, of one word with those of another.
GPU void exchange(u32 &one, u32 &other, int d, u32 mask) {
    u32 low = (one & mask) | ((other << d) & ~mask);
    other = ((one >> d) & mask) | (other & ~mask);
    one = low;
}

// Items of T bytes from 8 T bit rows of G bytes, 4 or 2. Byte g of a row is of items 8 g to 8 g + 7. A word of a plane
// has one row, or of rows of two bytes two, b and b + 4.
template <int T, int G> GPU Words<8 * G * T> join_rows(u32 (&planes)[T][2 * G]) {
    Words<8 * G * T> words;
#pragma unroll
    for (int j = 0; j < T; j++) {
        u32(&rows)[2 * G] = planes[j];
#pragma unroll
        for (int b = 0; b < 4; b++) {
            if (G == 4) {
                exchange(rows[b], rows[(b + 4) % (2 * G)], 4, 0x0f0f0f0fu);
            } else {
                u32 other = __byte_perm(rows[b], 0, 0x1032);
                rows[b] = (rows[b] & 0xf0f00f0fu) | (other << 4 & 0x0000f0f0u) | (other >> 4 & 0x0f0f0000u);
            }
        }
#pragma unroll
        for (int b = 0; b < 2 * G; b++) {
            if ((b & 2) == 0) exchange(rows[b], rows[b + 2], 2, 0x33333333u);
        }
#pragma unroll
        for (int b = 0; b < 2 * G; b += 2) exchange(rows[b], rows[b + 1], 1, 0x55555555u);
    }
    // Now byte g of word i is byte j of item 8 g + i, or byte 2 (i / 4) + g of word i % 4.
#pragma unroll
    for (int q = 0; q < 8 * T; q += 4) { // bytes of eight items
        u32 four[4];
#pragma unroll
        for (int k = 0; k < 4; k++) four[k] = planes[(q + k) % T][(q + k) / T % (2 * G)];
#pragma unroll
        for (int g = 0; g < G; g++) {
            int at = G == 4 ? g : q / T / 4 * 2 + g;
            u32 low = zip_bytes(four, four + 1, at >> 1), high = zip_bytes(four + 2, four + 3, at >> 1);
            words.at[2 * T * g + q / 4] = __byte_perm(low, high, (at & 1) == 0 ? 0x5410 : 0x7632);
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
        if constexpr (K > 8) {
            u32 planes[T][K / 4];
#pragma unroll
            for (int row = 0; row < 8 * T; row++) {
                u32 bytes = load_words<K / 8>(from + (u64)row_nbytes * row).at[0];
                u32 &word = planes[row >> 3][(row & 7) % (K / 4)];
                word = (row & 7) < K / 4 ? bytes : __byte_perm(word, bytes, 0x5410);
            }
            return join_rows<T, K / 8>(planes);
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

template <int T, int K, int EACH> GPU void unshuffle(const Part &part, const Turn<EACH> &turn, u32 swap_unit) {
    Unshuffled<T, K> load = {part.from, part.blocks};
    copy_units<Unshuffled<T, K>, EACH, EACH>(part, turn, load, swap_unit);
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
#pragma unroll 1
        for (u32 k = 0; k < UNITS_EACH && first < part.n_units; k++, first += BLOCK_THREADS) {
            Turn<1> turn = find_units<1>(part, lists, first);
            switch (part.kind) { // 8 log2 T + log2 K
            case 0: unshuffle<1, 1>(part, turn, swap); break;
            case 3: unshuffle<1, 8>(part, turn, swap); break;
            case 5: unshuffle<1, 32>(part, turn, swap); break;
            case 8: unshuffle<2, 1>(part, turn, swap); break;
            case 11: unshuffle<2, 8>(part, turn, swap); break;
            case 13: unshuffle<2, 32>(part, turn, swap); break;
            case 16: unshuffle<4, 1>(part, turn, swap); break;
            case 19: unshuffle<4, 8>(part, turn, swap); break;
            case 21: unshuffle<4, 32>(part, turn, swap); break;
            case 24: unshuffle<8, 1>(part, turn, swap); break;
            case 28: unshuffle<8, 16>(part, turn, swap); break;
            case 27: unshuffle<8, 8>(part, turn, swap); break;
            case 32: unshuffle<16, 1>(part, turn, swap); break;
            default: unshuffle<16, 8>(part, turn, swap); break;
            }
        }
    }
}
