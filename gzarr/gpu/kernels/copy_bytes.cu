// copy_bytes: copies boxes of byte-shuffled chunks, with items of 2, 4, 8 or 16 bytes.
//
// Traffic for each byte: one read and one write. A thread reads K bytes of each plane, a warp 32 K contiguous ones.
#include "rows.cuh"

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;

    GPU Words<T * K> operator()(u32 offset) const {
        Item item = item_of<T>(blocks, blocks.start + offset * (T * K));
        const u8 *from = chunk + (item.block + item.number);
        u32 planes[T][(K + 3) / 4];
#pragma unroll
        for (int j = 0; j < T; j++) {
            Words<K> plane = load_words<K>(from + (u64)item.n_items * j);
#pragma unroll
            for (int k = 0; k < (K + 3) / 4; k++) planes[j][k] = plane.at[k];
        }
        return join_items<T, K>(planes);
    }
};

template <int T, int K, int EACH> GPU void unshuffle(const Part &part, const Turn<EACH> &turn, u32 swap_unit) {
    const int AT_ONCE = T == 16 ? 1 : T == 8 ? 2 : EACH; // what registers hold
    Unshuffled<T, K> load = {part.from, part.blocks};
    copy_units<Unshuffled<T, K>, AT_ONCE, EACH>(part, turn, load, swap_unit);
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, COPY_BLOCKS)
    copy_bytes(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 first = first_unit(grid, blockIdx.x);
    if (first >= part.n_units) return;
    Turn<4> turn = find_units<4>(part, lists, first);
    switch (part.kind) { // 8 log2 T + log2 K
    case 8: unshuffle<2, 1>(part, turn, swap); break;
    case 9: unshuffle<2, 2>(part, turn, swap); break;
    case 10: unshuffle<2, 4>(part, turn, swap); break;
    case 11: unshuffle<2, 8>(part, turn, swap); break;
    case 16: unshuffle<4, 1>(part, turn, swap); break;
    case 17: unshuffle<4, 2>(part, turn, swap); break;
    case 18: unshuffle<4, 4>(part, turn, swap); break;
    case 24: unshuffle<8, 1>(part, turn, swap); break;
    case 25: unshuffle<8, 2>(part, turn, swap); break;
    default: unshuffle<16, 1>(part, turn, swap); break;
    }
}
