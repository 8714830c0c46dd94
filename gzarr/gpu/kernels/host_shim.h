// Lets a C++17 compiler build the kernels for the host: CUDA's words, and a loop in place of the grid.
//
// Threads run one after the other, so this shows wrong index arithmetic and wrong addresses (more so under
// AddressSanitizer and UBSan), but no race, no warp-level mistake and nothing about speed.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

struct HostIndex {
    unsigned x;
};

static thread_local HostIndex threadIdx, blockIdx, blockDim, gridDim;

// The last block is whole, as on a device: kernels must bear threads without work.
template <typename... Params>
static void run_threads(long long n_threads, unsigned block_threads, void (*kernel)(Params...), Params... params) {
    blockDim.x = block_threads;
    gridDim.x = (unsigned)((n_threads + block_threads - 1) / block_threads);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < block_threads; threadIdx.x++) kernel(params...);
    }
}
