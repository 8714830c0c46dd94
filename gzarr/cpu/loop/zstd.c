/* Decodes and encodes Zstandard: see loop.h. */
#include "loop.h"

/* RFC 8878: where the descriptor of a frame is; what a block decodes to at most. */
enum { DESCRIPTOR = 4, BLOCK = 1 << 17 };
/* Parameters of ZSTD_CCtx_setParameter. */
enum { LEVEL = 100, WITH_CHECKSUM = 201 };

/* Whether a frame claims the chunk's size, or none, as of encoders that stream, and is the only one. */
static bool frame_is_plain(const char *data, size_t size, int64_t nbytes) {
    const unsigned long long claimed = lib.ZSTD_getFrameContentSize(data, size), unknown = -1;
    if (claimed != unknown) return claimed == (unsigned long long)nbytes;
    return lib.ZSTD_findFrameCompressedSize(data, size) == size;
}

/* Contexts of Zstandard that no call uses: to make one costs as much as to decode some small chunks. */
enum { MAX_SPARE = 16 };
static void *spare[MAX_SPARE];

static void *take_context(void) {
    for (int i = 0; i < MAX_SPARE; i++) {
        void *context = __atomic_load_n(&spare[i], __ATOMIC_RELAXED);
        if (context && (context = __atomic_exchange_n(&spare[i], NULL, __ATOMIC_ACQUIRE))) return context;
    }
    return lib.ZSTD_createDCtx();
}

void end_zstd_decoder(void *context) {
    for (int i = 0; i < MAX_SPARE; i++) {
        void *nothing = NULL;
        if (__atomic_compare_exchange_n(&spare[i], &nothing, context, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
    lib.ZSTD_freeDCtx(context);
}

/* Whether the beginning of a frame can be decoded alone: it says its size, which is the chunk's, has no checksum of all
 * of it, and is there to its end, with nothing behind it. */
static bool has_beginning(const char *data, size_t size, int64_t nbytes) {
    const char with_checksum = 4;
    return size > DESCRIPTOR && !(data[DESCRIPTOR] & with_checksum) && lib.ZSTD_decompressBegin &&
           lib.ZSTD_nextSrcSizeToDecompress && lib.ZSTD_decompressContinue && lib.ZSTD_isError &&
           lib.ZSTD_getFrameContentSize(data, size) == (unsigned long long)nbytes &&
           lib.ZSTD_findFrameCompressedSize(data, size) == size;
}

/* Decode the blocks of a frame up to the last byte that is wanted. False if that cannot be. */
static bool decode_beginning(const char *data, int64_t n, char *to, int64_t size, int64_t wanted, void *context) {
    size_t left = (size_t)n, done = 0;
    if (lib.ZSTD_isError(lib.ZSTD_decompressBegin(context))) return false;
    while (done < (size_t)wanted) {
        const size_t next = lib.ZSTD_nextSrcSizeToDecompress(context);
        if (!next || next > left) return false;
        const size_t got = lib.ZSTD_decompressContinue(context, to + done, (size_t)size - done, data, next);
        if (lib.ZSTD_isError(got)) return false;
        done += got, data += next, left -= next;
    }
    return true;
}

bool decode_zstd(const char *data, int64_t n, char *to, int64_t size, int64_t wanted, Reader *reader) {
    if (!frame_is_plain(data, (size_t)n, size)) return false;
    if (!reader->zstd && !(reader->zstd = take_context())) return false;
    if (wanted <= size - BLOCK && has_beginning(data, (size_t)n, size))
        return decode_beginning(data, n, to, size, wanted, reader->zstd);
    /* an error is a size that no chunk has */
    return lib.ZSTD_decompressDCtx(reader->zstd, to, (size_t)size, data, (size_t)n) == (size_t)size;
}

int64_t compress_zstd(int64_t level, bool checksum, const char *data, int64_t n, char *to, int64_t room, State *state) {
    if (!state->zstd) {
        void *made = lib.ZSTD_createCCtx();
        if (!made) return 0;
        if (lib.ZSTD_isError(lib.ZSTD_CCtx_setParameter(made, LEVEL, (int)level)) ||
            lib.ZSTD_isError(lib.ZSTD_CCtx_setParameter(made, WITH_CHECKSUM, checksum))) {
            lib.ZSTD_freeCCtx(made);
            return 0;
        }
        state->zstd = made;
    }
    const size_t made = lib.ZSTD_compress2(state->zstd, to, (size_t)room, data, (size_t)n);
    return lib.ZSTD_isError(made) ? 0 : (int64_t)made;
}

bool has_zstd_decoder(void) {
    return lib.ZSTD_createDCtx && lib.ZSTD_freeDCtx && lib.ZSTD_decompressDCtx && lib.ZSTD_getFrameContentSize &&
           lib.ZSTD_findFrameCompressedSize;
}

bool has_zstd_encoder(void) {
    return lib.ZSTD_createCCtx && lib.ZSTD_freeCCtx && lib.ZSTD_CCtx_setParameter && lib.ZSTD_compress2 &&
           lib.ZSTD_isError;
}
