// copy_bytes: copies boxes of byte-shuffled chunks, with items of 2, 4, 8 or 16 bytes.
//
// Traffic for each byte: one read and one write. A thread reads K bytes of each plane, a warp 32 K contiguous ones. Of odd
// rows, the bytes of a window are cut out of the two aligned pieces of a plane that they lie across.
#include "windows.cuh"

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;
    u32 from, step; // bytes of the plain chunk: of the first unit, and to the next

    GPU Words<T * K> operator()(u32 unit) const { return at(from + unit * step); }
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

template <int T, int K> GPU void unshuffle(const Part &part, const Task &task, u32 swap_unit) {
    const u32 AT_ONCE = T == 16 ? 1 : T == 8 ? 2 : 4; // what registers hold
    const Blocks blocks = part.blocks;
    Unshuffled<T, K> load = {part.from, blocks, blocks.start + task.from * (T * K), part.rows.from * (T * K)};
    copy_units<AT_ONCE>(part, task, load, swap_unit);
}

// K = 4 or 8 bytes at any address. Up to K - 1 before them and K behind are loaded as well.
template <int K> GPU void load_plane(u32 (&plane)[K / 4], const u8 *__restrict__ from) {
    const u8 *block = (const u8 *)((u64)from & ~(u64)(K - 1));
    u32 shift = (u32)(u64)from & (K - 1), select = 0x3210 + 0x1111 * (shift & 3);
    if (K == 4) {
        plane[0] = __byte_perm(*(const u32 *)block, *(const u32 *)(block + 4), select);
    } else {
        uint2 low = *(const uint2 *)block, high = *(const uint2 *)(block + 8);
        u32 middle = shift < 4 ? low.y : high.x;
        plane[0] = __byte_perm(shift < 4 ? low.x : low.y, middle, select);
        plane[1 % (K / 4)] = __byte_perm(middle, shift < 4 ? high.x : high.y, select);
    }
}

// The rows of a part, one after the other, whose windows are of K items of 2 or 4 bytes.
template <int T> struct ShuffledRow {
    static const int K = 16 / T;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;
    u32 at, step; // bytes of the plain chunk: where the row is, and to the next

    GPU void skip(u32 skipped, u32) { at += skipped; }
    GPU Words<16> operator()(u32 n) const {
        Item item = item_of<T>(blocks, at);
        u32 planes[T][K / 4];
        // What is loaded begins before the items, and ends behind them; of fewer items, the rest is not stored.
        if (item.number + 1 >= K && item.number + 2 * K <= item.n_items) {
            const u8 *from = chunk + (item.block + item.number);
#pragma unroll
            for (int j = 0; j < T; j++, from += item.n_items) load_plane<K>(planes[j], from);
            return join_items<T, K>(planes);
        }
        Words<16> words = {};
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            if (k * T < n) set_item<T>(words.at, k, Unshuffled<T, 1>{chunk, blocks, 0, 0}.at(at + k * T));
        }
        return words;
    }
    GPU void next() { at += step; }
};

template <int T> GPU void copy_rows_of(const Part &part, const i32 *lists, u32 number, u32 swap_unit) {
    const u32 LOG = T == 2 ? 1 : 2;
    copy_rows(part, lists, number, LOG, swap_unit, [&](u32 from) {
        return ShuffledRow<T>{part.from, part.blocks, part.blocks.start + (from << LOG), part.rows.from << LOG};
    });
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, COPY_BLOCKS)
    copy_bytes(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 number = first_task(grid, blockIdx.x);
    if (number >= part.n_tasks) {
        if (part.kind == IN_WINDOWS + 8) copy_rows_of<2>(part, lists, number, swap);
        if (part.kind == IN_WINDOWS + 16) copy_rows_of<4>(part, lists, number, swap);
        return;
    }
    Task task = find_task(part, lists, number);
    switch (part.kind) { // 8 log2 T + log2 K
    case 8: unshuffle<2, 1>(part, task, swap); break;
    case 9: unshuffle<2, 2>(part, task, swap); break;
    case 10: unshuffle<2, 4>(part, task, swap); break;
    case 11: unshuffle<2, 8>(part, task, swap); break;
    case 16: unshuffle<4, 1>(part, task, swap); break;
    case 17: unshuffle<4, 2>(part, task, swap); break;
    case 18: unshuffle<4, 4>(part, task, swap); break;
    case 24: unshuffle<8, 1>(part, task, swap); break;
    case 25: unshuffle<8, 2>(part, task, swap); break;
    default: unshuffle<16, 1>(part, task, swap); break;
    }
}
