// A unit: the 16 bytes that one thread reads and writes, held in registers.
//
// Sixteen bytes are the widest access of a GPU: a warp writes 512 contiguous bytes in one instruction. The bytes are
// two numbers, not an array, because an array that is indexed at run time would be in local memory.
#pragma once
#include "common.cuh"

static_assert(UNIT_NBYTES == 16, "the launcher and the kernels agree on the size of a unit");

struct Unit {
    u64 low, high; // byte k is bits [8 k, 8 k + 8)
};

// Put n bytes (1, 2, 4 or 8, at a multiple of n, where the unit holds zero) at byte k.
GPU void put(Unit &unit, int k, u64 value) {
    if (k < 8) {
        unit.low |= value << (8 * k);
    } else {
        unit.high |= value << (8 * (k - 8));
    }
}

// The bytes from k on to the end of their half, as a number.
GPU u64 get(const Unit &unit, int k) { return k < 8 ? unit.low >> (8 * k) : unit.high >> (8 * (k - 8)); }

// n = 1, 2, 4 or 8 little-endian bytes as a number; one access where the address allows it.
GPU u64 load_number(const u8 *from, int n) {
    if (((u64)from & (n - 1)) == 0) {
        if (n == 8) return *(const u64 *)from;
        if (n == 4) return *(const u32 *)from;
        if (n == 2) return *(const u16 *)from;
        return *from;
    }
    u64 value = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (k < n) value |= (u64)from[k] << (8 * k);
    }
    return value;
}

// The first n <= 16 bytes.
GPU Unit load_bytes(const u8 *from, i64 n) {
    Unit unit = {0, 0};
#pragma unroll
    for (int k = 0; k < 16; k++) {
        if (k < n) put(unit, k, from[k]);
    }
    return unit;
}

GPU void store_bytes(u8 *to, const Unit &unit, i64 n) {
#pragma unroll
    for (int k = 0; k < 16; k++) {
        if (k < n) to[k] = (u8)get(unit, k);
    }
}

// Sixteen bytes at any address. [first, last) may be read, so that a misaligned unit can be cut out of words.
GPU Unit load_unit(const u8 *from, const u8 *first, const u8 *last) {
    u64 address = (u64)from;
    if ((address & 15) == 0) {
        ulonglong2 all = *(const ulonglong2 *)from;
        return {all.x, all.y};
    }
    int shift = 8 * (int)(address & 7);
    if (shift == 0) return {((const u64 *)from)[0], ((const u64 *)from)[1]};
    u64 aligned = address & ~(u64)7;
    if (aligned >= (u64)first && aligned + 24 <= (u64)last) {
        const u64 *words = (const u64 *)aligned;
        u64 middle = words[1];
        return {words[0] >> shift | middle << (64 - shift), middle >> shift | words[2] << (64 - shift)};
    }
    return load_bytes(from, 16);
}

GPU void store_unit(u8 *to, const Unit &unit) {
    u64 address = (u64)to;
    if ((address & 15) == 0) {
        ulonglong2 all = {unit.low, unit.high};
        *(ulonglong2 *)to = all;
    } else if ((address & 3) == 0) {
#pragma unroll
        for (int k = 0; k < 16; k += 4) *(u32 *)(to + k) = (u32)get(unit, k);
    } else if ((address & 1) == 0) {
#pragma unroll
        for (int k = 0; k < 16; k += 2) *(u16 *)(to + k) = (u16)get(unit, k);
    } else {
        store_bytes(to, unit, 16);
    }
}
