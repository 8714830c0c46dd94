// find_written: finds the chunks of a wave that differ from the fill value in any bit.
//
// One thread compares one unit of 16 bytes with the unit of fill values that belongs there: the same one everywhere, or
// of elements that do not fill units evenly, as records, the next of several. Flags must be zero at the start; all
// threads that find a difference write the same. A chunk that is known to differ is not read further, and most chunks
// differ in their first unit.
//
// Traffic: at most one read of each byte of a chunk that equals the fill value.
#include "unit.cuh"

extern "C" __global__ void find_written(i64 n_rows, i64 row_nbytes, const void *rows, i64 fills, const void *fill,
                                        u8 *written) {
    Unit wanted = load_bytes((const u8 *)fill, 16);
    i64 units = (row_nbytes + 15) / 16;
    for (i64 index = thread_index(); index < n_rows * units; index += thread_count()) {
        i64 row = (i64)divide((u64)index, (u64)units);
        if (*(volatile u8 *)(written + row)) continue;
        i64 number = index - row * units, position = number * 16;
        i64 left = row_nbytes - position;
        const u8 *first = (const u8 *)rows + row * row_nbytes;
        const u8 *of_unit = (const u8 *)fill;
        if (fills > 1) of_unit += (number - (i64)divide((u64)number, (u64)fills) * fills) * 16;
        Unit unit, here = fills > 1 ? load_bytes(of_unit, 16) : wanted;
        if (left >= 16) {
            unit = load_unit(first + position, first, first + row_nbytes);
        } else {
            unit = load_bytes(first + position, left);
            here = load_bytes(of_unit, left);
        }
        if (unit.low != here.low || unit.high != here.high) written[row] = 1;
    }
}
