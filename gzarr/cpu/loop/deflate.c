/* Decodes and encodes gzip and zlib by libdeflate: see loop.h.
 *
 * One member or stream that is the whole chunk is taken. Several members, padding behind them and damage are left.
 */
#include "loop.h"

/* libdeflate's own default; its levels are those of zlib. */
enum { DEFAULT_LEVEL = 6 };

bool inflate_chunk(const Job *job, const char *data, int64_t size, char *to, Reader *reader) {
    size_t taken = 0, made = 0;
    if (!reader->inflater && !(reader->inflater = lib.libdeflate_alloc_decompressor())) return false;
    const int failed = (job->codec == GZIP ? lib.libdeflate_gzip_decompress_ex : lib.libdeflate_zlib_decompress_ex)(
        reader->inflater, data, (size_t)size, to, (size_t)job->nbytes, &taken, &made);
    return !failed && taken == (size_t)size && made == (size_t)job->nbytes;
}

/* Returns: bytes made, of `room` at most; 0 if that cannot be. */
int64_t deflate_chunk(const Job *job, int64_t level, const char *data, char *to, int64_t room, State *state) {
    if (!state->deflater && !(state->deflater = lib.libdeflate_alloc_compressor(level < 0 ? DEFAULT_LEVEL : (int)level)))
        return 0;
    return (int64_t)(job->codec == GZIP ? lib.libdeflate_gzip_compress : lib.libdeflate_zlib_compress)(
        state->deflater, data, (size_t)job->nbytes, to, (size_t)room);
}

bool has_inflater(const Job *job) {
    return lib.libdeflate_alloc_decompressor && lib.libdeflate_free_decompressor &&
           (job->codec == GZIP ? lib.libdeflate_gzip_decompress_ex : lib.libdeflate_zlib_decompress_ex);
}

bool has_deflater(const Job *job) {
    return lib.libdeflate_alloc_compressor && lib.libdeflate_free_compressor &&
           (job->codec == GZIP ? lib.libdeflate_gzip_compress : lib.libdeflate_zlib_compress);
}
