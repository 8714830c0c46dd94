// xxh64: XXH64 with seed 0 of many byte streams. Its low half is the content checksum of Zstandard frames.
//
// Four threads take one stream, one for each of its four accumulators. These are chains over the whole stream, which
// cannot be split: each step needs the one before it. So a stream takes at least as long as one chain of as many steps
// as it has stripes of 32 bytes, of some 30 cycles each (a 64-bit addition, rotation and multiplication): about 9 ms for
// 16 MiB at 1.8 GHz, however many threads there are. Other streams, and the waves on other lanes, run meanwhile.
// What is loaded is needed 16 steps later, which hides the latency of memory.
//
// Traffic for each byte: one read; 8 bytes written for each stream. The four threads of a stream read 32 contiguous
// bytes.
//
// Source: the xxHash specification, "XXH64 algorithm description" (version 0.1.1).
#include "unit.cuh"

const u64 PRIME_1 = 0x9E3779B185EBCA87ull, PRIME_2 = 0xC2B2AE3D27D4EB4Full, PRIME_3 = 0x165667B19E3779F9ull;
const u64 PRIME_4 = 0x85EBCA77C2B2AE63ull, PRIME_5 = 0x27D4EB2F165667C5ull;

GPU u64 rotated(u64 x, int n) { return x << n | x >> (64 - n); }

GPU u64 rounded(u64 lane, u64 value) { return rotated(lane + value * PRIME_2, 31) * PRIME_1; }

GPU u64 merged(u64 hash, u64 lane) { return (hash ^ rounded(0, lane)) * PRIME_1 + PRIME_4; }

GPU u64 start_of(u32 lane) {
    return lane == 0 ? PRIME_1 + PRIME_2 : lane == 1 ? PRIME_2 : lane == 2 ? 0 : (u64)0 - PRIME_1;
}

// The accumulator of a lane, whose numbers are 32 bytes apart.
GPU u64 accumulated(const u8 *from, i64 stripes, u64 lane) {
    const int AHEAD = 16;
    i64 k = 0;
    if (stripes >= 2 * AHEAD && ((u64)from & 7) == 0) {
        const u64 *numbers = (const u64 *)from;
        u64 coming[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) coming[j] = numbers[4 * j];
        for (; k + 2 * AHEAD <= stripes; k += AHEAD) {
            numbers += 4 * AHEAD;
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                lane = rounded(lane, coming[j]);
                coming[j] = numbers[4 * j];
            }
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) lane = rounded(lane, coming[j]);
        k += AHEAD;
    }
    for (; k < stripes; k++) lane = rounded(lane, load_number(from + 32 * k, 8));
    return lane;
}

// lanes: the four accumulators.
GPU u64 finished(const u8 *from, i64 size, const u64 *lanes) {
    u64 h = PRIME_5;
    if (size >= 32) {
        h = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
        h = merged(merged(merged(merged(h, lanes[0]), lanes[1]), lanes[2]), lanes[3]);
    }
    h += (u64)size;
    i64 k = size & ~(i64)31;
    for (; size - k >= 8; k += 8) h = rotated(h ^ rounded(0, load_number(from + k, 8)), 27) * PRIME_1 + PRIME_4;
    if (size - k >= 4) {
        h = rotated(h ^ load_number(from + k, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        k += 4;
    }
    for (; k < size; k++) h = rotated(h ^ from[k] * PRIME_5, 11) * PRIME_1;
    h = (h ^ h >> 33) * PRIME_2;
    h = (h ^ h >> 29) * PRIME_3;
    return h ^ h >> 32;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    xxh64(i64 n_streams, const u64 *src, const i64 *nbytes, u64 *hash) {
    __shared__ u64 lanes[BLOCK_THREADS];
    const i64 EACH = BLOCK_THREADS / 4;
    for (i64 first = blockIdx.x * EACH; first < n_streams; first += gridDim.x * EACH) {
        EACH_THREAD {
            i64 stream = first + threadIdx.x / 4;
            u32 lane = threadIdx.x % 4;
            if (stream < n_streams) {
                const u8 *from = at_address(src[stream]) + 8 * lane;
                lanes[threadIdx.x] = accumulated(from, nbytes[stream] / 32, start_of(lane));
            }
        }
        __syncthreads();
        EACH_THREAD {
            i64 stream = first + threadIdx.x;
            if (threadIdx.x < EACH && stream < n_streams) {
                hash[stream] = finished(at_address(src[stream]), nbytes[stream], lanes + 4 * threadIdx.x);
            }
        }
        __syncthreads();
    }
}
