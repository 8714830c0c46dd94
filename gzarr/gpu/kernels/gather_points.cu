// gather_points: copies single elements of the caller's array to given positions in a wave of plain chunks.
//
// This mirrors place_points. One thread makes one unit: an element of up to 16 bytes, or one 16-byte piece of a larger
// one. Chunk i is row i.
//
// Traffic for an element of s bytes: 20 bytes of tables, read in order; s bytes read, coalesced if the sorted points
// are in the order of the value; one 32-byte sector of the chunk written, which nearby points share.
#include "unit.cuh"

// No element of a row occurs twice: the tables hold the last value only. itemsize is a multiple of swap_unit.
extern "C" __global__ void gather_points(i64 n_points, const i32 *point_part, const i64 *point_elem,
                                         const i64 *point_from, const void *value, void *rows, i64 row_nbytes,
                                         i64 itemsize, i64 swap_unit) {
    bool is_number = itemsize == 1 || itemsize == 2 || itemsize == 4 || itemsize == 8;
    i64 pieces = (itemsize + 15) / 16;
    i64 total = n_points * pieces;
    for (i64 index = thread_index(); index < total; index += thread_count()) {
        i64 point = (i64)divide((u64)index, (u64)pieces);
        i64 begin = (index - point * pieces) * 16;
        i64 n = itemsize - begin < 16 ? itemsize - begin : 16;
        const u8 *from = (const u8 *)value + point_from[point] + begin;
        u8 *to = (u8 *)rows + point_part[point] * row_nbytes + point_elem[point] * itemsize + begin;
        Unit unit = {0, 0};
        if (is_number) {
            unit.low = load_number(from, (int)n);
        } else {
            unit = n == 16 ? load_unit(from, from, from + 16) : load_bytes(from, n);
        }
        swap_bytes(unit, swap_unit);
        if (is_number) {
            store_number(to, unit.low, (int)n);
        } else if (n == 16) {
            store_unit(to, unit);
        } else {
            store_bytes(to, unit, n);
        }
    }
}
