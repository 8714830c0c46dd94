// find_written: finds the chunks of a wave that differ from the fill value in any bit.
//
// One thread compares eight units of 16 bytes, each with the unit of fill values that belongs there: the same one
// everywhere, or of elements that do not fill units evenly, as records, the next of several. Flags must be zero at the
// start; all threads that find a difference write the same. A chunk that is known to differ is not read further, and
// most chunks differ in their first unit.
//
// Traffic: at most one read of each byte of a chunk that equals the fill value.
#include "unit.cuh"

extern "C" __global__ void find_written(i64 n_rows, i64 row_nbytes, const void *rows, i64 fills, const void *fill,
                                        u8 *written) {
    i64 units = (row_nbytes + 15) / 16, threads = (units + 7) / 8;
    for (i64 index = thread_index(); index < n_rows * threads; index += thread_count()) {
        i64 row = (i64)divide((u64)index, (u64)threads);
        const u8 *first = (const u8 *)rows + row * row_nbytes, *last = first + row_nbytes;
#pragma unroll 1
        for (i64 number = index - row * threads; number < units; number += threads) {
            if (*(volatile u8 *)(written + row)) break;
            i64 other = fills == 1 ? 0 : number - (i64)divide((u64)number, (u64)fills) * fills;
            const u8 *at = first + number * 16, *wanted = (const u8 *)fill + other * 16;
            bool whole = last - at >= 16;
            Unit unit = whole ? load_unit(at, first, last) : load_bytes(at, last - at);
            Unit here = whole ? load_unit(wanted, wanted, wanted + 16) : load_bytes(wanted, last - at);
            if (unit.low != here.low || unit.high != here.high) written[row] = 1;
        }
    }
}
