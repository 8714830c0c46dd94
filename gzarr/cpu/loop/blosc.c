/* Makes Blosc frames, block by block: see loop.h.
 *
 * A block is gathered, shuffled and compressed while it is in cache, with what c-blosc would call and in its format: the
 * frames are the same, byte by byte. One context of Zstandard serves all streams, where c-blosc makes one for each. What
 * does not become smaller is left to c-blosc.
 * Source: Blosc 1 frame format (c-blosc, README_CHUNK_FORMAT.rst).
 */
#include "blosc.h"

/* c-blosc: its highest level. */
enum { MAX_LEVEL = 9 };
/* Bytes that are written at once. */
enum { GROUP = 1 << 18 };

static int format_of(const Encoder *e) { return (int)((e->frame >> (8 * FLAGS)) & 0xff) >> FORMAT_SHIFT; }
static bool has_flag(const Encoder *e, int flag) { return (e->frame >> (8 * FLAGS)) & flag; }

bool frames_are_sound(const Job *job, const Encoder *e) {
    if (!e->frame) return true;
    if (e->frame < 0 || e->frame > UINT32_MAX || e->block < 1 || e->block > INT32_MAX || job->nbytes > INT32_MAX)
        return false;
    if (has_flag(e, BIT_SHUFFLED) || e->typesize != (e->frame >> 24)) return false;
    if (e->level < 1 || e->level > MAX_LEVEL) return false;
    if (format_of(e) == LZ4_FORMAT) return lib.LZ4_compress_fast != NULL;
    return format_of(e) == ZSTD_FORMAT && has_zstd_encoder();
}

/* Compress a stream, at the level that c-blosc takes. Returns: bytes made; 0 if they are more than `room`. */
static int64_t compress(const Encoder *e, const char *data, int64_t n, char *to, int64_t room, State *state) {
    const int level = (int)e->level;
    if (format_of(e) == ZSTD_FORMAT)
        return compress_zstd(level < MAX_LEVEL ? 2 * level - 1 : MAX_ZSTD_LEVEL, false, data, n, to, room, state);
    return lib.LZ4_compress_fast(data, to, (int)n, (int)room, MAX_LEVEL + 1 - level);
}

/* Compress a block. Returns: bytes made; 0 if they are more than `limit`. */
static int64_t add_block(const Encoder *e, const char *data, int64_t size, char *to, int64_t limit, State *state) {
    const int64_t splits = streams_of((int)(e->frame >> (8 * FLAGS)), e->typesize, e->block, size), each = size / splits;
    int64_t position = 0;
    for (int64_t k = 0; k < splits; k++) {
        position += START;
        const int64_t room = limit - position < each ? limit - position : each;
        if (room <= 0) return 0;
        int64_t made = compress(e, data + k * each, each, to + position, room, state);
        if (made <= 0 || made == each) {
            if (room < each) return 0;
            memcpy(to + position, data + k * each, (size_t)each);
            made = each;
        }
        put_number(to + position - START, made);
        position += made;
    }
    return position;
}

/* Memory that is needed besides that for a chunk and for its frame: two blocks. */
int64_t frame_room(const Encoder *e) { return e->frame ? 2 * e->block : 0; }

/* Make the frame of a chunk: of `data`, or of what `box` takes from the value. fd: a file that the frame is written to, a
 * few blocks at a time; -1 for none: then all of it is put into `to`. Returns: its bytes, max_encoded at most; 0 if c-blosc
 * is to make it, or the file cannot be written. */
int64_t make_frame(const Job *job, const Encoder *e, const char *data, const Box *box, char *to, int fd, State *state) {
    char *gathered = state->blocks, *shuffled = gathered + e->block;
    const int64_t limit = job->nbytes + HEADER, n = (job->nbytes - 1) / e->block + 1, head = HEADER + START * n;
    int64_t position = head, held = 0; /* behind the head, in `to` */
    if (position > limit || (!data && job->swap && e->block % job->swap)) return 0; /* blocks that cut numbers */
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
        const int64_t made = add_block(e, block, size, to + head + held, limit - position, state);
        if (!made) return 0;
        position += made, held += made;
        if (fd >= 0 && (held >= GROUP || b == n - 1)) {
            if (!write_at(fd, to + head, held, position - held)) return 0;
            held = 0;
        }
    }
    put_number(to, e->frame);
    put_number(to + 4, job->nbytes);
    put_number(to + 8, e->block);
    put_number(to + 12, position);
    return fd < 0 || write_at(fd, to, head, 0) ? position : 0;
}
