/* Encodes chunks: see loop.h. */
#include "loop.h"

#include <string.h>

/* What Blosc may need besides the data (BLOSC_MAX_OVERHEAD). */
enum { BLOSC_OVERHEAD = 16 };

/* Encode a chunk. Returns: bytes made, of max_encoded at most; 0 for anything that the Python path should look at. */
int64_t encode(const Job *job, const Encoder *e, const char *data, char *to, State *state) {
    switch (job->codec) {
        case BLOSC: {
            const int64_t framed = e->frame ? make_frame(job, e, data, NULL, to, -1, state) : 0;
            if (framed) return framed;
            const int made = lib.blosc_compress_ctx((int)e->level, (int)e->shuffle, (size_t)e->typesize,
                                                    (size_t)job->nbytes, data, to, (size_t)job->nbytes + BLOSC_OVERHEAD,
                                                    e->cname, (size_t)e->blocksize, 1);
            return made > 0 ? made : 0;
        }
        case ZSTD:
            return compress_zstd(e->level, e->frame_checksum, data, job->nbytes, to, job->max_encoded - CHECKSUM, state);
        case LZ4: {
            const uint32_t claimed = (uint32_t)job->nbytes;
            const int room = (int)(job->max_encoded - LZ4_HEADER - CHECKSUM);
            const int made = lib.LZ4_compress_fast(data, to + LZ4_HEADER, (int)job->nbytes, room, (int)e->level);
            memcpy(to, &claimed, sizeof claimed);
            return made > 0 ? made + LZ4_HEADER : 0;
        }
        case GZIP:
        case ZLIB:
            return deflate_chunk(job, e->level, data, to, job->max_encoded - CHECKSUM, state);
    }
    return 0;
}

bool has_encoder(const Job *job) {
    if (!has_checksum(job)) return false;
    switch (job->codec) {
        case PLAIN:
            return true;
        case BLOSC:
            return lib.blosc_compress_ctx != NULL;
        case ZSTD:
            return has_zstd_encoder();
        case LZ4:
            return lib.LZ4_compress_fast != NULL;
        case GZIP:
        case ZLIB:
            return has_deflater(job);
    }
    return false;
}
