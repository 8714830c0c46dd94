// copy_plain: copies boxes of plain chunks, or of the caller's array into chunks, and fills those of missing chunks.
//
// Traffic for each byte: one read and one write; a missing chunk reads nothing. A warp writes 512 contiguous bytes at
// once if addresses and rows are multiples of 16, or of rows that are long enough for windows; else 256, 128, 64 or 32.
#include "windows.cuh"

// Units of V bytes.
template <int V> struct Plain {
    static const int NBYTES = V;
    const u8 *__restrict__ from;
    i64 step;

    GPU Words<V> operator()(u32 unit) const { return load_words<V>(from + (i64)unit * step); }
};

// Units of K items of T bytes that lie apart in the source. A run goes along an axis that is contiguous there, so a warp
// reads 32 items next to each other, and writes a unit in each of 32 rows: half of a sector, or less.
template <int T, int K> struct Gathered {
    static const int NBYTES = T * K;
    const u8 *__restrict__ from;
    i64 step, apart; // bytes to the next unit, and from one item to the next

    GPU Words<T * K> operator()(u32 unit) const {
        const u8 *at = from + (i64)unit * step;
        Words<T * K> words;
#pragma unroll
        for (int k = 0; k < K; k++, at += apart) set_item<T>(words.at, k, load_words<T>(at));
        return words;
    }
};

template <int T, int K> GPU void gather(const Part &part, const Task &task, u32 swap_unit) {
    const u8 *from = part.from + (u64)task.from * T;
    Gathered<T, K> load = {from, (i64)(i32)part.rows.from * T, (i64)(i32)part.item_step * T};
    copy_units<(K > 2 ? 1 : T == 8 ? 2 : 4)>(part, task, load, swap_unit);
}

GPU void gather_part(const Part &part, const Task &task, u32 swap) {
    switch (part.kind) { // 8 log2 K + log2 T
    case 8: gather<1, 2>(part, task, swap); break;
    case 9: gather<2, 2>(part, task, swap); break;
    case 10: gather<4, 2>(part, task, swap); break;
    case 11: gather<8, 2>(part, task, swap); break;
    case 16: gather<1, 4>(part, task, swap); break;
    case 17: gather<2, 4>(part, task, swap); break;
    case 18: gather<4, 4>(part, task, swap); break;
    case 24: gather<1, 8>(part, task, swap); break;
    case 25: gather<2, 8>(part, task, swap); break;
    default: gather<1, 16>(part, task, swap); break;
    }
}

// The first n of 16 bytes of items of T bytes that lie apart in the source.
template <int T> GPU Words<16> gather_some(const u8 *at, i64 step, u32 n, u32 swap_unit) {
    Words<16> words = {};
    if (n >= 16) {
        words = Gathered<T, 16 / T>{at, 0, step}(0);
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
    if (unit >= part.rows.n_runs) return;
    Task task = find_task(part, lists, unit);
    u32 run = divide(unit, part.by), count = part.levels[0].count;
    u32 n = run - divide(run, part.levels[0].by) * count == count - 1 ? part.rows.nbytes : 64;
    const u8 *from = part.from + (u64)task.from * T;
    u8 *to = part.to + (u64)task.to * T;
    u32 shift = -(u32)(u64)to & 15;
    Words<16> next, words = gather_some<T>(from, (i64)(i32)part.item_step * T, 16, swap_unit);
    store_before(to, words, shift);
#pragma unroll 1
    for (u32 at = shift; at < n; at += 16, words = next) {
        u32 gathered = at - shift + 16;
        i64 step = (i64)(i32)part.item_step * T; // each time, so that its multiples take no registers between
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
template <int V> GPU void copy_part(const Part &part, const Task &task, u32 swap_unit, const void *fill) {
    const u8 *from = part.from == nullptr ? (const u8 *)fill : part.from + (u64)task.from * V;
    copy_units<4>(part, task, Plain<V>{from, (i64)(i32)part.rows.from * V}, swap_unit);
}

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
// fill: 32 bytes that a missing chunk is full of, before they are swapped.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, COPY_BLOCKS)
    copy_plain(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit,
               const void *fill) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 number = first_task(grid, blockIdx.x);
    if (number >= part.n_tasks) {
        switch (part.kind) {
        case IN_PIECES: gather_piece<1>(part, lists, number, swap); break;
        case IN_PIECES + 1: gather_piece<2>(part, lists, number, swap); break;
        case IN_PIECES + 2: gather_piece<4>(part, lists, number, swap); break;
        default:
            if (part.kind < IN_WINDOWS) return;
            copy_rows(part, lists, number, part.kind & 3, swap, [&](u32 from) { return plain_row(part, from, fill); });
        }
        return;
    }
    Task task = find_task(part, lists, number);
    switch (part.kind) { // log2 V
    case 0: copy_part<1>(part, task, swap, fill); break;
    case 1: copy_part<2>(part, task, swap, fill); break;
    case 2: copy_part<4>(part, task, swap, fill); break;
    case 3: copy_part<8>(part, task, swap, fill); break;
    case 4: copy_part<16>(part, task, swap, fill); break;
    default: gather_part(part, task, swap); break;
    }
}
