// Some bytes in registers, as 32-bit words: the form in which the fast copies hold, interleave and swap them.
#pragma once
#include "common.cuh"

// W bytes: 1, 2 or a multiple of 4.
template <int W> struct Words {
    u32 at[(W + 3) / 4];
};

// Loads and stores are streaming, because each byte is touched once, but for loads of less than a word: other warps read
// the rest of a line. Addresses are multiples of W, up to 16.
template <int W> GPU Words<W> load_words(const u8 *from) {
    Words<W> words;
    if (W >= 16) {
#pragma unroll
        for (int k = 0; k < W / 16; k++) {
            uint4 four = __ldcs((const uint4 *)from + k);
            words.at[(4 * k) % ((W + 3) / 4)] = four.x;
            words.at[(4 * k + 1) % ((W + 3) / 4)] = four.y;
            words.at[(4 * k + 2) % ((W + 3) / 4)] = four.z;
            words.at[(4 * k + 3) % ((W + 3) / 4)] = four.w;
        }
    } else if (W == 8) {
        uint2 two = __ldcs((const uint2 *)from);
        words.at[0] = two.x;
        words.at[1 % ((W + 3) / 4)] = two.y;
    } else if (W == 4) {
        words.at[0] = __ldcs((const u32 *)from);
    } else if (W == 2) {
        words.at[0] = *(const u16 *)from;
    } else {
        words.at[0] = *from;
    }
    return words;
}

template <int W> GPU void store_words(u8 *to, const Words<W> &words) {
    const int N = (W + 3) / 4;
    if (W >= 16) {
#pragma unroll
        for (int k = 0; k < W / 16; k++) {
            uint4 four = {words.at[4 * k % N], words.at[(4 * k + 1) % N], words.at[(4 * k + 2) % N],
                          words.at[(4 * k + 3) % N]};
            __stcs((uint4 *)to + k, four);
        }
    } else if (W == 8) {
        uint2 two = {words.at[0], words.at[1 % N]};
        __stcs((uint2 *)to, two);
    } else if (W == 4) {
        __stcs((u32 *)to, words.at[0]);
    } else if (W == 2) {
        __stcs((u16 *)to, (u16)words.at[0]);
    } else {
        __stcs(to, (u8)words.at[0]);
    }
}

// Put item k of T bytes into its place. Items before it are there already.
template <int T> GPU void set_item(u32 *words, int k, const Words<T> &item) {
    u32 &word = words[k * T / 4];
    if (T >= 4) {
#pragma unroll
        for (int j = 0; j < T / 4; j++) words[k * T / 4 + j] = item.at[j];
    } else if (k * T % 4 == 0) {
        word = item.at[0];
    } else {
        const u32 SELECT[] = {0, 0x3240, T == 1 ? 0x3410 : 0x5410, 0x4210};
        word = __byte_perm(word, item.at[0], SELECT[k * T % 4]);
    }
}

// Item k of T bytes, with other bytes above it.
template <int T> GPU Words<T> get_item(const u32 *words, int k) {
    Words<T> item;
#pragma unroll
    for (int j = 0; j < (T + 3) / 4; j++) item.at[j] = words[k * T / 4 + j] >> (8 * (k * T % 4));
    return item;
}

// Reverse the bytes of each number of `size` bytes (0 or 1: none, 2, 4 or 8), of which W is a multiple.
template <int W> GPU void swap_words(Words<W> &words, u32 size) {
    const int N = (W + 3) / 4;
    if (size < 2) return;
#pragma unroll
    for (int k = 0; k < N; k++) words.at[k] = __byte_perm(words.at[k], 0, size == 2 ? 0x2301 : 0x0123);
    if (size < 8) return;
#pragma unroll
    for (int k = 0; k + 1 < N; k += 2) {
        u32 low = words.at[k];
        words.at[k] = words.at[k + 1];
        words.at[k + 1] = low;
    }
}

// Bytes 2 m and 2 m + 1 of two planes, alternately.
GPU u32 zip_bytes(const u32 *one, const u32 *other, int m) {
    u32 select = (m & 1) == 0 ? 0x5140 : 0x7362;
    return __byte_perm(one[m >> 1], other[m >> 1], select);
}

// K items of T bytes from T planes of K bytes.
template <int T, int K> GPU Words<T * K> join_items(const u32 (&planes)[T][(K + 3) / 4]) {
    const int N = (T * K + 3) / 4;
    Words<T * K> words;
    if (T == 1) {
#pragma unroll
        for (int k = 0; k < N; k++) words.at[k] = planes[0][k % ((K + 3) / 4)];
    } else if (T == 2) {
#pragma unroll
        for (int k = 0; k < N; k++) words.at[k] = zip_bytes(planes[0], planes[1 % T], k);
    } else {
#pragma unroll
        for (int k = 0; k < K; k++) {
#pragma unroll
            for (int j = 0; j < T; j += 4) {
                u32 low = zip_bytes(planes[j], planes[(j + 1) % T], k >> 1);
                u32 high = zip_bytes(planes[(j + 2) % T], planes[(j + 3) % T], k >> 1);
                words.at[(k * T + j) / 4 % N] = __byte_perm(low, high, (k & 1) == 0 ? 0x5410 : 0x7632);
            }
        }
    }
    return words;
}

// Transpose 8 x 8 bits: bit c of byte r goes to bit r of byte c; low has bytes 0 to 3. Source: Hacker's Delight, 7-3.
GPU void transpose_bits(u32 &low, u32 &high) {
    u32 t = (low ^ low >> 7) & 0x00aa00aau;
    low ^= t ^ t << 7;
    t = (high ^ high >> 7) & 0x00aa00aau;
    high ^= t ^ t << 7;
    t = (low ^ low >> 14) & 0x0000ccccu;
    low ^= t ^ t << 14;
    t = (high ^ high >> 14) & 0x0000ccccu;
    high ^= t ^ t << 14;
    t = (low & 0x0f0f0f0fu) | (high << 4 & 0xf0f0f0f0u);
    high = (high & 0xf0f0f0f0u) | (low >> 4 & 0x0f0f0f0fu);
    low = t;
}

// Four bytes, `stride` apart, as a word.
GPU u32 four_bytes(const u8 *__restrict__ from, u64 stride) {
    u32 a = from[0], b = from[stride], c = from[2 * stride], d = from[3 * stride];
    return __byte_perm(__byte_perm(a, b, 0x1140), __byte_perm(c, d, 0x1140), 0x5410);
}

// Swap the bits of `mask`, moved up by d, of one word with those of another.
GPU void exchange(u32 &one, u32 &other, int d, u32 mask) {
    u32 low = (one & mask) | ((other << d) & ~mask);
    other = ((one >> d) & mask) | (other & ~mask);
    one = low;
}

// Transpose the bits of bytes k of eight words: bit c of word r goes to bit r of word c.
GPU void transpose_words(u32 (&words)[8]) {
#pragma unroll
    for (int b = 0; b < 4; b++) exchange(words[b], words[b + 4], 4, 0x0f0f0f0fu);
#pragma unroll
    for (int b = 0; b < 6; b++) {
        if ((b & 2) == 0) exchange(words[b], words[b + 2], 2, 0x33333333u);
    }
#pragma unroll
    for (int b = 0; b < 8; b += 2) exchange(words[b], words[b + 1], 1, 0x55555555u);
}
