// The body that copy_plain, copy_bytes and copy_bits share: parts of a batch, cut into units that are contiguous in the
// source and in the target, with one descriptor for each part (gzarr.gpu.kernels.parts).
//
// A thread copies up to 16 units, whose indices along one axis are equally far apart, and differ in no other, so that it
// divides once. A unit is K items of T bytes (of a plain part, V bytes), the most that the addresses of its part allow,
// so the kind of a part is the same for a whole block.
#pragma once
#include "parts.cuh"
#include "words.cuh"

// Blocks of a multiprocessor that copies leave registers for; sm_75 has no threads for more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
#define COPY_BLOCKS 4
#else
#define COPY_BLOCKS 5
#endif

// What a thread copies: n units of a part, each a step of the part behind the one before.
struct Task {
    u32 from, to; // the first unit in the source and in the target, in units
    u32 n;
};

// What the blocks of a launch do: block number b belongs to part b / blocks_each.
struct Grid {
    const Part *__restrict__ parts;
    const i32 *__restrict__ lists;
    u32 blocks_each;
    Divisor by; // blocks_each
};

GPU const Part &part_of(const Grid &grid, u32 block) { return grid.parts[divide(block, grid.by)]; }

GPU u32 first_task(const Grid &grid, u32 block) {
    return (block - divide(block, grid.by) * grid.blocks_each) * BLOCK_THREADS + threadIdx.x;
}

// The index that an index list has at `index`, or that itself if there is none.
GPU u32 listed(const i32 *__restrict__ lists, u32 list, u32 index) { return list == 0 ? index : (u32)lists[list - 1 + index]; }

// The task at a column of a run.
GPU Task find_task(const Part &part, const i32 *__restrict__ lists, u32 run, u32 column) {
    Task task = {part.from_start + column * part.from_step, part.to_start + column * part.to_step, 0};
    u32 last = (part.n_levels & ~LISTED) - 1;
#pragma unroll 1
    for (u32 axis = 0; axis < last; axis++) {
        const Level level = part.levels[axis];
        u32 next = divide(run, level.by), index = run - next * level.count;
        task.from += listed(lists, level.from_list, index) * level.from;
        task.to += listed(lists, level.to_list, index) * level.to;
        run = next;
    }
    // What is left is the index along the last level.
    const Level level = part.levels[last];
    task.from += listed(lists, level.from_list, run) * level.from;
    task.to += listed(lists, level.to_list, run) * level.to;
    if (part.along_run == 0) column = run;
    task.n = part.rows.n + (column < part.rows.n_more);
    return task;
}

GPU Task find_task(const Part &part, const i32 *__restrict__ lists, u32 number) {
    u32 run = divide(number, part.by);
    return find_task(part, lists, run, number - run * part.per_run);
}

// Load N units, reverse their numbers if these lie in the other byte order, and store them.
template <u32 N, typename Load> GPU void copy_some(u8 *to, i32 step, const Load &load, u32 swap_unit) {
    Words<Load::NBYTES> words[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) words[k] = load(k);
    if (swap_unit > 1) {
#pragma unroll
        for (u32 k = 0; k < N; k++) swap_words(words[k], swap_unit);
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) store_words(to + (i64)((i32)k * step) * Load::NBYTES, words[k]);
}

// Copy the units of a task, N of which are in registers at the same time. load(k): the unit k steps behind the first.
template <u32 N, typename Load> GPU void copy_units(const Part &part, const Task &task, Load load, u32 swap_unit) {
    u8 *to = part.to + (u64)task.to * Load::NBYTES;
    i32 step = (i32)part.rows.to; // a store might change what `part` refers to
    u32 left = Load::NBYTES == 128 ? 1 : task.n;
#pragma unroll 1
    for (; left >= N; left -= N) {
        copy_some<N>(to, step, load, swap_unit);
        load.from += (i32)N * load.step;
        to += (i64)((i32)N * step) * Load::NBYTES;
    }
#pragma unroll 1
    for (; N > 1 && left > 0; left--) {
        copy_some<1>(to, step, load, swap_unit);
        load.from += load.step;
        to += (i64)step * Load::NBYTES;
    }
}
