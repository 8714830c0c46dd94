// place_points: copies single elements between chunks, by which they are sorted, and the caller's array.
//
// Reads copy from decoded chunks to results, writes from a value, which is a single source, to chunks.
// One thread makes one unit: an element of up to 16 bytes, or one 16-byte piece of a larger one.
//
// Traffic for an element of s bytes: 20 bytes of tables, read in order; one 32-byte sector of the chunk, which nearby
// points share; s bytes written, coalesced if the sorted points are in the order of the result.
#include "unit.cuh"

struct Points {
    const u64 *source;
    const i64 *source_nbytes;
    const i32 *part;
    const i64 *position, *out_offset;
    i64 copy_nbytes, swap_unit;
    u8 *out;
    const u8 *fill;
};

GPU Bytes bytes_of(const Points &points, i64 point) {
    i32 part = points.part[point];
    return {at_address(points.source[part]), points.source_nbytes[part]};
}

// An element of 1, 2, 4 or 8 bytes.
GPU void place_number(const Points &points, i64 point) {
    Bytes source = bytes_of(points, point);
    int size = (int)points.copy_nbytes;
    Unit unit = {0, 0};
    if (source.data == nullptr) {
        unit.low = load_number(points.fill, size);
    } else {
        unit.low = load_number(source.data + points.position[point], size);
        swap_bytes(unit, points.swap_unit);
    }
    store_number(points.out + points.out_offset[point], unit.low, size);
}

// Bytes [begin, begin + 16) of one element, or as many as it has.
GPU void place_piece(const Points &points, i64 point, i64 begin) {
    Bytes source = bytes_of(points, point);
    i64 n = points.copy_nbytes - begin < 16 ? points.copy_nbytes - begin : 16;
    u8 *to = points.out + points.out_offset[point] + begin;
    Unit unit;
    if (source.data == nullptr) {
        unit = load_bytes(points.fill + begin, n);
    } else {
        unit = unit_of(source, points.position[point] + begin, n);
        swap_bytes(unit, points.swap_unit);
    }
    if (n == 16) {
        store_unit(to, unit);
    } else {
        store_bytes(to, unit, n);
    }
}

// point_from: bytes into the source. point_out: bytes into out. copy_nbytes is a multiple of swap_unit. The fill value has
// the byte order of out, so it is not swapped.
extern "C" __global__ void place_points(i64 n_points, const i32 *point_part, const i64 *point_from,
                                        const i64 *point_out, const u64 *part_src, void *out, i64 copy_nbytes,
                                        i64 swap_unit, const void *fill, const i64 *part_nbytes) {
    Points points = {part_src,    part_nbytes, point_part, point_from,      point_out,
                     copy_nbytes, swap_unit,   (u8 *)out,  (const u8 *)fill};
    bool is_number = copy_nbytes == 1 || copy_nbytes == 2 || copy_nbytes == 4 || copy_nbytes == 8;
    i64 pieces = (copy_nbytes + 15) / 16;
    i64 total = n_points * pieces;
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 point = (i64)divide((u64)unit, (u64)pieces);
        if (is_number) {
            place_number(points, point);
        } else {
            place_piece(points, point, (unit - point * pieces) * 16);
        }
    }
}
