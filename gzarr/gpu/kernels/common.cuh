// Types and index arithmetic for every kernel, in CUDA C++ or, with host_shim.h, in plain C++17.
#pragma once

// Defined here, because NVRTC has no <stdint.h>.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(void *) == 8, "a 64-bit platform");

#define GPU __device__ __forceinline__

// A block statement that every thread runs. Kernels with barriers consist of these, each ended by a barrier, and keep
// nothing but shared memory from one to the next, so that the host can run the threads of a block one after the other.
#ifndef EACH_THREAD
#define EACH_THREAD
#endif

// Kernels step by the grid, but for the copies of boxes, so any number of threads is correct; one for each unit is
// fastest.
GPU i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
GPU i64 thread_count() { return (i64)gridDim.x * blockDim.x; }

GPU const u8 *at_address(u64 address) { return (const u8 *)address; }

// a / b. The 64-bit division of a GPU is a subroutine of some 70 instructions, the 32-bit one takes about 20.
GPU u64 divide(u64 a, u64 b) { return ((a | b) >> 32) == 0 ? (u64)((u32)a / (u32)b) : a / b; }

// The row r with starts[r] <= x < starts[r + 1], where starts[0] <= x < starts[n]. Rows may be empty.
GPU i64 find_row(const i64 *starts, i64 n, i64 x) {
    i64 low = 0, high = n;
    while (high - low > 1) {
        i64 middle = (low + high) >> 1;
        if (starts[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}
