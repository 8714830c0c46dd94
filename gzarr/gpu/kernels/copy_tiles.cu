// copy_tiles: copies boxes of plain elements whose axes are contiguous in another order in the source than in the target,
// such as chunks in Fortran order.
//
// A tile is 32 elements along the axis that is contiguous in the source (the width) by 32 along the one that is contiguous
// in the target (the height). A block of threads loads it row by row and stores it column by column, through shared
// memory, whose rows are padded so that a column lies in different banks.
//
// Traffic for each byte: one read and one write, both in runs of 32 elements.
#include "parts.cuh"

const u32 SIDE = 32;

// One part; the first fields, starts and levels are those of Part. Offsets are in elements.
struct alignas(16) TiledPart {
    const u8 *from;
    u8 *to;
    u32 log_size; // of an element
    u32 n_tiles;
    u32 n_levels; // of the other axes
    u32 across;   // tiles along the width
    Divisor by_across;
    u32 down; // tiles along the height
    Divisor by_down;
    u32 width, height;
    u32 from_step; // along the height, in the source
    u32 to_step;   // along the width, in the target
    u32 unused;
    u32 from_start, to_start;
    Level levels[3];
};
static_assert(sizeof(TiledPart) == sizeof(Part), "tables have rows of one size");

GPU u8 swapped(u8 x, u32) { return x; }
GPU u16 swapped(u16 x, u32 unit) { return unit == 2 ? (u16)__byte_perm(x, 0, 0x2301) : x; }
GPU u32 swapped(u32 x, u32 unit) { return unit < 2 ? x : __byte_perm(x, 0, unit == 2 ? 0x2301 : 0x0123); }
GPU uint2 swapped(uint2 x, u32 unit) {
    uint2 same = {swapped(x.x, unit), swapped(x.y, unit)}, other = {same.y, same.x};
    return unit == 8 ? other : same;
}
GPU uint4 swapped(uint4 x, u32 unit) {
    uint2 low = {x.x, x.y}, high = {x.z, x.w};
    low = swapped(low, unit);
    high = swapped(high, unit);
    return {low.x, low.y, high.x, high.y};
}

// PITCH: elements from one row of the tile to the next, an odd number of 32-bit words for elements of up to 4 bytes.
template <typename T, int PITCH> GPU void copy_tile(const TiledPart &part, u32 tile, u32 swap_unit, void *memory) {
    T *shared = (T *)memory;
    u32 line = divide(tile, part.by_across), other = divide(line, part.by_down);
    u32 left = (tile - line * part.across) * SIDE, top = (line - other * part.down) * SIDE;
    u32 from = part.from_start, to = part.to_start;
    for (u32 axis = 0; axis < part.n_levels; axis++) {
        const Level level = part.levels[axis];
        u32 next = divide(other, level.by), index = other - next * level.count;
        from += index * level.from;
        to += index * level.to;
        other = next;
    }
    EACH_THREAD {
        u32 x = threadIdx.x % SIDE;
#pragma unroll
        for (u32 y = threadIdx.x / SIDE; y < SIDE; y += BLOCK_THREADS / SIDE) {
            if (left + x < part.width && top + y < part.height) {
                u32 at = from + (left + x) + (top + y) * part.from_step;
                shared[y * PITCH + x] = __ldcs((const T *)part.from + at);
            }
        }
    }
    __syncthreads();
    EACH_THREAD {
        u32 y = threadIdx.x % SIDE;
#pragma unroll
        for (u32 x = threadIdx.x / SIDE; x < SIDE; x += BLOCK_THREADS / SIDE) {
            if (left + x < part.width && top + y < part.height) {
                u32 at = to + (top + y) + (left + x) * part.to_step;
                __stcs((T *)part.to + at, swapped(shared[y * PITCH + x], swap_unit));
            }
        }
    }
    __syncthreads();
}

// tiles_each: of a part, at most; magic, shift: its divisor. A block of threads takes one tile.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4)
    copy_tiles(i64 n_parts, i64 tiles_each, i64 magic, i64 shift, const void *parts, i64 swap_unit) {
    __shared__ uint4 memory[SIDE * (SIDE + 1)];
    Divisor by = {(u32)magic, (u32)shift};
    u32 total = (u32)(n_parts * tiles_each), swap = (u32)swap_unit;
    for (u32 turn = blockIdx.x; turn < total; turn += gridDim.x) {
        u32 number = divide(turn, by), tile = turn - number * (u32)tiles_each;
        const TiledPart &part = ((const TiledPart *)parts)[number];
        if (tile >= part.n_tiles) continue;
        switch (part.log_size) {
        case 0: copy_tile<u8, 36>(part, tile, swap, memory); break;
        case 1: copy_tile<u16, 34>(part, tile, swap, memory); break;
        case 2: copy_tile<u32, 33>(part, tile, swap, memory); break;
        case 3: copy_tile<uint2, 33>(part, tile, swap, memory); break;
        default: copy_tile<uint4, 33>(part, tile, swap, memory); break;
        }
    }
}
