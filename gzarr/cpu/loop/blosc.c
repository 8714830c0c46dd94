/* Makes Blosc frames, block by block: see loop.h.
 *
 * A block is gathered, shuffled and compressed while it is in cache. With LZ4 the frames are those of c-blosc, byte by
 * byte. For Zstandard, the matches of most blocks are found here (matches.c), in less time than Zstandard takes to find
 * about as good ones; it encodes them, as one frame for each block. What does not become smaller is left to c-blosc.
 * Source: Blosc 1 frame format (c-blosc, README_CHUNK_FORMAT.rst).
 */
#include "loop.h"

/* c-blosc: what a frame may have besides the data; elements up to which, and from which length on, they are compressed one
 * by one; flags of the header. */
enum { HEADER = 16, START = 4, MAX_SPLITS = 16, MIN_SPLIT = 128 };
enum { FLAGS = 2, SHUFFLED = 1, BIT_SHUFFLED = 4, WHOLE = 16, FORMAT_SHIFT = 5 };
enum { LZ4_FORMAT = 1, ZSTD_FORMAT = 4 };
/* The longest block that is searched (matches.c); of memory for numbers. */
enum { MAX_SEARCHED = 1 << 18, ALIGNMENT = 16 };
/* Blocks that become so many times smaller are compressed by Zstandard too. */
enum { DENSE = 16 };

static char *aligned(char *at) { return at + (ALIGNMENT - (intptr_t)at % ALIGNMENT) % ALIGNMENT; }

static int format_of(const Encoder *e) { return (int)((e->frame >> (8 * FLAGS)) & 0xff) >> FORMAT_SHIFT; }
static bool has_flag(const Encoder *e, int flag) { return (e->frame >> (8 * FLAGS)) & flag; }

bool frames_are_sound(const Job *job, const Encoder *e) {
    if (!e->frame) return true;
    if (e->frame < 0 || e->frame > UINT32_MAX || e->block < 1 || e->block > INT32_MAX || job->nbytes > INT32_MAX)
        return false;
    if (has_flag(e, BIT_SHUFFLED) || e->typesize != (e->frame >> 24)) return false;
    if (format_of(e) == LZ4_FORMAT) return lib.LZ4_compress_fast != NULL;
    return format_of(e) == ZSTD_FORMAT && e->level >= 1 && e->level < 9 && e->block <= MAX_SEARCHED && lib.ZSTD_compress &&
           lib.ZSTD_compressSequences && lib.ZSTD_createCCtx && lib.ZSTD_freeCCtx && lib.ZSTD_CCtx_setParameter &&
           lib.ZSTD_isError;
}

/* A context that encodes sequences that were found. NULL if there is none. */
static void *take_context(State *state, int level) {
    /* Zstandard's parameters: how it encodes; small tables, as it searches nothing; sequences end with their blocks. */
    const int parameters[][2] = {{100, level}, {107, 5}, {102, 6}, {103, 6}, {105, 4}, {1011, 2}, {1008, 1}, {1009, 0}};
    if (state->zstd || !(state->zstd = lib.ZSTD_createCCtx())) return state->zstd;
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        if (!lib.ZSTD_isError(lib.ZSTD_CCtx_setParameter(state->zstd, parameters[i][0], parameters[i][1]))) continue;
        lib.ZSTD_freeCCtx(state->zstd);
        return state->zstd = NULL;
    }
    return state->zstd;
}

/* Compress shuffled planes with Zstandard; `state->blocks` is free for a block. Returns: bytes made; 0 if they do not fit. room: for sequences. */
static int64_t compress_planes(const Encoder *e, const char *data, int64_t n, char *to, int64_t capacity, char *room,
                               State *state) {
    const int level = 2 * (int)e->level - 1; /* as c-blosc has it */
    ZSTD_Sequence *sequences;
    const int64_t found = find_sequences(data, n, n / e->typesize, room, &sequences);
    void *context = found ? take_context(state, level) : NULL;
    size_t made = context ? lib.ZSTD_compressSequences(context, to, (size_t)capacity, sequences, (size_t)found, data, (size_t)n)
                          : (size_t)-1;
    /* A new context each time: what it makes depends on nothing but the data. */
    if (!context) made = lib.ZSTD_compress(to, (size_t)capacity, data, (size_t)n, level);
    if (context && !lib.ZSTD_isError(made) && (int64_t)made < n / DENSE) { /* the deeper search may find much more */
        char *other = state->blocks;
        const size_t less = lib.ZSTD_compress(other, made, data, (size_t)n, level);
        if (!lib.ZSTD_isError(less)) memcpy(to, other, made = less);
    }
    return lib.ZSTD_isError(made) ? 0 : (int64_t)made;
}

