// place_box: copies the elements of a separable selection from a wave of decoded chunks into the caller's array.
//
// Elements are numbered part by part, each part in C order of its spans. One thread makes one unit of 16 bytes: 16 /
// copy_nbytes consecutive elements of 1, 2, 4 or 8 bytes, or one 16-byte piece of a larger (or odd) element. If out is
// in C order, consecutive threads write consecutive units.
//
// Traffic for an element of s bytes: s read and s written. With byte shuffle, too, each byte is read once, from s
// planes that are each contiguous over the warp. With bit shuffle, each byte is read once from memory and, for s > 2,
// several times from L1 (a thread loads 8 bytes for each 16 / s that it uses). With a transposed chunk or a step, each
// element reads a 32-byte sector and relies on L2 for its neighbours. A missing chunk reads nothing. Each unit makes
// log2(n_parts) + 8 ndim loads from tables that stay in cache.
#include "box.cuh"
#include "source.cuh"

struct Box {
    Spans spans;
    i64 src_itemsize, field_offset, copy_nbytes, swap_unit;
    const i64 *chunk_stride, *out_stride;
    u8 *out;
    const u8 *fill;
};

GPU Row row_of(const Box &box, i64 part, i64 rest) {
    return row_of(box.spans, part, rest, box.chunk_stride, box.out, box.out_stride);
}

// Position in the plain chunk of element k of a row, or of its field if a field is copied.
GPU i64 in_position(const Box &box, const Row &row, i64 k) {
    return in_element(box.spans, row, k) * box.src_itemsize + box.field_offset;
}

// The first n elements of a row, n <= 16 / size, as a unit; elements have `size` bytes.
GPU Unit read_elements(const Box &box, const Source &source, const Row &row, int n, int size) {
    Unit unit = {0, 0};
    if (source.data == nullptr) {
        u64 fill = load_number(box.fill, size);
#pragma unroll 4
        for (int k = 0; k < n; k++) put(unit, k * size, fill);
        return unit;
    }
    if (n * size == 16 && joined_in(box.spans, row) && box.src_itemsize == size) {
        unit = plain_unit(source, in_position(box, row, 0));
    } else {
#pragma unroll 2
        for (int k = 0; k < n; k++) put(unit, k * size, plain_number(source, in_position(box, row, k), size));
    }
    swap_bytes(unit, box.swap_unit);
    return unit;
}

GPU void write_elements(const Box &box, const Row &row, const Unit &unit, int n, int size) {
    if (n * size == 16 && joined_out(box.spans, row, size)) {
        store_unit(out_address(box.spans, row, 0), unit);
        return;
    }
#pragma unroll 2
    for (int k = 0; k < n; k++) store_number(out_address(box.spans, row, k), get(unit, k * size), size);
}

// Elements [first, last) of the wave, at most 16 / size of them. They may lie in several rows and parts.
GPU void place_small(const Box &box, const Sources &sources, i64 first, i64 last, int size) {
    i64 part = find_row(box.spans.elem_start, box.spans.n_parts, first);
    while (first < last) {
        while (first >= box.spans.elem_start[part + 1]) part++;
        Row row = row_of(box, part, first - box.spans.elem_start[part]);
        int n = (int)(last - first < row.left ? last - first : row.left);
        write_elements(box, row, read_elements(box, source_of(sources, part), row, n, size), n, size);
        first += n;
    }
}

// Bytes [begin, begin + 16) of one element, or as many as it has.
GPU void place_piece(const Box &box, const Sources &sources, i64 element, i64 begin) {
    i64 part = find_row(box.spans.elem_start, box.spans.n_parts, element);
    Row row = row_of(box, part, element - box.spans.elem_start[part]);
    Source source = source_of(sources, part);
    i64 n = box.copy_nbytes - begin < 16 ? box.copy_nbytes - begin : 16;
    u8 *to = out_address(box.spans, row, 0) + begin;
    Unit unit;
    if (source.data == nullptr) {
        unit = load_bytes(box.fill + begin, n);
    } else {
        i64 position = in_position(box, row, 0) + begin;
        unit = n == 16 ? plain_unit(source, position) : plain_bytes(source, position, n);
        swap_bytes(unit, box.swap_unit);
    }
    if (n == 16) {
        store_unit(to, unit);
    } else {
        store_bytes(to, unit, n);
    }
}

GPU void place_all_small(const Box &box, const Sources &sources, int size) {
    i64 total = box.spans.elem_start[box.spans.n_parts];
    i64 each = 16 / size;
    for (i64 first = thread_index() * each; first < total; first += thread_count() * each) {
        place_small(box, sources, first, first + each < total ? first + each : total, size);
    }
}

GPU void place_all_pieces(const Box &box, const Sources &sources) {
    i64 pieces = (box.copy_nbytes + 15) / 16;
    i64 total = box.spans.elem_start[box.spans.n_parts] * pieces;
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 element = (i64)divide((u64)unit, (u64)pieces);
        i64 begin = (unit - element * pieces) * 16;
        place_piece(box, sources, element, begin);
    }
}

// copy_nbytes is a multiple of swap_unit. The fill value has the byte order of out, so it is not swapped.
extern "C" __global__ void place_box(i64 n_parts, i64 ndim, const u64 *part_src, const i32 *part_span,
                                     const i64 *axis_base, const i64 *in_start, const i64 *in_step,
                                     const i64 *out_start, const i64 *out_step, const i64 *count, const i64 *in_list,
                                     const i64 *out_list, const i64 *index_pool, const i64 *elem_start,
                                     const i64 *chunk_stride, void *out, const i64 *out_stride, i64 src_itemsize,
                                     i64 field_offset, i64 copy_nbytes, i64 swap_unit, const void *fill,
                                     const u8 *part_mode, const i32 *part_typesize, const i64 *part_blocksize,
                                     const i64 *part_nbytes) {
    if (n_parts == 0) return;
    Sources sources = {part_src, part_mode, part_typesize, part_blocksize, part_nbytes};
    Box box;
    box.spans = {n_parts,  ndim,  part_span, axis_base, in_start,   in_step,   out_start,
                 out_step, count, in_list,   out_list,  index_pool, elem_start};
    box.src_itemsize = src_itemsize;
    box.field_offset = field_offset;
    box.copy_nbytes = copy_nbytes;
    box.swap_unit = swap_unit;
    box.chunk_stride = chunk_stride;
    box.out_stride = out_stride;
    box.out = (u8 *)out;
    box.fill = (const u8 *)fill;
    if (copy_nbytes == 1 || copy_nbytes == 2 || copy_nbytes == 4 || copy_nbytes == 8) {
        place_all_small(box, sources, (int)copy_nbytes);
    } else {
        place_all_pieces(box, sources);
    }
}
