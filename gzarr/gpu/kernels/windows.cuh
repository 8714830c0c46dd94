// Rows of odd lengths or at odd addresses, as copy_plain and copy_bytes copy them: in windows, 16 bytes at a multiple of
// 16 of the target. Of a plain chunk, they are cut out of the two such pieces of the source that they lie across.
//
// A thread does up to eight windows at the same addresses modulo 16 in both memories, along a row, or of rows so far
// apart. Windows that all rows fill come first; then, in warps of their own, that which only some fill, and the ends of
// rows: up to 15 bytes before the first window, and behind the last.
#pragma once
#include "rows.cuh"
#include "unit.cuh"

// Bytes `shift` < 16 to `shift` + 15 of two pieces.
GPU Words<16> cut_window(const Words<16> &low, const Words<16> &high, u32 shift) {
    Words<16> words;
    const u32 all[] = {low.at[0], low.at[1], low.at[2], low.at[3], high.at[0], high.at[1], high.at[2], high.at[3]};
    u32 some[6], five[5];
#pragma unroll
    for (int k = 0; k < 6; k++) some[k] = (shift & 8) != 0 ? all[k + 2] : all[k];
#pragma unroll
    for (int k = 0; k < 5; k++) five[k] = (shift & 4) != 0 ? some[k + 1] : some[k];
    u32 select = 0x3210 + 0x1111 * (shift & 3);
#pragma unroll
    for (int k = 0; k < 4; k++) words.at[k] = __byte_perm(five[k], five[k + 1], select);
    return words;
}

// Whether the two pieces that 16 bytes lie across are in `nbytes` >= 32 that begin at `first` and may be read.
GPU bool is_inside(const u8 *from, const u8 *first, u32 nbytes) {
    return ((u32)(u64)from & ~15u) - (u32)(u64)first <= nbytes - 32;
}

// n <= 16 bytes. inside: whether the pieces that they lie across may be read.
GPU Words<16> load_window(const u8 *from, u32 n, bool inside) {
    if (!inside) {
        Unit unit = load_bytes(from, n);
        return {{(u32)unit.low, (u32)(unit.low >> 32), (u32)unit.high, (u32)(unit.high >> 32)}};
    }
    u32 shift = (u32)(u64)from & 15;
    const u8 *block = (const u8 *)((u64)from & ~(u64)15);
    Words<16> low = load_words<16>(block), high = low;
    if (n == 16 || shift + n > 16) high = load_words<16>(block + 16);
    return cut_window(low, high, shift);
}

// The first n < 16 bytes, which end at a multiple of 16.
GPU void store_before(u8 *to, const Words<16> &words, u32 n) {
    u32 a = words.at[0], b = words.at[1], c = words.at[2], d = words.at[3];
    if ((n & 1) != 0) {
        __stcs(to, (u8)a);
        to += 1;
        a = __byte_perm(a, b, 0x4321);
        b = __byte_perm(b, c, 0x4321);
        c = __byte_perm(c, d, 0x4321);
        d >>= 8;
    }
    if ((n & 2) != 0) {
        __stcs((u16 *)to, (u16)a);
        to += 2;
        a = __byte_perm(a, b, 0x5432);
        b = __byte_perm(b, c, 0x5432);
        c = __byte_perm(c, d, 0x5432);
    }
    if ((n & 4) != 0) {
        __stcs((u32 *)to, a);
        to += 4;
        a = b;
        b = c;
    }
    if ((n & 8) != 0) __stcs((uint2 *)to, uint2{a, b});
}

// The first n < 16 bytes, which begin at a multiple of 16.
GPU void store_behind(u8 *to, const Words<16> &words, u32 n) {
    u32 a = words.at[0], b = words.at[1];
    if ((n & 8) != 0) {
        __stcs((uint2 *)to, uint2{a, b});
        to += 8;
        a = words.at[2];
        b = words.at[3];
    }
    if ((n & 4) != 0) {
        __stcs((u32 *)to, a);
        to += 4;
        a = b;
    }
    if ((n & 2) != 0) {
        __stcs((u16 *)to, (u16)a);
        to += 2;
        a >>= 16;
    }
    if ((n & 1) != 0) __stcs(to, (u8)a);
}

