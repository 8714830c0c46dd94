/* Decodes stored chunks, and copies what is wanted of them: see loop.h. */
#include "blosc.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Decode a chunk to exactly its size, or at least the bytes that are wanted, where that is less work.
 * False for anything that the Python path should look at. */
static bool decode(const Job *job, const char *data, int64_t size, char *to, Extent wanted, Reader *reader) {
    switch (job->codec) {
        case BLOSC:
            if (size < HEADER || number(data + 4) != job->nbytes || number(data + 12) != size) return false;
            if (decode_frame(data, size, wanted, to, reader)) return true;
            return lib.blosc_decompress_ctx(data, to, (size_t)job->nbytes, 1) == job->nbytes;
        case ZSTD:
            return decode_zstd(data, size, to, job->nbytes, wanted.end, reader);
        case LZ4:
            if (size < LZ4_HEADER || number(data) != job->nbytes) return false;
            return lib.LZ4_decompress_safe(data + LZ4_HEADER, to, (int)(size - LZ4_HEADER), (int)job->nbytes) ==
                   job->nbytes;
        case GZIP:
        case ZLIB:
            return inflate_chunk(job, data, size, to, reader);
    }
    return false;
}

/* `load_stored`, of a chunk that has no filters, or that still is as its filters have made it. */
static bool load_plain(const Job *job, const Stored *stored, char *into, Extent wanted, Reader *reader, char **chunk) {
    const bool plain = job->codec == PLAIN;
    int64_t size = stored->size;
    if (plain ? size != job->nbytes + CHECKSUM * !!job->checksum : size > job->max_encoded) return false;
    char *data = plain && !job->checksum && into ? into : reader->encoded;
    reader->taken = (uint64_t)size;
    /* Memory is decoded where it is, unless something is done to it in place. */
    if (stored->bytes && !stored->may_change && !(plain && (job->swap || data == into)))
        data = (char *)(uintptr_t)(stored->bytes + stored->start);
    else if (!read_stored(stored, data, size, 0))
        return false;
    if (job->checksum) {
        size -= CHECKSUM;
        if (size < 0 || number(data + size) != checksum_of(job, data, size)) return false;
    }
    *chunk = data;
    if (!plain) {
        *chunk = into ? into : reader->decoded;
        if (!decode(job, data, size, *chunk, wanted, reader)) return false;
    }
    if (job->swap) swap_bytes(*chunk, job->nbytes, job->swap);
    return true;
}

/* Read and decode a chunk. into: where it fills one run of the result, or NULL. wanted: bytes of it that
 * are looked at. Returns where it is in *chunk; false for anything that the Python path should look at. */
bool load_stored(const Job *job, const Stored *stored, char *into, Extent wanted, Reader *reader, char **chunk) {
    if (!job->unfilters) return load_plain(job, stored, into, wanted, reader, chunk);
    const Job filtered = job_of_stored(job);
    char *const decoded = reader->decoded, *data = NULL;
    reader->decoded = room_of_stored(job, reader);
    const bool loaded = load_plain(&filtered, stored, NULL, (Extent){0, filtered.nbytes}, reader, &data);
    reader->decoded = decoded;
    return loaded && unfilter_chunk(job, data, into, reader, chunk);
}

/* Fetch and decode a chunk: see `load_stored`. */
Found load_chunk(const Call *call, const int64_t *coords, char *into, Reader *reader, char **chunk) {
    Stored stored;
    const Found found = find_stored(call, coords, reader, &stored);
    if (found != FOUND) return found;
    const bool loaded = load_stored(call->job, &stored, into, (Extent){0, call->job->nbytes}, reader, chunk);
    leave_stored(call, &stored);
    return loaded ? FOUND : ODD;
}

/* Whether a chunk may be read block by block. */
bool reads_blockwise(const Job *job, const Stored *stored) {
    const bool in_blocks = job->codec == BLOSC || (job->codec == PLAIN && !stored->bytes);
    return in_blocks && !job->checksum && !job->unfilters && job->nbytes >= MIN_BLOCKWISE;
}

/* Read rows of a chunk that is stored as it is straight to where they belong: a copy less. False if that cannot be. */
static bool read_runs(const Job *job, const Stored *stored, const Copy *copy, Reader *reader) {
    const Axis *axis = &copy->axis[0];
    if (job->codec != PLAIN || job->checksum || job->unfilters || job->swap || stored->bytes) return false;
    if (stored->size != job->nbytes || copy->n != 1 || axis->in || axis->out || axis->src != copy->run) return false;
    if (copy->run < MIN_FILE_RUN) return false;
    struct iovec runs[MAX_RUNS];
    int64_t at = stored->start + copy->src_start;
    for (int64_t i = 0; i < axis->n;) {
        int n = 0;
        for (; n < MAX_RUNS && i < axis->n; n++, i++)
            runs[n] = (struct iovec){.iov_base = copy->dst + i * axis->dst, .iov_len = (size_t)copy->run};
        if (preadv(stored->fd, runs, n, (off_t)at) != (ssize_t)(n * copy->run)) return false;
        at += n * copy->run;
    }
    reader->taken = (uint64_t)(axis->n * copy->run);
    return true;
}

static bool cast_stored(const Job *job, const Stored *stored, Copy *copy, Reader *reader) {
    char *chunk = NULL;
    if (reads_blockwise(job, stored) && copy_blocks(job, stored, copy, copy, reader)) return true;
    if (!load_stored(job, stored, NULL, extent_of(copy), reader, &chunk)) return false;
    cast_box(copy, chunk + copy->src_start);
    return true;
}

/* Copy what is wanted of a chunk that is there, and leave the Python path what it should look at. */
bool copy_stored(const Job *job, const Stored *stored, const Copy *copy, Reader *reader) {
    Copy whole = *copy;
    if (copy->cast) return cast_stored(job, stored, &whole, reader);
    simplify(&whole, false);
    const bool fills = !whole.n && whole.run == job->nbytes;
    if (read_runs(job, stored, &whole, reader)) return true;
    if (!fills && reads_blockwise(job, stored) && copy_blocks(job, stored, copy, &whole, reader)) return true;
    char *chunk = NULL;
    if (!load_stored(job, stored, fills ? whole.dst : NULL, extent_of(&whole), reader, &chunk)) return false;
    if (chunk != whole.dst) copy_axes(whole.axis, whole.n, whole.dst, chunk + whole.src_start, whole.run, whole.run);
    return true;
}

void close_reader(Reader *reader) {
    if (reader->fd >= 0) close(reader->fd);
    if (reader->zstd) end_zstd_decoder(reader->zstd);
    if (reader->block) give_scratch_back(reader->block);
    if (reader->inflater) lib.libdeflate_free_decompressor(reader->inflater);
}

/* Whether the functions that a job needs are there. */
bool has_decoder(const Job *job) {
    if (!has_checksum(job)) return false;
    switch (job->codec) {
        case PLAIN:
            return true;
        case BLOSC:
            return lib.blosc_decompress_ctx != NULL;
        case ZSTD:
            return has_zstd_decoder();
        case LZ4:
            return lib.LZ4_decompress_safe != NULL;
        case GZIP:
        case ZLIB:
            return has_inflater(job);
    }
    return false;
}
