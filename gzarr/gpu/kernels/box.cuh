// A separable selection: which elements of an array in memory belong to which elements of chunks, part by part.
//
// Elements are numbered part by part, each part in C order of its spans. Tables are those of
// `gzarr.gpu.pipeline.placing.BoxTables`: "in" is within the chunk, "out" within the caller's array.
#pragma once
#include "common.cuh"

struct Spans {
    i64 n_parts, ndim;
    const i32 *part_span;
    const i64 *axis_base, *in_start, *in_step, *out_start, *out_step, *count, *in_list, *out_list, *index_pool;
    const i64 *elem_start;
};

// A run of elements along the last axis.
struct Row {
    i64 in_elem; // element of the chunk, without the last axis
    u8 *to;      // address in the caller's array, without the last axis
    i64 span;    // on the last axis
    i64 first;   // position on the last axis
    i64 left;    // elements from there to the end of the row
    i64 chunk_stride, out_stride;
};

GPU i64 in_index(const Spans &spans, i64 span, i64 i) {
    i64 list = spans.in_list[span];
    return list < 0 ? spans.in_start[span] + i * spans.in_step[span] : spans.index_pool[list + i];
}

GPU i64 out_index(const Spans &spans, i64 span, i64 i) {
    i64 list = spans.out_list[span];
    return list < 0 ? spans.out_start[span] + i * spans.out_step[span] : spans.index_pool[list + i];
}

// The row that holds element number `rest` of a part. chunk_stride is in elements, out_stride in bytes, for every axis;
// out is the first element of the caller's array.
GPU Row row_of(const Spans &spans, i64 part, i64 rest, const i64 *chunk_stride, u8 *out, const i64 *out_stride) {
    Row row = {0, out, -1, 0, 1, 0, 0};
    for (i64 axis = spans.ndim - 1; axis >= 0; axis--) {
        i64 span = spans.axis_base[axis] + spans.part_span[part * spans.ndim + axis];
        i64 count = spans.count[span];
        i64 quotient = (i64)divide((u64)rest, (u64)count);
        i64 i = rest - quotient * count;
        rest = quotient;
        if (axis == spans.ndim - 1) {
            row.span = span;
            row.first = i;
            row.left = count - i;
            row.chunk_stride = chunk_stride[axis];
            row.out_stride = out_stride[axis];
        } else {
            row.in_elem += in_index(spans, span, i) * chunk_stride[axis];
            row.to += out_index(spans, span, i) * out_stride[axis];
        }
    }
    return row;
}

// Index in the chunk of element k of a row.
GPU i64 in_element(const Spans &spans, const Row &row, i64 k) {
    return row.span < 0 ? row.in_elem : row.in_elem + in_index(spans, row.span, row.first + k) * row.chunk_stride;
}

// Address of element k of a row in the caller's array.
GPU u8 *out_address(const Spans &spans, const Row &row, i64 k) {
    return row.span < 0 ? row.to : row.to + out_index(spans, row.span, row.first + k) * row.out_stride;
}

// Whether consecutive elements of a row are consecutive in the chunk.
GPU bool joined_in(const Spans &spans, const Row &row) {
    return row.span >= 0 && spans.in_list[row.span] < 0 && spans.in_step[row.span] * row.chunk_stride == 1;
}

// Whether consecutive elements of a row, of a given size, are contiguous in the caller's array.
GPU bool joined_out(const Spans &spans, const Row &row, i64 nbytes) {
    return row.span >= 0 && spans.out_list[row.span] < 0 && spans.out_step[row.span] * row.out_stride == nbytes;
}
