// Builds the kernels for the host with a C++17 compiler: CUDA's keywords, and a loop in place of the grid.
//
// Threads run one after the other; those of a kernel with barriers run to the end of each EACH_THREAD. This reveals wrong
// index arithmetic and wrong addresses, especially under AddressSanitizer and UBSan, but no races, no warp-level errors,
// and nothing about speed.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

#define __launch_bounds__(...)
#define __shared__ static thread_local
#define EACH_THREAD for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)

static inline void __syncthreads() {}

template <typename T> static inline T __ldcs(const T *from) { return *from; }

template <typename T> static inline void __stcs(T *to, T value) { *to = value; }

// Byte k of the result is byte number (selector >> 4 k) % 8 of y:x. Source: CUDA Math API, __byte_perm.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int k = 0; k < 4; k++) result |= (unsigned)(both >> (8 * (selector >> (4 * k) & 7)) & 0xff) << (8 * k);
    return result;
}

struct HostIndex {
    unsigned x;
};

static thread_local HostIndex threadIdx, blockIdx, blockDim, gridDim;

// The last block is complete, as on a device: kernels must accept threads without work.
template <typename... Params>
static void run_threads(long long n_threads, unsigned block_threads, void (*kernel)(Params...), Params... params) {
    blockDim.x = block_threads;
    gridDim.x = (unsigned)((n_threads + block_threads - 1) / block_threads);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < block_threads; threadIdx.x++) kernel(params...);
    }
}

// The same for a kernel that consists of EACH_THREAD and barriers: it is called once for each block.
template <typename... Params>
static void run_blocks(long long n_threads, unsigned block_threads, void (*kernel)(Params...), Params... params) {
    blockDim.x = block_threads;
    gridDim.x = (unsigned)((n_threads + block_threads - 1) / block_threads);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) kernel(params...);
}
