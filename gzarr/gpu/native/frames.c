/* Takes the frames of compressors apart for a device: follows their headers to the streams in them.
 *
 * Only frames that are plain in every way are taken. For anything else, damage or what is merely unusual, the answer is
 * that Python must look: its parsers (gzarr/gpu/codecs) are the reference, and know what to say. Rules: a position is
 * compared with the end of its frame before a byte is read there.
 */
#include "device.h"

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

static bool ranges_are_sound(const Frames *frames) {
    for (int64_t i = 0; i < frames->n; i++) {
        const int64_t size = frames->sizes[i];
        if (size < 0 || size > frames->slab_nbytes || frames->offsets[i] < 0 ||
            frames->offsets[i] > frames->slab_nbytes - size)
            return false;
    }
    return true;
}

bool zstd_is_plain(const Frames *frames) {
    if (!ranges_are_sound(frames)) return false;
    for (int64_t i = 0; i < frames->n; i++)
        if (!is_plain_zstd(frames->slab + frames->offsets[i], frames->sizes[i], frames->nbytes)) return false;
    return true;
}

/* Blosc frames (c-blosc 1.21). */
enum { HEADER = 16, FLAG_SHUFFLE = 1, FLAG_MEMCPY = 2, FLAG_BITS = 4, FLAG_RESERVED = 8, FLAG_WHOLE = 16 };
enum { MAX_SPLITS = 16, MIN_SPLIT = 128, MIN_BLOCK = 64 };
enum { RAW_STREAM, LZ4_STREAM, ZSTD_STREAM = 4 };

typedef struct {
    const uint8_t *bytes;
    int64_t typesize, blocksize, cbytes;
    int flags, codec;
    bool whole; /* stored as it is */
} Blosc;

/* Read a header. False if Python must look at it. */
static bool read_header(const Frames *frames, int64_t i, Blosc *frame) {
    const uint8_t *bytes = frame->bytes = frames->slab + frames->offsets[i];
    const int64_t nbytes = frames->nbytes;
    if (frames->sizes[i] < HEADER || bytes[0] != 2 || bytes[2] & FLAG_RESERVED) return false;
    frame->flags = bytes[2];
    frame->codec = bytes[2] >> 5;
    frame->typesize = bytes[3];
    frame->whole = frame->flags & FLAG_MEMCPY;
    frame->blocksize = (int64_t)number((const char *)bytes + 8);
    frame->cbytes = (int64_t)number((const char *)bytes + 12);
    if ((int64_t)number((const char *)bytes + 4) != nbytes || frame->cbytes > frames->sizes[i]) return false;
    if (!frame->typesize || !frame->blocksize || frame->blocksize > nbytes) return false;
    if (frame->whole) return frame->cbytes == nbytes + HEADER;
    if (bytes[1] != 1 || (frame->codec != LZ4_STREAM && frame->codec != ZSTD_STREAM)) return false;
    if (frame->blocksize < MIN_BLOCK && frame->blocksize < nbytes) return false;
    return frame->cbytes >= HEADER + 4 * ((nbytes + frame->blocksize - 1) / frame->blocksize);
}

/* Note a stream, or only count it. Streams of one kind stand together. */
static bool add_stream(Frames *frames, int64_t *next, int kind, const int64_t *row) {
    const int64_t at = next[kind]++;
    if (!frames->streams) return true;
    if (at >= frames->n_streams) return false;
    for (int column = 0; column < STREAM_COLUMNS; column++) frames->streams[column * frames->n_streams + at] = row[column];
    return true;
}

/* Follow the streams of a frame. False if Python must look at it. */
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
            if (kind == ZSTD_STREAM && !frames->streams && !is_plain_zstd(frame->bytes + at, csize, each)) return false;
            const int64_t row[STREAM_COLUMNS] = {i, frames->offsets[i] + at, csize, block * blocksize + k * each, each};
            if (!add_stream(frames, next, kind, row)) return false;
            at += csize;
        }
    }
    return true;
}

static void note_frame(const Frames *frames, int64_t i, const Blosc *frame) {
    const bool bytes = frame->flags & FLAG_SHUFFLE && frame->typesize > 1, bits = frame->flags & FLAG_BITS;
    frames->codecs[i] = (uint8_t)frame->codec;
    frames->whole[i] = frame->whole;
    frames->shuffles[i] = frame->whole ? 0 : bytes ? 1 : bits ? 2 : 0;
    frames->typesizes[i] = frame->whole ? 1 : (int32_t)frame->typesize;
    frames->blocksizes[i] = frame->whole ? frames->nbytes : frame->blocksize;
    frames->cbytes[i] = frame->cbytes;
}

bool parse_blosc(Frames *frames) {
    if (frames->nbytes <= 0 || !ranges_are_sound(frames)) return false;
    int64_t next[STREAM_KINDS] = {0};
    if (frames->streams)
        for (int kind = 0; kind < STREAM_KINDS; kind++) next[kind] = frames->bounds[kind];
    Blosc frame;
    /* frames that are stored whole come first */
    for (int64_t i = 0; i < frames->n; i++) {
        if (!read_header(frames, i, &frame)) return false;
        if (!frames->streams) note_frame(frames, i, &frame);
        const int64_t row[STREAM_COLUMNS] = {i, frames->offsets[i] + HEADER, frames->nbytes, 0, frames->nbytes};
        if (frame.whole && !add_stream(frames, next, RAW_STREAM, row)) return false;
    }
    for (int64_t i = 0; i < frames->n; i++) {
        if (!read_header(frames, i, &frame)) return false;
        if (!frame.whole && !walk(frames, i, &frame, next)) return false;
    }
    if (!frames->streams) {
        frames->bounds[0] = 0;
        for (int kind = 0; kind < STREAM_KINDS; kind++) frames->bounds[kind + 1] = frames->bounds[kind] + next[kind];
    }
    return true;
}
