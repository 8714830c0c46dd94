// place_box: copies boxes of elements that the fast copies (parts.cuh) cannot: with index lists, or elements of odd sizes.
//
// A box goes through its source and through its target with strides, or lists of indices, of its own. Reads copy from
// decoded chunks to results, writes from values to chunks. Elements are numbered box by box, each box in C order of its
// axes. One thread makes one unit of 16 bytes: 16 / nbytes consecutive elements of 1, 2, 4 or 8 bytes, or one 16-byte
// piece of a larger (or odd) element. If the target is in C order, consecutive threads write consecutive units.
//
// Traffic for an element of s bytes: s read and s written. With a transposed source or a step, each element reads a
// 32-byte sector and relies on L2 for its neighbours. A missing chunk reads nothing. Each unit makes log2(n) + 5 ndim
// loads from tables that stay in cache. Chunks are plain: those that are still shuffled are unshuffled first.
#include "unit.cuh"

// The columns of `gzarr.gpu.kernels.parts.Boxes`: (n,), or (ndim, n) for what every axis has.
struct Boxes {
    i64 n, ndim;
    const u64 *source;
    const i64 *start;
    const u64 *target;
    const i64 *count, *source_stride, *target_stride, *source_list, *target_list, *lists, *elem_start;
    i64 nbytes, swap_unit;
    const u8 *fill;
    const i64 *source_nbytes;
};

GPU Bytes bytes_of(const Boxes &boxes, i64 box) { return {at_address(boxes.source[box]), boxes.source_nbytes[box]}; }

// A run of elements along the last axis.
struct Row {
    i64 from; // position in the source, without the last axis
    u8 *to;   // address in the target, without the last axis
    i64 axis; // the last axis in the columns; -1 for no axis
    i64 first, left; // position on the last axis, and elements from there to the end of the row
};

// Bytes from index 0 of an axis, by its place in the columns, to index i.
GPU i64 offset_of(const Boxes &boxes, const i64 *stride, const i64 *list, i64 axis, i64 i) {
    i64 at = list[axis];
    return (at < 0 ? i : boxes.lists[at + i]) * stride[axis];
}

GPU i64 in_source(const Boxes &boxes, i64 axis, i64 i) {
    return offset_of(boxes, boxes.source_stride, boxes.source_list, axis, i);
}

GPU i64 in_target(const Boxes &boxes, i64 axis, i64 i) {
    return offset_of(boxes, boxes.target_stride, boxes.target_list, axis, i);
}

// The row that holds element number `rest` of a box.
GPU Row row_of(const Boxes &boxes, i64 box, i64 rest) {
    Row row = {boxes.start[box], (u8 *)boxes.target[box], -1, 0, 1};
    for (i64 number = boxes.ndim - 1; number >= 0; number--) {
        i64 axis = number * boxes.n + box;
        i64 count = boxes.count[axis];
        i64 quotient = (i64)divide((u64)rest, (u64)count);
        i64 i = rest - quotient * count;
        rest = quotient;
        if (number == boxes.ndim - 1) {
            row.axis = axis;
            row.first = i;
            row.left = count - i;
        } else {
            row.from += in_source(boxes, axis, i);
            row.to += in_target(boxes, axis, i);
        }
    }
    return row;
}

// Position of element k of a row in the source, and its address in the target.
GPU i64 from_of(const Boxes &boxes, const Row &row, i64 k) {
    return row.axis < 0 ? row.from : row.from + in_source(boxes, row.axis, row.first + k);
}

GPU u8 *to_of(const Boxes &boxes, const Row &row, i64 k) {
    return row.axis < 0 ? row.to : row.to + in_target(boxes, row.axis, row.first + k);
}

