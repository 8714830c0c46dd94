// The body that copy_plain, copy_bytes and copy_bits share: parts of a batch, cut into units that are contiguous in the
// source and in the target, with one descriptor for each part (gzarr.gpu.kernels.parts).
//
// One thread makes four units, 256 units apart. A unit is K items of T bytes (of a plain part, V bytes), the most that
// the addresses of its part allow, so the kind of a part is the same for a whole block.
#pragma once
#include "parts.cuh"
#include "words.cuh"

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
    u32 n_blocks, blocks_each;
    Divisor by; // blocks_each
};

GPU const Part &part_of(const Grid &grid, u32 block) { return grid.parts[divide(block, grid.by)]; }

GPU u32 first_unit(const Grid &grid, u32 block) {
    return (block - divide(block, grid.by) * grid.blocks_each) * BLOCK_UNITS + threadIdx.x;
}

template <int EACH>
GPU void step_along(Turn<EACH> &turn, const Level &level, const i32 *__restrict__ lists, const u32 (&index)[EACH]) {
    u32 from = level.from, to = level.to;
    if ((level.from_list | level.to_list) == 0) {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            turn.from[k] += index[k] * from;
            turn.to[k] += index[k] * to;
        }
        return;
    }
    u32 from_list = level.from_list, to_list = level.to_list;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        turn.from[k] += (from_list == 0 ? index[k] : (u32)lists[from_list - 1 + index[k]]) * from;
        turn.to[k] += (to_list == 0 ? index[k] : (u32)lists[to_list - 1 + index[k]]) * to;
    }
}

// The units from `first` on. In place of those beyond the part, the last unit, so that loads need no condition.
template <int EACH> GPU Turn<EACH> find_units(const Part &part, const i32 *__restrict__ lists, u32 first) {
    Turn<EACH> turn;
    turn.first = first;
    u32 end = part.n_units - 1;
    u32 run[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        u32 unit = first + k * BLOCK_THREADS;
        unit = unit < end ? unit : end;
        run[k] = divide(unit, part.by);
        u32 column = unit - run[k] * part.per_run;
        turn.from[k] = part.from_start + column * part.step;
        turn.to[k] = part.to_start + column;
    }
    if (part.n_levels == 0) return turn;
    u32 last = part.n_levels - 1;
    u32 index[EACH];
#pragma unroll 1
    for (u32 axis = 0; axis < last; axis++) {
        const Level level = part.levels[axis];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 next = divide(run[k], level.by);
            index[k] = run[k] - next * level.count;
            run[k] = next;
        }
        step_along(turn, level, lists, index);
    }
    step_along(turn, part.levels[last], lists, run); // what is left is the index along the last level
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
            if (turn.first + (begin + k) * BLOCK_THREADS >= n_units) continue;
            store_words(to + (u64)turn.to[begin + k] * W, words[k]);
        }
    }
}