/* Compress a stream. Returns: bytes made; 0 if they are not fewer than `capacity`. */
static int64_t compress(const Encoder *e, const char *data, int64_t n, char *to, int64_t capacity, char *room,
                        State *state) {
    if (format_of(e) == ZSTD_FORMAT) return compress_planes(e, data, n, to, capacity, room, state);
    const int acceleration = e->level == 9 ? 1 : 10 - (int)e->level; /* as c-blosc has it */
    return lib.LZ4_compress_fast(data, to, (int)n, (int)capacity, acceleration);
}

/* Compress a block to where `*position` is. False if it does not fit. limit: of the frame. */
static bool add_block(const Encoder *e, const char *data, int64_t size, char *to, int64_t *position, int64_t limit,
                      State *state) {
    char *room = aligned(state->blocks + 2 * e->block);
    const bool split = !has_flag(e, WHOLE) && e->typesize <= MAX_SPLITS && size == e->block &&
                       size / e->typesize >= MIN_SPLIT;
    const int64_t splits = split ? e->typesize : 1, each = size / splits;
    for (int64_t k = 0; k < splits; k++) {
        *position += START;
        const int64_t capacity = limit - *position < each ? limit - *position : each;
        if (capacity <= 0) return false;
        int64_t made = compress(e, data + k * each, each, to + *position, capacity, room, state);
        if (made <= 0 || made == each) {
            if (capacity < each) return false;
            memcpy(to + *position, data + k * each, (size_t)each);
            made = each;
        }
        const uint32_t length = (uint32_t)made;
        memcpy(to + *position - START, &length, sizeof length);
        *position += made;
    }
    return true;
}

/* Memory that is needed besides that for a chunk and for its frame: two blocks, and what a search takes. */
int64_t frame_room(const Encoder *e) {
    if (!e->frame) return 0;
    return 2 * e->block + (format_of(e) == ZSTD_FORMAT ? sequences_room(e->block) + ALIGNMENT : 0);
}

static void put_number(char *at, int64_t value) {
    const uint32_t bits = (uint32_t)value;
    memcpy(at, &bits, sizeof bits);
}

/* Make the frame of a chunk: of `data`, or of what `box` takes from the value. Returns: its bytes, max_encoded at most; 0
 * if c-blosc is to make it. */
int64_t make_frame(const Job *job, const Encoder *e, const char *data, const Box *box, char *to, State *state) {
    char *gathered = state->blocks, *shuffled = gathered + e->block;
    const int64_t limit = job->nbytes + HEADER, n = (job->nbytes - 1) / e->block + 1;
    int64_t position = HEADER + START * n;
    if (position > limit) return 0;
    for (int64_t b = 0; b < n; b++) {
        const int64_t begin = b * e->block, left = job->nbytes - begin, size = left < e->block ? left : e->block;
        const char *block = data + begin;
        if (!data) {
            gather_range(box, begin, begin + size, gathered);
            if (job->swap) swap_bytes(gathered, size, job->swap);
            block = gathered;
        }
        if (has_flag(e, SHUFFLED) && e->typesize > 1) {
            shuffle_bytes(e->typesize, size, block, shuffled);
            block = shuffled;
        }
        put_number(to + HEADER + START * b, position);
        if (!add_block(e, block, size, to, &position, limit, state)) return 0;
    }
    put_number(to, e->frame);
    put_number(to + 4, job->nbytes);
    put_number(to + 8, e->block);
    put_number(to + 12, position);
    return position;
}
