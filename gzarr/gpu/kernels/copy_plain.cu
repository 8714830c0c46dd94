// copy_plain: copies boxes of plain chunks, or of the caller's array into chunks, and fills those of missing chunks.
//
// Traffic for each byte: one read and one write; a missing chunk reads nothing. A warp writes 512 contiguous bytes at
// once if addresses and rows are multiples of 16, or of rows that are long enough for windows; else 256, 128, 64 or 32.
#include "windows.cuh"

template <int V> struct Plain {
    static const int NBYTES = V;
    const u8 *__restrict__ from;

    GPU Words<V> operator()(u32 offset) const { return load_words<V>(from + (u64)offset * V); }
};

// Units of K items of T bytes that lie apart in the source. A run goes along an axis that is contiguous there, so a warp
// reads 32 items next to each other, and writes a unit in each of 32 rows: half of a sector, or less.
template <int T, int K> struct Gathered {
    static const int NBYTES = T * K;
    const u8 *__restrict__ from;
    i64 step; // bytes from one item to the next

    GPU Words<T * K> operator()(u32 offset) const {
        const u8 *at = from + (u64)offset * T;
        Words<T * K> words;
#pragma unroll
        for (int k = 0; k < K; k++, at += step) set_item<T>(words.at, k, load_words<T>(at));
        return words;
    }
};

template <int T, int K, int EACH> GPU void gather(const Part &part, const Turn<EACH> &turn, u32 swap_unit) {
    Gathered<T, K> load = {part.from, (i64)(i32)part.item_step * T};
    copy_units<Gathered<T, K>, (K > 4 ? 1 : EACH), EACH>(part, turn, load, swap_unit);
}

template <int EACH> GPU void gather_part(const Part &part, const Turn<EACH> &turn, u32 swap) {
    switch (part.kind) { // 8 log2 K + log2 T
    case 8: gather<1, 2>(part, turn, swap); break;
    case 9: gather<2, 2>(part, turn, swap); break;
    case 10: gather<4, 2>(part, turn, swap); break;
    case 11: gather<8, 2>(part, turn, swap); break;
    case 16: gather<1, 4>(part, turn, swap); break;
    case 17: gather<2, 4>(part, turn, swap); break;
    case 18: gather<4, 4>(part, turn, swap); break;
    case 24: gather<1, 8>(part, turn, swap); break;
    case 25: gather<2, 8>(part, turn, swap); break;
    default: gather<1, 16>(part, turn, swap); break;
    }
}

// fill: bytes, of which each unit of a missing chunk gets the first V.
template <int V, int EACH> GPU void copy_part(const Part &part, const Turn<EACH> &turn, u32 swap_unit, const void *fill) {
    const u8 *from = part.from;
    Plain<V> load = {from == nullptr ? (const u8 *)fill : from};
    copy_units<Plain<V>, EACH, EACH>(part, turn, load, swap_unit);
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
// fill: 32 bytes that a missing chunk is full of, before they are swapped.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    copy_plain(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit,
               const void *fill) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 first = first_unit(grid, blockIdx.x);
    if (first >= part.n_units) {
        if (part.kind >= IN_WINDOWS) {
            copy_rows(part, first / BLOCK_UNITS * BLOCK_THREADS + threadIdx.x, swap, fill);
        }
        return;
    }
    Turn<4> turn = find_units<4>(part, lists, first);
    switch (part.kind) { // log2 V
    case 0: copy_part<1>(part, turn, swap, fill); break;
    case 1: copy_part<2>(part, turn, swap, fill); break;
    case 2: copy_part<4>(part, turn, swap, fill); break;
    case 3: copy_part<8>(part, turn, swap, fill); break;
    case 4: copy_part<16>(part, turn, swap, fill); break;
    default: gather_part(part, turn, swap); break;
    }
}
