/* Takes the frames of compressors apart for a device: follows their headers to the streams in them.
 *
 * Only frames that are plain in every way are taken. Anything else, damage or what is merely unusual, is left to the host,
 * whose decoders know every variant and say what is wrong. Rules: a position is compared with the end of its frame before
 * a byte is read there; the streams of a frame that is taken fill its decoded bytes exactly once, still shuffled.
 */
#include "device.h"

#include <string.h>

/* Zstandard frames (RFC 8878). */
static const uint32_t ZSTD_MAGIC = 0xFD2FB528;
enum { MAX_BLOCKS = 4096, MAX_BLOCK_NBYTES = 1 << 17 };
static const int64_t MAX_WINDOW = (int64_t)1 << 27;

static uint64_t little_endian(const uint8_t *at, int n) {
    uint64_t value = 0;
    for (int i = n - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

/* Whether `size` bytes are one frame that says it decodes to `nbytes`, with nothing behind it. */
static bool is_plain_zstd(const uint8_t *frame, int64_t size, int64_t nbytes) {
    if (size < 5 || number((const char *)frame) != ZSTD_MAGIC) return false;
    const uint8_t descriptor = frame[4];
    const bool single = descriptor & 0x20;
    const int length = descriptor >> 6 ? 1 << (descriptor >> 6) : single;
    int64_t at = 5 + !single;
    /* reserved bits, dictionaries, and frames without their size */
    if (descriptor & 0x0B || !length || at + length > size) return false;
    const uint64_t content = little_endian(frame + at, length) + (length == 2 ? 256 : 0);
    if (content != (uint64_t)nbytes) return false;
    if (!single && (int64_t)(8 + (frame[5] & 7)) << (7 + (frame[5] >> 3)) > MAX_WINDOW) return false;
    at += length;
    for (int block = 0; block < MAX_BLOCKS; block++) {
        if (size - at < 3) return false;
        const int64_t header = (int64_t)little_endian(frame + at, 3), kind = header >> 1 & 3;
        if (kind == 3 || header >> 3 > MAX_BLOCK_NBYTES) return false;
        at += 3 + (kind == 1 ? 1 : header >> 3);
        if (at > size) return false;
        if (header & 1) return at + (descriptor & 4 ? 4 : 0) == size;
    }
    return false;
}

/* Whether a chunk lies in the staging buffer. */
static bool is_inside(const Frames *frames, int64_t i) {
    const int64_t size = frames->sizes[i];
    return size >= 0 && size <= frames->slab_nbytes && frames->offsets[i] >= 0 &&
           frames->offsets[i] <= frames->slab_nbytes - size;
}

void find_plain_zstd(const Frames *frames, const int64_t *nbytes, uint8_t *plain) {
    for (int64_t i = 0; i < frames->n; i++)
        plain[i] = is_inside(frames, i) && is_plain_zstd(frames->slab + frames->offsets[i], frames->sizes[i], nbytes[i]);
}

/* Blosc frames (c-blosc 1.21). A frame is a header, a table of block starts, and blocks in any order. A block is one
 * stream, or one for each byte of an element. Each stream follows its size; one as long as its decoded bytes is stored. */
enum { HEADER = 16, FLAG_SHUFFLE = 1, FLAG_MEMCPY = 2, FLAG_BITS = 4, FLAG_RESERVED = 8, FLAG_WHOLE = 16 };
/* Frames of many smaller blocks would make large tables. */
enum { MAX_SPLITS = 16, MIN_SPLIT = 128, MIN_BLOCK = 64 };
enum { RAW_STREAM, LZ4_STREAM, SNAPPY_STREAM, DEFLATE_STREAM, ZSTD_STREAM };
/* The envelope of zlib, and the shortest Deflate stream. */
enum { ZLIB_HEADER = 2, ZLIB_TRAILER = 4, MIN_DEFLATE = 2 };

typedef struct {
    const uint8_t *bytes;
    int64_t typesize, blocksize, cbytes;
    int flags, codec;
} Blosc;

/* Read a header. False if the host must decode the frame. */
static bool read_header(const Frames *frames, int64_t i, Blosc *frame) {
    if (!is_inside(frames, i) || frames->sizes[i] < HEADER) return false;
    const uint8_t *bytes = frame->bytes = frames->slab + frames->offsets[i];
    const int64_t nbytes = frames->nbytes;
    frame->flags = bytes[2];
    frame->codec = bytes[2] >> 5;
    frame->typesize = bytes[3];
    frame->blocksize = (int64_t)number((const char *)bytes + 8);
    frame->cbytes = (int64_t)number((const char *)bytes + 12);
    if (bytes[0] != 2 || frame->flags & FLAG_RESERVED || (int64_t)number((const char *)bytes + 4) != nbytes) return false;
    if (frame->cbytes != frames->sizes[i] || !frame->typesize || !frame->blocksize || frame->blocksize > nbytes) return false;
    if (frame->flags & FLAG_MEMCPY) return frame->cbytes == nbytes + HEADER;
    if (bytes[1] != 1 || frame->codec < LZ4_STREAM || frame->codec > ZSTD_STREAM) return false;
    if (frame->blocksize < MIN_BLOCK && frame->blocksize < nbytes) return false;
    return frame->cbytes >= HEADER + 4 * ((nbytes + frame->blocksize - 1) / frame->blocksize);
}

/* Whether a stream begins with a zlib header, without a preset dictionary (RFC 1950). */
static bool is_plain_zlib(const uint8_t *stream, int64_t size) {
    return size >= ZLIB_HEADER + MIN_DEFLATE + ZLIB_TRAILER && (stream[0] & 15) == 8 && stream[0] >> 4 <= 7 &&
           !(stream[1] & 0x20) && (stream[0] << 8 | stream[1]) % 31 == 0;
}

/* Whether a Snappy stream says that it decodes to `nbytes`, in 7 bits a byte. */
static bool is_plain_snappy(const uint8_t *stream, int64_t size, int64_t nbytes) {
    int64_t claimed = 0;
    for (int k = 0; k < 5 && k < size; k++) {
        claimed |= (int64_t)(stream[k] & 127) << 7 * k;
        if (stream[k] < 128) return claimed == nbytes;
    }
    return false;
}

static bool is_plain_stream(int kind, const uint8_t *stream, int64_t size, int64_t nbytes) {
    if (kind == SNAPPY_STREAM) return is_plain_snappy(stream, size, nbytes);
    if (kind == DEFLATE_STREAM) return is_plain_zlib(stream, size);
    return kind != ZSTD_STREAM || is_plain_zstd(stream, size, nbytes);
}

/* Note a stream, or only count it. Streams of one kind stand together. */
static bool add_stream(Frames *frames, int64_t *next, int kind, const int64_t *row) {
    const int64_t at = next[kind]++;
    if (!frames->streams) return true;
    if (at >= frames->n_streams) return false;
    for (int column = 0; column < STREAM_COLUMNS; column++) frames->streams[column * frames->n_streams + at] = row[column];
    return true;
}

/* Follow the streams of a frame. False if the host must decode it. */
static bool walk(Frames *frames, int64_t i, const Blosc *frame, int64_t *next) {
    const int64_t nbytes = frames->nbytes, blocksize = frame->blocksize, cbytes = frame->cbytes;
    for (int64_t block = 0; block * blocksize < nbytes; block++) {
        const int64_t rest = nbytes - block * blocksize, size = rest < blocksize ? rest : blocksize;
        const bool split = !(frame->flags & FLAG_WHOLE) && frame->typesize <= MAX_SPLITS && size == blocksize &&
                           size / frame->typesize >= MIN_SPLIT;
        const int64_t splits = split ? frame->typesize : 1, each = size / splits;
        if (size % splits) return false;
        int64_t at = (int32_t)number((const char *)frame->bytes + HEADER + 4 * block);
        if (at <= 0 || at > cbytes - 4) return false;
        for (int64_t k = 0; k < splits; k++) {
            if (cbytes - at < 4) return false;
            const int64_t csize = (int32_t)number((const char *)frame->bytes + at);
            at += 4;
            if (csize <= 0 || csize > cbytes - at) return false;
            const int kind = csize == each ? RAW_STREAM : frame->codec;
            if (!frames->streams && !is_plain_stream(kind, frame->bytes + at, csize, each)) return false;
            const int64_t skip = kind == DEFLATE_STREAM ? ZLIB_HEADER : 0, around = skip ? ZLIB_HEADER + ZLIB_TRAILER : 0;
            const int64_t source = frames->offsets[i] + at + skip, target = block * blocksize + k * each;
            if (!add_stream(frames, next, kind, (int64_t[STREAM_COLUMNS]){i, source, csize - around, target, each}))
                return false;
            at += csize;
        }
    }
    return true;
}

static bool add_frame(Frames *frames, int64_t i, int64_t *next) {
    Blosc frame;
    if (!read_header(frames, i, &frame)) return false;
    const int64_t nbytes = frames->nbytes, row[STREAM_COLUMNS] = {i, frames->offsets[i] + HEADER, nbytes, 0, nbytes};
    if (frame.flags & FLAG_MEMCPY) return add_stream(frames, next, RAW_STREAM, row);
    if (!walk(frames, i, &frame, next)) return false;
    /* elements of one byte have no byte shuffle, but may have a bit shuffle */
    const bool bytes = frame.flags & FLAG_SHUFFLE && frame.typesize > 1, bits = frame.flags & FLAG_BITS;
    frames->frames[i] = (Frame){frame.blocksize, (int32_t)frame.typesize, bytes ? 1 : bits ? 2 : 0, false};
    return true;
}

bool parse_blosc(Frames *frames) {
    int64_t next[STREAM_KINDS] = {0};
    if (frames->streams) memcpy(next, frames->bounds, sizeof next);
    for (int64_t i = 0; i < frames->n; i++) {
        if (frames->streams) {
            if (!frames->frames[i].to_host && !add_frame(frames, i, next)) return false;
            continue;
        }
        int64_t before[STREAM_KINDS];
        memcpy(before, next, sizeof next);
        frames->frames[i] = (Frame){frames->nbytes, 1, 0, false};
        frames->frames[i].to_host = !add_frame(frames, i, next);
        if (frames->frames[i].to_host) memcpy(next, before, sizeof next);
    }
    if (!frames->streams) {
        frames->bounds[0] = 0;
        for (int kind = 0; kind < STREAM_KINDS; kind++) frames->bounds[kind + 1] = frames->bounds[kind] + next[kind];
    }
    return true;
}
