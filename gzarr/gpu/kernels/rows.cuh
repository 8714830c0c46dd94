// The body that copy_plain, copy_bytes and copy_bits share: parts of a batch, cut into units that are contiguous in the
// source and in the target, with one descriptor for each part (gzarr.gpu.kernels.parts).
//
// One thread makes four units, 256 units apart. A unit is K items of T bytes (of a plain part, V bytes), the most that
// the addresses of its part allow, so the kind of a part is the same for a whole block.
#pragma once
#include "parts.cuh"
#include "words.cuh"

// Blocks of a multiprocessor that copies leave registers for; sm_75 has no threads for more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
#define COPY_BLOCKS 4
#else
#define COPY_BLOCKS 5
#endif

const u32 UNITS_EACH = 4, BLOCK_UNITS = UNITS_EACH * BLOCK_THREADS;

// The units that a thread copies in one turn: where they are in the source and in the target, in units.
template <int EACH> struct Turn {
    u32 first; // number of the first; the others follow BLOCK_THREADS apart
    u32 from[EACH], to[EACH];
};

// What the blocks of a launch do: block number b belongs to part b / blocks_each.
struct Grid {
    const Part *__restrict__ parts;
    const i32 *__restrict__ lists;
    u32 blocks_each;
    Divisor by; // blocks_each
};

GPU const Part &part_of(const Grid &grid, u32 block) { return grid.parts[divide(block, grid.by)]; }

GPU u32 first_unit(const Grid &grid, u32 block) {
    return (block - divide(block, grid.by) * grid.blocks_each) * BLOCK_UNITS + threadIdx.x;
}

// What find_units does along the levels, of which some have index lists.
template <int EACH>
GPU void find_listed(const Part &part, const i32 *__restrict__ lists, Turn<EACH> &turn, u32 (&run)[EACH]) {
#pragma unroll 1
    for (u32 axis = 0; axis < part.n_levels - LISTED; axis++) {
        const Level level = part.levels[axis];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 next = divide(run[k], level.by);
            u32 index = run[k] - next * level.count;
            turn.from[k] += (level.from_list == 0 ? index : (u32)lists[level.from_list - 1 + index]) * level.from;
            turn.to[k] += (level.to_list == 0 ? index : (u32)lists[level.to_list - 1 + index]) * level.to;
            run[k] = next;
        }
    }
}

// The units from `first` on, which is in the part. In place of those beyond it, the last unit, so that loads need no
// condition.
template <int EACH> GPU Turn<EACH> find_units(const Part &part, const i32 *__restrict__ lists, u32 first) {
    Turn<EACH> turn;
    turn.first = first;
    u32 end = part.n_units - 1;
    u32 run[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        u32 unit = first + k * BLOCK_THREADS;
        if (k > 0) unit = unit < end ? unit : end;
        run[k] = divide(unit, part.by);
        u32 column = unit - run[k] * part.per_run;
        turn.from[k] = part.from_start + column * part.from_step;
        turn.to[k] = part.to_start + column * part.to_step;
    }
    u32 last = part.n_levels - 1;
    if (last >= 3) { // none, or some with lists
        if (part.n_levels != 0) find_listed(part, lists, turn, run);
        return turn;
    }
#pragma unroll 1
    for (u32 axis = 0; axis < last; axis++) {
        const Level level = part.levels[axis];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 next = divide(run[k], level.by);
            u32 index = run[k] - next * level.count;
            turn.from[k] += index * level.from;
            turn.to[k] += index * level.to;
            run[k] = next;
        }
    }
    // What is left is the index along the last level.
    u32 from = part.levels[last].from, to = part.levels[last].to;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        turn.from[k] += run[k] * from;
        turn.to[k] += run[k] * to;
    }
    return turn;
}

// Load the units of a turn, reverse their numbers if these lie in the other byte order, and store them. AT_ONCE of them
// are in registers at the same time.
template <typename Load, int AT_ONCE, int EACH>
GPU void copy_units(const Part &part, const Turn<EACH> &turn, const Load &load, u32 swap_unit) {
    const int W = Load::NBYTES;
    u8 *to = part.to;
    u32 n_units = part.n_units; // a store might change what `part` refers to, so it would be loaded again
#pragma unroll
    for (int begin = 0; begin < EACH; begin += AT_ONCE) {
        Words<W> words[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) words[k] = load(turn.from[begin + k]);
        if (swap_unit > 1) {
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) swap_words(words[k], swap_unit);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (begin + k > 0 && turn.first + (begin + k) * BLOCK_THREADS >= n_units) continue;
            store_words(to + (u64)turn.to[begin + k] * W, words[k]);
        }
    }
}
