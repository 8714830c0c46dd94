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

// The first n of 16 bytes of items of T bytes that lie apart in the source.
template <int T> GPU Words<16> gather_some(const u8 *at, i64 step, u32 n, u32 swap_unit) {
    Words<16> words = {};
    if (n >= 16) {
        words = Gathered<T, 16 / T>{at, step}(0);
    } else {
#pragma unroll
        for (u32 k = 0; k < 16 / T; k++, at += step) {
            if (k * T < n) set_item<T>(words.at, k, load_words<T>(at));
        }
    }
    if (swap_unit > 1) swap_words(words, swap_unit);
    return words;
}

// A piece of a row at any address: 64 bytes, or the last 64 to 127; or a row of 16 to 63 bytes. Its windows are cut out of
// what is gathered.
template <int T> GPU void gather_piece(const Part &part, const i32 *__restrict__ lists, u32 unit, u32 swap_unit) {
    if (unit >= part.rows.n_groups) return;
    Turn<1> turn = find_units<1>(part, lists, unit);
    u32 run = divide(unit, part.by), count = part.levels[0].count;
    u32 n = run - divide(run, part.levels[0].by) * count == count - 1 ? part.rows.nbytes : 64;
    const u8 *from = part.from + (u64)turn.from[0] * T;
    u8 *to = part.to + (u64)turn.to[0] * T;
    i64 step = (i64)(i32)part.item_step * T;
    u32 shift = -(u32)(u64)to & 15;
    Words<16> next, words = gather_some<T>(from, step, 16, swap_unit);
    store_before(to, words, shift);
#pragma unroll 1
    for (u32 at = shift; at < n; at += 16, words = next) {
        u32 gathered = at - shift + 16;
        from += step * (16 / T);
        if (gathered < n) next = gather_some<T>(from, step, n - gathered, swap_unit);
        Words<16> window = cut_window(words, next, shift);
        if (at + 16 <= n) {
            store_words(to + at, window);
        } else {
            store_behind(to + at, window, n - at);
        }
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
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, COPY_BLOCKS)
    copy_plain(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit,
               const void *fill) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 first = first_unit(grid, blockIdx.x);
    if (first >= part.n_units) {
        u32 unit = first / BLOCK_UNITS * BLOCK_THREADS + threadIdx.x;
        switch (part.kind) {
        case IN_PIECES: gather_piece<1>(part, lists, unit, swap); break;
        case IN_PIECES + 1: gather_piece<2>(part, lists, unit, swap); break;
        case IN_PIECES + 2: gather_piece<4>(part, lists, unit, swap); break;
        default:
            if (part.kind < IN_WINDOWS) return;
            copy_rows(part, unit, part.kind & 3, swap, [&](u32 from) { return plain_row(part, from, fill); });
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
