// copy_bits: copies boxes of bit-shuffled chunks, with items of 1, 2, 4, 8 or 16 bytes.
//
// Eight items share the bytes of their bit rows. A thread makes 32 items (K = 32; 16 of eight bytes) of words of the
// rows, or 8 items of bytes. For one, all eight are loaded, and come from L1 seven times. Rows narrower than a word are
// packed, one of each of several bytes of an item to a word, so that an operation takes four bytes.
//
// Traffic for each byte: one read and one write. A warp reads 128 or 32 contiguous bytes of each bit row. What it makes
// is contiguous in each thread: one store writes half of every sector that it touches if items have 4 or 8 bytes.
#include "rows.cuh"

// Items of T bytes. Byte G p + g of word i of n is byte 4 / G * n + p of item 8 g + i.
template <int T, int G> GPU Words<8 * G * T> join_groups(const u32 (&groups)[T * G / 4][8]) {
    const int N = T * G / 4;
    Words<8 * G * T> words;
#pragma unroll
    for (int q = 0; q < 8 * T; q += 4) { // bytes of eight items
        int i = q / T, n = q % T * G / 4;
        if (G == 1) {
            words.at[q / 4] = groups[n][i];
        } else if (G == 2) {
            words.at[q / 4] = __byte_perm(groups[n][i], groups[(n + 1) % N][i], 0x6420);
            words.at[2 * T * (G - 1) + q / 4] = __byte_perm(groups[n][i], groups[(n + 1) % N][i], 0x7531);
        } else {
            u32 four[4];
#pragma unroll
            for (int k = 0; k < 4; k++) four[k] = groups[(q + k) % N][(q + k) / T];
#pragma unroll
            for (int g = 0; g < G; g++) {
                u32 low = zip_bytes(four, four + 1, g >> 1), high = zip_bytes(four + 2, four + 3, g >> 1);
                words.at[2 * T * g + q / 4] = __byte_perm(low, high, (g & 1) == 0 ? 0x5410 : 0x7632);
            }
        }
    }
    return words;
}

template <int T, int K> struct Unshuffled {
    static const int NBYTES = T * K;
    const u8 *__restrict__ chunk;
    const Blocks &blocks;
    u32 from, step; // bytes of the plain chunk: of the first unit, and to the next

    GPU Words<T * K> operator()(u32 unit) const {
        Item item = item_of<T>(blocks, from + unit * step);
        u32 row_nbytes = item.n_items >> 3;
        const u8 *from = chunk + (item.block + (item.number >> 3));
        if constexpr (K >= 8 && T * K >= 32) {
            const int G = K / 8, N = T * G / 4;
            const u64 plane_nbytes = (u64)row_nbytes * 8;
            u32 groups[N][8];
#pragma unroll
            for (int n = 0; n < N; n++) {
                // Never so, but the loads of all groups together would take more registers than there are: compilers do
                // not move them across a branch.
                if (T >= 8 && n > 0 && row_nbytes + n == 1u << 28) break;
#pragma unroll
                for (int b = 0; b < 8; b++, from += row_nbytes) {
                    const u8 *at = from;
#pragma unroll
                    for (int p = 0; p < 4 / G; p++, at += plane_nbytes) set_item<G>(&groups[n][b], p, load_words<G>(at));
                }
                from += (4 / G - 1) * plane_nbytes;
                transpose_words(groups[n]);
            }
            return join_groups<T, G>(groups);
        } else {
            u32 planes[T][(K + 3) / 4];
#pragma unroll
            for (int j = 0; j < T; j++) {
                u32 low = four_bytes(from + (u64)row_nbytes * (8 * j), row_nbytes);
                u32 high = four_bytes(from + (u64)row_nbytes * (8 * j + 4), row_nbytes);
                transpose_bits(low, high);
                if (K == 8) {
                    planes[j][0] = low;
                    planes[j][1 % ((K + 3) / 4)] = high;
                } else {
                    planes[j][0] = ((item.number & 4) == 0 ? low : high) >> (8 * (item.number & 3));
                }
            }
            return join_items<T, K>(planes);
        }
    }
};

template <int T, int K> GPU void unshuffle(const Part &part, const Task &task, u32 swap_unit) {
    const Blocks blocks = part.blocks;
    Unshuffled<T, K> load = {part.from, blocks, blocks.start + task.from * (T * K), part.rows.from * (T * K)};
    copy_units<1>(part, task, load, swap_unit);
}

// Blocks that are half of a multiprocessor's threads, or more: of 1,536 from sm_120 on. With registers for four, NVRTC 12.9
// spills there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define HALF_OF_BLOCKS 3
#else
#define HALF_OF_BLOCKS 4
#endif

// lists: of indices, of all parts. blocks_each: of a part; magic, shift: its divisor. swap_unit: bytes of numbers that lie in the other order, or 0.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, HALF_OF_BLOCKS)
    copy_bits(i64 blocks_each, i64 magic, i64 shift, const void *parts, const i32 *lists, i64 swap_unit) {
    Grid grid = {(const Part *)parts, lists, (u32)blocks_each, {(u32)magic, (u32)shift}};
    u32 swap = (u32)swap_unit;
    const Part &part = part_of(grid, blockIdx.x);
    u32 number = first_task(grid, blockIdx.x);
    if (number >= part.n_tasks) return;
    Task task = find_task(part, lists, number);
    switch (part.kind) { // 8 log2 T + log2 K
    case 0: unshuffle<1, 1>(part, task, swap); break;
    case 3: unshuffle<1, 8>(part, task, swap); break;
    case 5: unshuffle<1, 32>(part, task, swap); break;
    case 8: unshuffle<2, 1>(part, task, swap); break;
    case 11: unshuffle<2, 8>(part, task, swap); break;
    case 13: unshuffle<2, 32>(part, task, swap); break;
    case 16: unshuffle<4, 1>(part, task, swap); break;
    case 19: unshuffle<4, 8>(part, task, swap); break;
    case 21: unshuffle<4, 32>(part, task, swap); break;
    case 24: unshuffle<8, 1>(part, task, swap); break;
    case 28: unshuffle<8, 16>(part, task, swap); break;
    case 27: unshuffle<8, 8>(part, task, swap); break;
    case 32: unshuffle<16, 1>(part, task, swap); break;
    default: unshuffle<16, 8>(part, task, swap); break;
    }
}