enum { FULL, MOSTLY_FULL, BEFORE, BEHIND };

// The rows of a plain part, one after the other, which are at the same addresses modulo 16.
struct PlainRow {
    const u8 *at; // of the row, or of its bytes from 16 times the number of the window on; then of the window
    i32 step;     // to the next row
    const u8 *__restrict__ first;
    u32 nbytes; // that may be read from `first` on
    u32 moves;  // 0 if each window is the same, since rows of a missing chunk begin with whole elements
    bool inside; // whether they all can be cut out of whole pieces, for which the first and the last tell

    // Skip so many bytes, to the windows of n rows.
    GPU void skip(u32 skipped, u32 n) {
        at += skipped & moves;
        inside = is_inside(at, first, nbytes) && is_inside(at + (i64)((i32)(n - 1) * step), first, nbytes);
    }
    GPU Words<16> operator()(u32 n) const { return load_window(at, n, inside || is_inside(at, first, nbytes)); }
    GPU void next() { at += step; }
};

GPU PlainRow plain_row(const Part &part, u32 from, const void *fill) {
    u32 log = part.kind & 3;
    const u8 *first = part.from;
    if (first == nullptr) return {(const u8 *)fill, 0, (const u8 *)fill, 32, 0, true};
    i32 step = (i32)(part.rows.from << log);
    return {first + ((u64)from << log), step, first, part.rows.source_nbytes, ~0u, true};
}

// The windows of a task, n bytes of each of so many rows. END: of fewer than 16 bytes, before or behind others.
template <bool END, typename Row>
GPU void copy_windows(Row row, u8 *target, i32 step, u32 n_rows, u32 n, u32 swap_unit) {
    bool before = ((u64)target & 15) != 0;
#pragma unroll 1
    for (; n_rows != 0; n_rows--, row.next(), target += step) {
        Words<16> words = row(n);
        if (swap_unit > 1) swap_words(words, swap_unit);
        if (!END) {
            store_words(target, words);
        } else if (before) {
            store_before(target, words, n);
        } else {
            store_behind(target, words, n);
        }
    }
}

// The windows of task `number`, of which there are per_run for each run, and then three at the ends of each.
// row_at: makes the row at an offset in the source.
template <typename RowAt>
GPU void copy_rows(const Part &part, const i32 *lists, u32 number, u32 log, u32 swap_unit, const RowAt &row_at) {
    const Rows &rows = part.rows;
    u32 run = divide(number, part.by), column = number - run * part.per_run, kind = FULL;
    if (run >= rows.n_runs) {
        u32 each = (rows.n_runs + 31) & ~31u;
        run = number - rows.ends;
        kind = MOSTLY_FULL + (run >= each) + (run >= 2 * each);
        run -= (kind - MOSTLY_FULL) * each;
        if (number < rows.ends || run >= rows.n_runs) return;
        column = kind == MOSTLY_FULL ? rows.nbytes / 16 - 1 : 0;
    }
    Task task = find_task(part, lists, run, column);
    u8 *target = part.to + ((u64)task.to << log);
    u32 skip = -(u32)(u64)target & 15, n = 16, n_rows = kind != FULL && part.along_run != 0 ? 1 : task.n;
    if (kind == MOSTLY_FULL && skip > (rows.nbytes & 15)) return;
    if (kind == BEFORE) {
        n = skip;
        skip = 0;
    } else if (kind == BEHIND) {
        n = ((u32)(u64)target + rows.nbytes) & 15;
        skip = rows.nbytes - n;
    }
    auto row = row_at(task.from);
    row.skip(skip, n_rows);
    i32 step = (i32)(rows.to << log);
    if (n == 16) {
        copy_windows<false>(row, target + skip, step, n_rows, 16, swap_unit);
    } else if (n != 0) {
        copy_windows<true>(row, target + skip, step, n_rows, n, swap_unit);
    }
}
