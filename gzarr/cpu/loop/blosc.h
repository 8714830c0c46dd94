/* What blosc.c and blosc_decode.c know of the frames of Blosc 1 (c-blosc, README_CHUNK_FORMAT.rst). */
#ifndef GZARR_BLOSC_H
#define GZARR_BLOSC_H

#include "loop.h"

/* c-blosc: what a frame may have besides the data; elements up to which, and from which length on, they are compressed one
 * by one; flags of the header. */
enum { HEADER = 16, START = 4, MAX_SPLITS = 16, MIN_SPLIT = 128 };
enum { FORMAT = 2, CODEC_FORMAT = 1, FLAGS = 2, TYPESIZE = 3 };
enum { SHUFFLED = 1, MEMCPYED = 2, BIT_SHUFFLED = 4, RESERVED = 8, WHOLE = 16, FORMAT_SHIFT = 5 };
enum { LZ4_FORMAT = 1, ZSTD_FORMAT = 4 };

/* How many streams a block of `size` bytes is, in frames of blocks of `block` bytes. */
static inline int64_t streams_of(int flags, int64_t typesize, int64_t block, int64_t size) {
    const bool split = !(flags & WHOLE) && typesize <= MAX_SPLITS && size == block && size / typesize >= MIN_SPLIT;
    return split ? typesize : 1;
}

static inline void put_number(char *at, int64_t value) {
    const uint32_t bits = (uint32_t)value;
    memcpy(at, &bits, sizeof bits);
}

#endif
