// gather_box: copies the values of a separable selection from the caller's array into a wave of plain chunks.
//
// This mirrors place_box. Elements are numbered part by part, each part in C order of its spans, with the axes in the
// order of the chunks' memory, so that consecutive threads write consecutive units. One thread makes one unit of 16
// bytes: 16 / itemsize consecutive elements of 1, 2, 4 or 8 bytes, or one 16-byte piece of a larger (or odd) element.
// Chunk i is row i. An element of the caller's array begins at value + part_from + sum(index * part_stride), with
// strides of any sign, so parts may belong to several arrays or be packed.
//
// Traffic for an element of s bytes: s read and s written. If the value is transposed relative to the chunk, or indexed
// with a step, each element reads a 32-byte sector and relies on L2 for its neighbours.
#include "box.cuh"
#include "unit.cuh"

struct Gather {
    Spans spans;
    u8 *value;
    const i64 *part_from, *part_stride, *chunk_stride;
    u8 *rows;
    i64 row_nbytes, itemsize, swap_unit;
};

GPU Row row_of(const Gather &gather, i64 part, i64 rest) {
    return row_of(gather.spans, part, rest, gather.chunk_stride, gather.value + gather.part_from[part],
                  gather.part_stride + part * gather.spans.ndim);
}

// Address of element k of a row in the chunk.
GPU u8 *target_of(const Gather &gather, i64 part, const Row &row, i64 k) {
    return gather.rows + part * gather.row_nbytes + in_element(gather.spans, row, k) * gather.itemsize;
}

// The first n elements of a row, n <= 16 / size, of `size` bytes each.
GPU void gather_elements(const Gather &gather, i64 part, const Row &row, int n, int size) {
    const Spans &spans = gather.spans;
    bool whole = n * size == 16;
    const u8 *from = out_address(spans, row, 0);
    Unit unit = {0, 0};
    // If 16 bytes are not one access, elements are read one by one, as they are aligned more often than units.
    if (whole && ((u64)from & 15) == 0 && joined_out(spans, row, size)) {
        unit = load_unit(from, from, from + 16);
    } else {
#pragma unroll 4
        for (int k = 0; k < n; k++) put(unit, k * size, load_number(out_address(spans, row, k), size));
    }
    swap_bytes(unit, gather.swap_unit);
    if (whole && joined_in(spans, row)) {
        store_unit(target_of(gather, part, row, 0), unit);
        return;
    }
#pragma unroll 2
    for (int k = 0; k < n; k++) store_number(target_of(gather, part, row, k), get(unit, k * size), size);
}

// Elements [first, last) of the wave, at most 16 / size of them. They may lie in several rows and parts.
GPU void gather_small(const Gather &gather, i64 first, i64 last, int size) {
    i64 part = find_row(gather.spans.elem_start, gather.spans.n_parts, first);
    while (first < last) {
        while (first >= gather.spans.elem_start[part + 1]) part++;
        Row row = row_of(gather, part, first - gather.spans.elem_start[part]);
        int n = (int)(last - first < row.left ? last - first : row.left);
        gather_elements(gather, part, row, n, size);
        first += n;
    }
}

// Bytes [begin, begin + 16) of one element, or as many as it has.
GPU void gather_piece(const Gather &gather, i64 element, i64 begin) {
    i64 part = find_row(gather.spans.elem_start, gather.spans.n_parts, element);
    Row row = row_of(gather, part, element - gather.spans.elem_start[part]);
    i64 n = gather.itemsize - begin < 16 ? gather.itemsize - begin : 16;
    const u8 *from = out_address(gather.spans, row, 0) + begin;
    u8 *to = target_of(gather, part, row, 0) + begin;
    Unit unit = n == 16 ? load_unit(from, from, from + 16) : load_bytes(from, n);
    swap_bytes(unit, gather.swap_unit);
    if (n == 16) {
        store_unit(to, unit);
    } else {
        store_bytes(to, unit, n);
    }
}

// itemsize is a multiple of swap_unit. No element of a row is written twice: the tables hold the last value only.
extern "C" __global__ void gather_box(i64 n_parts, i64 ndim, const void *value, const i64 *part_from,
                                      const i64 *part_stride, const i32 *part_span, const i64 *axis_base,
                                      const i64 *in_start, const i64 *in_step, const i64 *out_start,
                                      const i64 *out_step, const i64 *count, const i64 *in_list, const i64 *out_list,
                                      const i64 *index_pool, const i64 *elem_start, const i64 *chunk_stride,
                                      void *rows, i64 row_nbytes, i64 itemsize, i64 swap_unit) {
    if (n_parts == 0) return;
    Gather gather;
    gather.spans = {n_parts,  ndim,  part_span, axis_base, in_start,   in_step,   out_start,
                    out_step, count, in_list,   out_list,  index_pool, elem_start};
    gather.value = (u8 *)value;
    gather.part_from = part_from;
    gather.part_stride = part_stride;
    gather.chunk_stride = chunk_stride;
    gather.rows = (u8 *)rows;
    gather.row_nbytes = row_nbytes;
    gather.itemsize = itemsize;
    gather.swap_unit = swap_unit;
    i64 total = elem_start[n_parts];
    if (itemsize == 1 || itemsize == 2 || itemsize == 4 || itemsize == 8) {
        i64 each = 16 / itemsize;
        for (i64 first = thread_index() * each; first < total; first += thread_count() * each) {
            gather_small(gather, first, first + each < total ? first + each : total, (int)itemsize);
        }
        return;
    }
    i64 pieces = (itemsize + 15) / 16;
    for (i64 unit = thread_index(); unit < total * pieces; unit += thread_count()) {
        i64 element = (i64)divide((u64)unit, (u64)pieces);
        gather_piece(gather, element, (unit - element * pieces) * 16);
    }
}
