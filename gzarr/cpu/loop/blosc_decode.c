/* Decodes Blosc frames, and of their blocks what is wanted: see loop.h.
 *
 * A shuffled block is one stream, or one for each byte of its elements. All streams of a block are decoded, as c-blosc
 * does, but only elements of which bytes are wanted are put together. Frames with other compressors or shuffled bits are
 * left to c-blosc, and so is what is not sound.
 */
#include "blosc.h"

/* Whether blocks of a frame can be decoded, as far as its header says. */
bool knows_frame(const char *head) {
    const int64_t flags = (uint8_t)head[FLAGS], typesize = (uint8_t)head[TYPESIZE];
    const int64_t nbytes = number(head + 4), block = number(head + 8);
    if (head[0] != FORMAT || head[1] != CODEC_FORMAT || flags & (MEMCPYED | BIT_SHUFFLED | RESERVED)) return false;
    if (!typesize || !block || block > nbytes || nbytes % typesize || block % typesize) return false;
    if (flags >> FORMAT_SHIFT == LZ4_FORMAT) return lib.LZ4_decompress_safe != NULL;
    return flags >> FORMAT_SHIFT == ZSTD_FORMAT && has_zstd_decoder();
}

static bool decode_stream(int format, const char *data, int64_t n, char *to, int64_t size, Reader *reader) {
    if (format == ZSTD_FORMAT) return decode_zstd(data, n, to, size, size, reader);
    return lib.LZ4_decompress_safe(data, to, (int)n, (int)size) == size;
}

static char *room_for(Reader *reader, int64_t nbytes) {
    if (reader->block && reader->block->nbytes < (size_t)nbytes) {
        give_scratch_back(reader->block);
        reader->block = NULL;
    }
    if (!reader->block) reader->block = take_scratch((size_t)nbytes);
    return reader->block ? reader->block->bytes : NULL;
}

/* Decode a block of `size` bytes. data: the block, and what is behind it, `n` bytes. wanted: all of its streams are decoded,
 * which is how damage is noticed, but only these bytes put together. to: where the block would begin. False for what c-blosc
 * should look at. */
bool decode_block(const char *head, const char *data, int64_t n, int64_t size, Extent wanted, char *to, Reader *reader) {
    const int flags = (uint8_t)head[FLAGS];
    const int64_t typesize = (uint8_t)head[TYPESIZE];
    const int64_t splits = streams_of(flags, typesize, number(head + 8), size), each = size / splits;
    const bool shuffled = flags & SHUFFLED && typesize > 1, whole = !wanted.begin && wanted.end == size;
    const char *planes[MAX_PLANES];
    char *room = !shuffled && whole ? to : room_for(reader, size);
    if (!room) return false;
    for (int64_t k = 0; k < splits; k++) {
        if (n < START) return false;
        const int64_t made = number(data);
        data += START, n -= START;
        if (!made || made > n || made > each) return false;
        planes[k] = room + k * each;
        if (made < each && !decode_stream(flags >> FORMAT_SHIFT, data, made, room + k * each, each, reader)) return false;
        if (made == each && shuffled) planes[k] = data;
        if (made == each && !shuffled) memcpy(room + k * each, data, (size_t)each);
        data += made, n -= made;
    }
    if (wanted.begin >= wanted.end) return true;
    if (shuffled) {
        for (int64_t k = splits; k < typesize; k++) planes[k] = planes[0] + k * (size / typesize);
        unshuffle_bytes(typesize, wanted.begin / typesize, (wanted.end - 1) / typesize + 1, planes, to);
    } else if (!whole)
        memcpy(to + wanted.begin, room + wanted.begin, (size_t)(wanted.end - wanted.begin));
    return true;
}

/* Decode a frame whose size is sound, of which only some bytes are wanted, as of blocks. to: where the chunk would begin.
 * False for what c-blosc should look at. */
bool decode_frame(const char *data, int64_t size, Extent wanted, char *to, Reader *reader) {
    if (!knows_frame(data)) return false;
    const int64_t nbytes = number(data + 4), block = number(data + 8), head = HEADER + START * ((nbytes - 1) / block + 1);
    if (head > size) return false;
    for (int64_t begin = 0; begin < nbytes; begin += block) {
        const int64_t at = number(data + HEADER + START * (begin / block)), left = nbytes - begin;
        const int64_t nblock = left < block ? left : block;
        if (at < head || at > size) return false;
        if (!decode_block(data, data + at, size - at, nblock, within(wanted, begin, nblock), to + begin, reader)) return false;
    }
    return true;
}