// The first n elements of a row, n <= 16 / size, as a unit; elements have `size` bytes.
GPU Unit read_elements(const Boxes &boxes, const Bytes &source, const Row &row, int n, int size) {
    Unit unit = {0, 0};
    if (source.data == nullptr) {
        u64 fill = load_number(boxes.fill, size);
#pragma unroll 4
        for (int k = 0; k < n; k++) put(unit, k * size, fill);
        return unit;
    }
    bool joined = row.axis >= 0 && boxes.source_list[row.axis] < 0 && boxes.source_stride[row.axis] == size;
    if (n * size == 16 && joined) {
        unit = unit_of(source, from_of(boxes, row, 0), 16);
    } else {
#pragma unroll 2
        for (int k = 0; k < n; k++) put(unit, k * size, load_number(source.data + from_of(boxes, row, k), size));
    }
    swap_bytes(unit, boxes.swap_unit);
    return unit;
}

GPU void write_elements(const Boxes &boxes, const Row &row, const Unit &unit, int n, int size) {
    bool joined = row.axis >= 0 && boxes.target_list[row.axis] < 0 && boxes.target_stride[row.axis] == size;
    if (n * size == 16 && joined) {
        store_unit(to_of(boxes, row, 0), unit);
        return;
    }
#pragma unroll 2
    for (int k = 0; k < n; k++) store_number(to_of(boxes, row, k), get(unit, k * size), size);
}

// Elements [first, last) of all boxes, at most 16 / size of them. They may lie in several rows and boxes.
GPU void place_small(const Boxes &boxes, i64 first, i64 last, int size) {
    i64 box = find_row(boxes.elem_start, boxes.n, first);
    while (first < last) {
        while (first >= boxes.elem_start[box + 1]) box++;
        Row row = row_of(boxes, box, first - boxes.elem_start[box]);
        int n = (int)(last - first < row.left ? last - first : row.left);
        write_elements(boxes, row, read_elements(boxes, bytes_of(boxes, box), row, n, size), n, size);
        first += n;
    }
}

// Bytes [begin, begin + 16) of one element, or as many as it has.
GPU void place_piece(const Boxes &boxes, i64 element, i64 begin) {
    i64 box = find_row(boxes.elem_start, boxes.n, element);
    Row row = row_of(boxes, box, element - boxes.elem_start[box]);
    Bytes source = bytes_of(boxes, box);
    i64 n = boxes.nbytes - begin < 16 ? boxes.nbytes - begin : 16;
    u8 *to = to_of(boxes, row, 0) + begin;
    Unit unit;
    if (source.data == nullptr) {
        unit = load_bytes(boxes.fill + begin, n);
    } else {
        unit = unit_of(source, from_of(boxes, row, 0) + begin, n);
        swap_bytes(unit, boxes.swap_unit);
    }
    if (n == 16) {
        store_unit(to, unit);
    } else {
        store_bytes(to, unit, n);
    }
}

GPU void place_all_small(const Boxes &boxes, int size) {
    i64 total = boxes.elem_start[boxes.n];
    i64 each = 16 / size;
    for (i64 first = thread_index() * each; first < total; first += thread_count() * each) {
        place_small(boxes, first, first + each < total ? first + each : total, size);
    }
}

GPU void place_all_pieces(const Boxes &boxes) {
    i64 pieces = (boxes.nbytes + 15) / 16;
    i64 total = boxes.elem_start[boxes.n] * pieces;
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 element = (i64)divide((u64)unit, (u64)pieces);
        place_piece(boxes, element, (unit - element * pieces) * 16);
    }
}

// nbytes, of an element, is a multiple of swap_unit. The fill value has the byte order of the target: it is not swapped.
// No element of the target is written twice.
extern "C" __global__ void place_box(i64 n, i64 ndim, const u64 *source, const i64 *start, const u64 *target,
                                     const i64 *count, const i64 *source_stride, const i64 *target_stride,
                                     const i64 *source_list, const i64 *target_list, const i64 *lists,
                                     const i64 *elem_start, i64 nbytes, i64 swap_unit, const void *fill,
                                     const i64 *source_nbytes) {
    if (n == 0) return;
    Boxes boxes = {n,           ndim,        source, start,      target, count,     source_stride,    target_stride,
                   source_list, target_list, lists,  elem_start, nbytes, swap_unit, (const u8 *)fill, source_nbytes};
    if (nbytes == 1 || nbytes == 2 || nbytes == 4 || nbytes == 8) {
        place_all_small(boxes, (int)nbytes);
    } else {
        place_all_pieces(boxes);
    }
}
