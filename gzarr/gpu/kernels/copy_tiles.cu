// copy_tiles: copies boxes of plain elements whose axes are contiguous in another order in the source than in the target,
// such as chunks in Fortran order.
//
// A tile is loaded along the axis that is contiguous in the source (the width) and stored along the one that is contiguous
// in the target (the height), through shared memory, whose rows are padded so that a column lies in different banks. If
// addresses, steps and extents are multiples of 16 bytes, threads load and store 16 bytes at once; else one element.
//
// Traffic for each byte: one read and one write, in runs of 32 elements, or of 128 bytes or more.
#include "parts.cuh"
#include "words.cuh"

const u32 SIDE = 32;

// One part; the first fields, starts and levels are those of Part. Offsets are in elements.
struct alignas(16) TiledPart {
    const u8 *from;
    u8 *to;
    u32 kind; // logarithm of the bytes of an element, and 8 for 16 bytes at once
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

// Where a tile lies: its first element in the part, and in both memories.
struct Tile {
    u32 left, top, from, to;
};

GPU Tile tile_of(const TiledPart &part, u32 number, u32 width, u32 height) {
    u32 line = divide(number, part.by_across), other = divide(line, part.by_down);
    Tile tile = {(number - line * part.across) * width, (line - other * part.down) * height, part.from_start, part.to_start};
    for (u32 axis = 0; axis < part.n_levels; axis++) {
        const Level level = part.levels[axis];
        u32 next = divide(other, level.by), index = other - next * level.count;
        tile.from += index * level.from;
        tile.to += index * level.to;
        other = next;
    }
    tile.from += tile.left + tile.top * part.from_step;
    tile.to += tile.top + tile.left * part.to_step;
    return tile;
}

// PITCH: elements from one row of the tile to the next, an odd number of 32-bit words for elements of up to 4 bytes.
template <typename T, int PITCH> GPU void copy_tile(const TiledPart &part, u32 number, u32 swap_unit, void *memory) {
    T *shared = (T *)memory;
    Tile tile = tile_of(part, number, SIDE, SIDE);
    EACH_THREAD {
        u32 x = threadIdx.x % SIDE;
#pragma unroll
        for (u32 y = threadIdx.x / SIDE; y < SIDE; y += BLOCK_THREADS / SIDE) {
            if (tile.left + x < part.width && tile.top + y < part.height) {
                shared[y * PITCH + x] = __ldcs((const T *)part.from + (tile.from + x + y * part.from_step));
            }
        }
    }
    __syncthreads();
    EACH_THREAD {
        u32 y = threadIdx.x % SIDE;
#pragma unroll
        for (u32 x = threadIdx.x / SIDE; x < SIDE; x += BLOCK_THREADS / SIDE) {
            if (tile.left + x < part.width && tile.top + y < part.height) {
                T value = swapped(shared[y * PITCH + x], swap_unit);
                __stcs((T *)part.to + (tile.to + y + x * part.to_step), value);
            }
        }
    }
    __syncthreads();
}

// Elements of E bytes, 16 bytes at once. A cell of shared memory has one element, or those of several rows that make a
// word. Threads of a warp lie such that what they store there is in different banks.
template <int E> GPU void copy_wide_tile(const TiledPart &part, u32 number, u32 swap_unit, u32 *shared) {
    const u32 N = 16 / E, R = E < 4 ? 4 / E : 1, WORDS = E == 8 ? 2 : 1, CELLS = E < 4 ? SIDE : 2 * SIDE;
    const u32 PITCH = (CELLS + 1) * WORDS;
    const u32 ACROSS = N < 4 ? 8 : 32 / N, WARPS = 8 / ACROSS; // threads and warps along the width
    const u32 Q = 4 / WORDS, DOWN = CELLS / Q;                 // cells of 16 bytes, and threads along the height
    Tile tile = tile_of(part, number, 8 * N, CELLS * R);
    EACH_THREAD {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 x = (lane % ACROSS + warp % WARPS * ACROSS) * N;
#pragma unroll
        for (u32 y = lane / ACROSS + warp / WARPS * (32 / ACROSS); y < CELLS; y += SIDE) {
            if (tile.left + x >= part.width || tile.top + y * R >= part.height) continue;
            u32 rows[R][4];
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                u32 at = tile.from + x + (y * R + r) * part.from_step;
                Words<16> words = load_words<16>(part.from + (u64)at * E);
#pragma unroll
                for (u32 k = 0; k < 4; k++) rows[r][k] = words.at[k];
            }
            u32 *cell = shared + x * PITCH + y * WORDS;
#pragma unroll
            for (u32 k = 0; k < N * WORDS; k++) {
                u32 word = k * E / (4 * WORDS), half = k & 1;
                u32 value = rows[0][word];
                if (E == 2) value = __byte_perm(value, rows[1 % R][word], half == 0 ? 0x5410 : 0x7632);
                if (E == 1) {
                    u32 low = __byte_perm(value, rows[1 % R][word], (k & 2) == 0 ? 0x5140 : 0x7362);
                    u32 high = __byte_perm(rows[2 % R][word], rows[3 % R][word], (k & 2) == 0 ? 0x5140 : 0x7362);
                    value = __byte_perm(low, high, half == 0 ? 0x5410 : 0x7632);
                }
                cell[k / WORDS * PITCH + k % WORDS] = value;
            }
        }
    }
    __syncthreads();
    EACH_THREAD {
#pragma unroll
        for (u32 v = threadIdx.x; v < 8 * N * DOWN; v += BLOCK_THREADS) {
            u32 x = v / DOWN, y = v % DOWN * Q;
            if (tile.left + x < part.width && tile.top + y * R < part.height) {
                Words<16> words;
#pragma unroll
                for (u32 k = 0; k < 4; k++) words.at[k] = shared[x * PITCH + y * WORDS + k];
                swap_words(words, swap_unit);
                store_words(part.to + (u64)(tile.to + y * R + x * part.to_step) * E, words);
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
        switch (part.kind) {
        case 0: copy_tile<u8, 36>(part, tile, swap, memory); break;
        case 1: copy_tile<u16, 34>(part, tile, swap, memory); break;
        case 2: copy_tile<u32, 33>(part, tile, swap, memory); break;
        case 3: copy_tile<uint2, 33>(part, tile, swap, memory); break;
        case 4: copy_tile<uint4, 33>(part, tile, swap, memory); break;
        case 8: copy_wide_tile<1>(part, tile, swap, (u32 *)memory); break;
        case 9: copy_wide_tile<2>(part, tile, swap, (u32 *)memory); break;
        case 10: copy_wide_tile<4>(part, tile, swap, (u32 *)memory); break;
        default: copy_wide_tile<8>(part, tile, swap, (u32 *)memory); break;
        }
    }
}
