// Rows of odd lengths or at odd addresses, as copy_plain and copy_bytes copy them: in windows, 16 bytes at a multiple of
// 16 of the target. Of a plain chunk, they are cut out of the two such pieces of the source that they lie across.
//
// A thread does the same window of up to eight rows that follow each other along the first level, so that it divides
// once. Windows that all rows fill come first; then, in warps of their own, that which only some fill, and the ends of
// rows: up to 15 bytes before the first window, and behind the last. A thread does these of four rows.
#pragma once
#include "rows.cuh"
#include "unit.cuh"

const u32 ROWS_EACH = 8, ENDS_EACH = 4;

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

// n <= 16 bytes, which lie in `nbytes` >= 32 that begin at `first` and may be read.
GPU Words<16> load_window(const u8 *from, u32 n, const u8 *first, u32 nbytes) {
    u32 shift = (u32)(u64)from & 15;
    const u8 *block = (const u8 *)((u64)from & ~(u64)15);
    if ((u32)(u64)block - (u32)(u64)first > nbytes - 32) {
        Unit unit = load_bytes(from, n);
        return {{(u32)unit.low, (u32)(unit.low >> 32), (u32)unit.high, (u32)(unit.high >> 32)}};
    }
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

// The rows of a plain part, one after the other.
struct PlainRow {
    const u8 *at; // of the row, or of its bytes from 16 times the number of the window on
    i64 step;     // to the next row
    const u8 *__restrict__ first;
    u32 nbytes; // that may be read from `first` on
    u32 moves;  // 0 if each window is the same, since rows of a missing chunk begin with whole elements

    GPU Words<16> operator()(u32 skip, u32 n) const { return load_window(at + skip, n, first, nbytes); }
    GPU void next() { at += step; }
};

GPU PlainRow plain_row(const Part &part, u32 from, const void *fill) {
    u32 log = part.kind & 3;
    const u8 *first = part.from;
    if (first == nullptr) return {(const u8 *)fill, 0, (const u8 *)fill, 32, 0};
    return {first + ((u64)from << log), (i64)(i32)part.rows.from * (1 << log), first, part.rows.source_nbytes, ~0u};
}

// One window of n_rows rows, from the first on. log: of the bytes that `to` and steps count.
template <bool END, typename Row>
GPU void copy_windows(const Part &part, u32 kind, Row row, u32 to, u32 n_rows, u32 log, u32 swap_unit) {
    u32 nbytes = part.rows.nbytes;
    u8 *target = part.to + ((u64)to << log);
    i64 step = (i64)(i32)part.rows.to * (1 << log);
#pragma unroll 1
    for (; n_rows != 0; n_rows--, row.next(), target += step) {
        u32 skip = -(u32)(u64)target & 15, n = 16;
        if (END && kind == MOSTLY_FULL && skip > (nbytes & 15)) continue;
        if (END && kind == BEFORE) {
            n = skip;
            skip = 0;
        } else if (END && kind == BEHIND) {
            n = ((u32)(u64)target + nbytes) & 15;
            skip = nbytes - n;
        }
        if (END && n == 0) continue;
        Words<16> words = row(END ? skip & row.moves : skip, n);
        if (swap_unit > 1) swap_words(words, swap_unit);
        if (!END || kind == MOSTLY_FULL) {
            store_words(target + skip, words);
        } else if (kind == BEFORE) {
            store_before(target, words, n);
        } else {
            store_behind(target + skip, words, n);
        }
    }
}

// The windows of a unit, of which there are per_run for each group of rows, and then three for each half of a group.
// row_at: makes the row at an offset in the source.
template <typename RowAt> GPU void copy_rows(const Part &part, u32 unit, u32 log, u32 swap_unit, const RowAt &row_at) {
    const Rows &rows = part.rows;
    u32 group = divide(unit, part.by), column = unit - group * part.per_run, kind = FULL;
    u32 skip = 0, most = ROWS_EACH;
    if (unit >= rows.n_groups * part.per_run) {
        u32 end = unit - rows.ends, each = (2 * rows.n_groups + 31) & ~31u;
        kind = MOSTLY_FULL + (end >= each) + (end >= 2 * each);
        end -= (kind - MOSTLY_FULL) * each;
        if (unit < rows.ends || end >= 2 * rows.n_groups) return;
        group = end / 2;
        most = ENDS_EACH;
        skip = end % 2 * most;
        column = kind == MOSTLY_FULL ? part.per_run : 0;
    }
    u32 from = part.from_start + column * part.from_step, to = part.to_start + column * part.to_step;
    u32 first = 0; // number of the group along the first level
    if (part.n_levels != 0) {
        u32 last = part.n_levels - 1;
        first = group;
#pragma unroll 1
        for (u32 axis = 0; axis < last; axis++) {
            const Level level = part.levels[axis];
            u32 next = divide(group, level.by), index = group - next * level.count;
            if (axis == 0) first = index;
            from += index * level.from;
            to += index * level.to;
            group = next;
        }
        from += group * part.levels[last].from;
        to += group * part.levels[last].to;
    }
    from += skip * rows.from;
    to += skip * rows.to;
    skip += first * ROWS_EACH;
    if (skip >= rows.count) return;
    u32 rest = rows.count - skip, n_rows = rest < most ? rest : most;
    if (kind == FULL) {
        copy_windows<false>(part, kind, row_at(from), to, n_rows, log, swap_unit);
    } else {
        copy_windows<true>(part, kind, row_at(from), to, n_rows, log, swap_unit);
    }
}
