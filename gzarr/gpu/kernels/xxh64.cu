// xxh64: XXH64 with seed 0 of many byte streams. Its low half is the content checksum of Zstandard frames.
//
// One thread takes one stream: the four lanes of the hash are chains over the whole stream, which cannot be split. They
// run in parallel in the thread, so a stream takes about as long as one chain of as many steps as it has 32-byte
// stripes.
//
// Traffic for each byte: one read; 8 bytes written for each stream. Threads of a warp read far apart, 32 contiguous
// bytes each, so lines are used completely as long as L1 holds one for each thread.
//
// Source: the xxHash specification, "XXH64 algorithm description" (version 0.1.1).
#include "unit.cuh"

const u64 PRIME_1 = 0x9E3779B185EBCA87ull, PRIME_2 = 0xC2B2AE3D27D4EB4Full, PRIME_3 = 0x165667B19E3779F9ull;
const u64 PRIME_4 = 0x85EBCA77C2B2AE63ull, PRIME_5 = 0x27D4EB2F165667C5ull;

GPU u64 rotated(u64 x, int n) { return x << n | x >> (64 - n); }

GPU u64 rounded(u64 lane, u64 value) { return rotated(lane + value * PRIME_2, 31) * PRIME_1; }

GPU u64 merged(u64 hash, u64 lane) { return (hash ^ rounded(0, lane)) * PRIME_1 + PRIME_4; }

extern "C" __global__ void xxh64(i64 n_streams, const u64 *src, const i64 *nbytes, u64 *hash) {
    for (i64 stream = thread_index(); stream < n_streams; stream += thread_count()) {
        const u8 *from = at_address(src[stream]);
        i64 size = nbytes[stream], k = 0;
        u64 h = PRIME_5;
        if (size >= 32) {
            u64 a = PRIME_1 + PRIME_2, b = PRIME_2, c = 0, d = (u64)0 - PRIME_1;
            for (; size - k >= 32; k += 32) {
                a = rounded(a, load_number(from + k, 8));
                b = rounded(b, load_number(from + k + 8, 8));
                c = rounded(c, load_number(from + k + 16, 8));
                d = rounded(d, load_number(from + k + 24, 8));
            }
            h = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
            h = merged(merged(merged(merged(h, a), b), c), d);
        }
        h += (u64)size;
        for (; size - k >= 8; k += 8) h = rotated(h ^ rounded(0, load_number(from + k, 8)), 27) * PRIME_1 + PRIME_4;
        if (size - k >= 4) {
            h = rotated(h ^ load_number(from + k, 4) * PRIME_1, 23) * PRIME_2 + PRIME_3;
            k += 4;
        }
        for (; k < size; k++) h = rotated(h ^ from[k] * PRIME_5, 11) * PRIME_1;
        h = (h ^ h >> 33) * PRIME_2;
        h = (h ^ h >> 29) * PRIME_3;
        hash[stream] = h ^ h >> 32;
    }
}
