// copy_bits: copies boxes of bit-shuffled chunks, with items of 1, 2, 4 or 8 bytes.
//
// Eight items share the bytes of their bit rows. A thread that makes all eight (K = 8) loads every byte once; with
// smaller K, they are loaded several times, from L1.
//
// Traffic for each byte: one read and one write. A warp reads 32 contiguous bytes of each bit row. Eight items of 4 or 8
// bytes are two or four stores, of which each writes half of every sector that it touches.
#include "rows.cuh"

GPU u32 four_bytes(const u8 *__restrict__ from, u32 stride) {
    u32 a = from[0], b = from[stride], c = from[2 * (u64)stride], d = from[3 * (u64)stride];
    return __byte_perm(__byte_perm(a, b, 0x1140), __byte_perm(c, d, 0x1140), 0x5410);
}

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;

    GPU Words<T * K> operator()(u32 offset) const {
        Item item = item_of<T>(blocks, blocks.start + offset * (T * K));
        u32 row_nbytes = item.n_items >> 3;
        const u8 *from = chunk + (item.block + (item.number >> 3));
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
                planes[j][0] = ((item.number & 4) == 0 ? low : high) >> (8 * (item.number & ((u32)(4 - K) & 3)));
            }
        }
        return join_items<T, K>(planes);
    }
};

template <int T, int K, int EACH> GPU void unshuffle(const Part &part, const Turn<EACH> &turn, u32 swap_unit) {
    Unshuffled<T, K> load = {part.from, part.blocks};
    copy_units<Unshuffled<T, K>, EACH, EACH>(part, turn, load, swap_unit);
}

// blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    copy_bits(i64 n_parts, i64 blocks_each, i64 magic, i64 shift, const void *parts, i64 swap_unit) {
    Grid grid = {(const Part *)parts, (u32)(n_parts * blocks_each), (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    for (u32 block = blockIdx.x; block < grid.n_blocks; block += gridDim.x) {
        const Part &part = part_of(grid, block);
        u32 first = first_unit(grid, block);
#pragma unroll 1
        for (u32 k = 0; k < UNITS_EACH && first < part.n_units; k++, first += BLOCK_THREADS) {
            Turn<1> turn = find_units<1>(part, first);
            switch (part.kind) { // 8 log2 T + log2 K
            case 0: unshuffle<1, 1>(part, turn, swap); break;
            case 2: unshuffle<1, 4>(part, turn, swap); break;
            case 3: unshuffle<1, 8>(part, turn, swap); break;
            case 8: unshuffle<2, 1>(part, turn, swap); break;
            case 10: unshuffle<2, 4>(part, turn, swap); break;
            case 11: unshuffle<2, 8>(part, turn, swap); break;
            case 16: unshuffle<4, 1>(part, turn, swap); break;
            case 18: unshuffle<4, 4>(part, turn, swap); break;
            case 19: unshuffle<4, 8>(part, turn, swap); break;
            case 24: unshuffle<8, 1>(part, turn, swap); break;
            case 26: unshuffle<8, 4>(part, turn, swap); break;
            default: unshuffle<8, 8>(part, turn, swap); break;
            }
        }
    }
}
