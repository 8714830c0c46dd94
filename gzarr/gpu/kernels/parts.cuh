// Parts of a batch as the fast copies take them: one descriptor each, made on the host (gzarr.gpu.kernels.parts).
//
// A part is cut into units, each of which is contiguous in the source and in the target. Units are numbered along runs
// of bytes, and runs along up to three levels: what is left of the axes after the host has joined those that follow
// each other in both memories. Numbers within a part are below 2^31, and divisions are multiplications with numbers
// that the host has computed.
//
// Blocks are numbered part by part, equally many for each, so that a block finds its part without a search.
#pragma once
#include "common.cuh"

// n / d as n * magic + magic >> 32 >> shift, exact for every n < 2^31: magic is the largest number below
// 2^(32 + shift) / d, and shift is floor(log2(d)). Source: Robison, N-bit unsigned division via N-bit multiply-add.
struct Divisor {
    u32 magic, shift;
};

GPU u32 divide(u32 n, Divisor by) { return (u32)(((u64)n * by.magic + by.magic) >> 32) >> by.shift; }

// An axis, or several joined ones: units from one index to the next in the source and in the target, modulo 2^32. If it
// has index lists, these have the indices, from entry number from_list - 1 or to_list - 1 of all lists on.
struct alignas(16) Level {
    u32 from, to, count, from_list;
    Divisor by;
    u32 to_list, unused;
};

// How a chunk is still shuffled: see source.cuh. All blocks have whole items; those of bit shuffles a multiple of 8.
struct Blocks {
    u32 start; // of the part, in the plain chunk
    u32 blocksize;
    Divisor by; // blocksize
    u32 n_items;
    u32 last; // number of the last block, which may be short
    u32 n_last;
};

// What the units of a thread have in common, or the rows of which it copies the same window, see windows.cuh.
struct Rows {
    u32 from, to;      // from one to the next, in units; 0 where an index list tells
    u32 n, n_more;     // how many they are: one more where the index of the first is below n_more
    u32 nbytes;        // of a row; of the last piece of one
    u32 source_nbytes; // from the first byte of the part to the last in the source
    u32 n_runs;        // runs of columns, or pieces, in all
    u32 ends;          // number of the first window at the ends of rows
};

enum { LISTED = 4, IN_WINDOWS = 64, IN_PIECES = 128 };

struct alignas(16) Part {
    const u8 *from; // of the part, or of the chunk if this is shuffled; null: the chunk is missing
    u8 *to;
    u32 kind; // of the units; and IN_WINDOWS, or IN_PIECES + log2 T
    u32 n_tasks; // of threads, 0 if the part is copied in windows or pieces
    u32 n_levels; // 1 or more, and LISTED if any has an index list
    u32 per_run; // tasks
    Divisor by; // per_run
    u32 from_step; // from one task of a run to the next in the source; 0 if the chunk is missing
    u32 to_step;
    u32 item_step; // from one item of a unit to the next in the source, in items, if they lie apart there
    Blocks blocks;
    u32 from_start, to_start; // of the first unit, in units
    u32 n_blocks, along_run; // 1 if the steps of threads are along runs, 0 if along the last level
    Level levels[3];
    Rows rows;
};
static_assert(sizeof(Part) == 224, "the host makes these");

// A byte of a plain chunk in its shuffled block.
struct Item {
    u32 block;   // offset of the block in the chunk
    u32 number;  // of the item in the block
    u32 n_items; // in the block
};

template <int T> GPU Item item_of(const Blocks &blocks, u32 position) {
    u32 block = divide(position, blocks.by);
    u32 begin = block * blocks.blocksize;
    return {begin, (position - begin) / T, block == blocks.last ? blocks.n_last : blocks.n_items};
}
