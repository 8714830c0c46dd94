// copy_bytes: copies boxes of byte-shuffled chunks, with items of 2, 4, 8 or 16 bytes.
//
// Traffic for each byte: one read and one write. A thread reads K bytes of each plane, a warp 32 K contiguous ones. Of odd
// rows, the bytes of a window are cut out of the two aligned pieces of a plane that they lie across.
#include "windows.cuh"

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;

    GPU Words<T * K> operator()(u32 offset) const { return at(blocks.start + offset * (T * K)); }
    GPU Words<T * K> at(u32 position) const {
        Item item = item_of<T>(blocks, position);
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

// K bytes at any address. Of more than two, up to K - 1 before them and K behind are loaded as well.
template <int K> GPU void load_plane(u32 (&plane)[(K + 3) / 4], const u8 *__restrict__ from) {
    const u8 *block = (const u8 *)((u64)from & ~(u64)(K - 1));
    u32 shift = (u32)(u64)from & (K - 1), select = 0x3210 + 0x1111 * (shift & 3);
    if (K == 2) {
        plane[0] = __byte_perm(from[0], from[1], 0x1140);
    } else if (K == 4) {
        plane[0] = __byte_perm(*(const u32 *)block, *(const u32 *)(block + 4), select);
    } else {
        uint2 low = *(const uint2 *)block, high = *(const uint2 *)(block + 8);
        u32 middle = shift < 4 ? low.y : high.x;
        plane[0] = __byte_perm(shift < 4 ? low.x : low.y, middle, select);
        plane[1 % ((K + 3) / 4)] = __byte_perm(middle, shift < 4 ? high.x : high.y, select);
    }
}

// The rows of a part, one after the other, whose windows are of K items.
template <int T> struct ShuffledRow {
    static const int K = 16 / T, A = K < 4 ? 1 : K; // bytes that a load of a plane takes at once
    static const u32 moves = ~0u;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;
    u32 at, step; // bytes of the plain chunk: where the row is, and to the next

    GPU Words<16> operator()(u32 skip, u32 n) const {
        Item item = item_of<T>(blocks, at + skip);
        u32 planes[T][(K + 3) / 4];
        // What is loaded begins before the items, and ends behind them; of fewer items, the rest is not stored.
        if (item.number + 1 >= A && item.number + K + A <= item.n_items) {
            const u8 *from = chunk + (item.block + item.number);
#pragma unroll
            for (int j = 0; j < T; j++, from += item.n_items) load_plane<K>(planes[j], from);
            return join_items<T, K>(planes);
        }
        Words<16> words = {};
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            if (k * T < n) set_item<T>(words.at, k, Unshuffled<T, 1>{chunk, blocks}.at(at + skip + k * T));
        }
        return words;
    }
    GPU void next() { at += step; }
};

template <int T> GPU void copy_rows_of(const Part &part, u32 unit, u32 swap_unit) {
    u32 log = (part.kind & 7) + (T == 2 ? 1 : T == 4 ? 2 : 3);
    copy_rows(part, unit, log, swap_unit, [&](u32 from) {
        return ShuffledRow<T>{part.from, part.blocks, part.blocks.start + (from << log), part.rows.from << log};
    });
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, COPY_BLOCKS)
    copy_bytes(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 first = first_unit(grid, blockIdx.x);
    if (first >= part.n_units) {
        u32 unit = first / BLOCK_UNITS * BLOCK_THREADS + threadIdx.x;
        switch (part.kind / 8) { // log2 T
        case IN_WINDOWS / 8 + 1: copy_rows_of<2>(part, unit, swap); break;
        case IN_WINDOWS / 8 + 2: copy_rows_of<4>(part, unit, swap); break;
        case IN_WINDOWS / 8 + 3: copy_rows_of<8>(part, unit, swap); break;
        }
        return;
    }
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
