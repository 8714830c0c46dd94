/* Reads, decodes and places chunks: see loop.h. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const int64_t BLOSC_HEADER = 16;
/* Zstandard (RFC 8878): where the descriptor of a frame is; what a block decodes to at most. */
enum { DESCRIPTOR = 4, ZSTD_BLOCK = 1 << 17 };

/* Read `n` bytes of a file, from `at` on. False if that cannot be. */
bool read_exactly(int fd, char *to, int64_t n, int64_t at) {
    while (n) {
        const ssize_t got = pread(fd, to, (size_t)(n < (1 << 28) ? n : 1 << 28), (off_t)at);
        if (got <= 0) return false; /* it ended early, failed, or a signal wants attention */
        to += got, at += got, n -= got;
    }
    return true;
}

/* Read `n` bytes of a chunk, from `at` on. False if that cannot be. */
bool read_stored(const Stored *stored, char *to, int64_t n, int64_t at) {
    if (at < 0 || n < 0 || n > stored->size - at) return false;
    if (!stored->bytes) return read_exactly(stored->fd, to, n, stored->start + at);
    memcpy(to, stored->bytes + stored->start + at, (size_t)n);
    return true;
}

/* Open a regular file. Returns: its descriptor; -1 if there is none, -2 if it is to be left. Nothing waits for a pipe. */
int open_regular(const char *path, int64_t *size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? -1 : -2;
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        close(fd);
        return -2;
    }
    *size = info.st_size;
    return fd;
}

#ifdef __APPLE__
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

/* Modulo 2^64: files may have times of any year. */
static uint64_t nanoseconds(const struct timespec *time) {
    return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec;
}

/* Whether an open shard is the version that its index is of, and unchanged, if a version is asked for. */
bool is_version(const Call *call, int fd) {
    const int64_t *version = call->version;
    struct stat info;
    if (!version) return true;
    if (fstat(fd, &info)) return false;
    const uint64_t *noted = call->written + (uint64_t)info.st_ino % (uint64_t)call->n_written;
    return (int64_t)info.st_ino == version[0] && (int64_t)info.st_size == version[1] &&
           nanoseconds(&info.st_mtim) == (uint64_t)version[2] && nanoseconds(&info.st_ctim) == (uint64_t)version[3] &&
           __atomic_load_n(noted, __ATOMIC_ACQUIRE) == (uint64_t)version[4];
}

static Found find_file(const Call *call, const int64_t *coords, Reader *reader, Stored *stored) {
    if (!make_path(call, coords, reader->path)) return ODD;
    stored->bytes = NULL, stored->start = 0;
    stored->fd = open_regular(reader->path, &stored->size);
    if (stored->fd < 0) return stored->fd == -1 ? ABSENT : ODD;
    return FOUND;
}

static bool is_missing(const Call *call, uint64_t at) {
    uint64_t start;
    memcpy(&start, (const char *)call->index + at * 2 * sizeof start, sizeof start);
    return start == MISSING;
}

static Found find_range(const Call *call, const int64_t *coords, Reader *reader, Stored *stored) {
    if (!call->index) return ABSENT;
    uint64_t at, start;
    if (!find_entry(call, coords, &at)) return ODD;
    if (is_missing(call, at)) return ABSENT;
    if (!call->bytes && reader->fd == -1) reader->fd = open_regular(call->path, &reader->shard_size);
    if (!call->bytes && reader->fd < 0) return ODD;
    *stored = (Stored){.bytes = call->bytes, .may_change = call->bytes_may_change, .fd = reader->fd};
    const Found found = look_up(call, at, call->bytes ? call->n_bytes : reader->shard_size, &start, &stored->size);
    stored->start = (int64_t)start;
    return found;
}

static Found find_item(const Item *item, Stored *stored) {
    if (!item->bytes) return ABSENT;
    *stored = (Stored){.bytes = item->bytes, .may_change = item->may_change, .fd = -1, .size = item->size};
    return FOUND;
}

/* Find where a chunk is stored. If it is there, `leave_stored` is to be called. */
Found find_stored(const Call *call, const int64_t *coords, Reader *reader, Stored *stored) {
    if (call->items) return find_item(&call->items[reader->number], stored);
    return (call->sharded ? find_range : find_file)(call, coords, reader, stored);
}

void leave_stored(const Call *call, const Stored *stored) {
    if (!call->sharded && !call->items) close(stored->fd);
}

/* -- decoding -------------------------------------------------------------------------------------------------- */

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

static void give_context_back(void *context) {
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
static bool decode_beginning(const Job *job, const char *data, int64_t size, char *to, int64_t wanted, void *context) {
    size_t left = (size_t)size, done = 0;
    if (lib.ZSTD_isError(lib.ZSTD_decompressBegin(context))) return false;
    while (done < (size_t)wanted) {
        const size_t n = lib.ZSTD_nextSrcSizeToDecompress(context);
        if (!n || n > left) return false;
        const size_t got = lib.ZSTD_decompressContinue(context, to + done, (size_t)job->nbytes - done, data, n);
        if (lib.ZSTD_isError(got)) return false;
        done += got, data += n, left -= n;
    }
    return true;
}

/* Decode a chunk to exactly its size, or at least the bytes at its beginning that are wanted, where that is less work.
 * False for anything that the Python path should look at. */
static bool decode(const Job *job, const char *data, int64_t size, char *to, int64_t wanted, Reader *reader) {
    switch (job->codec) {
        case BLOSC:
            if (size < BLOSC_HEADER || number(data + 4) != job->nbytes || number(data + 12) != size) return false;
            return lib.blosc_decompress_ctx(data, to, (size_t)job->nbytes, 1) == job->nbytes;
        case ZSTD:
            if (!frame_is_plain(data, (size_t)size, job->nbytes)) return false;
            if (!reader->zstd && !(reader->zstd = take_context())) return false;
            if (wanted <= job->nbytes - ZSTD_BLOCK && has_beginning(data, (size_t)size, job->nbytes))
                return decode_beginning(job, data, size, to, wanted, reader->zstd);
            /* an error is a size that no chunk has */
            return lib.ZSTD_decompressDCtx(reader->zstd, to, (size_t)job->nbytes, data, (size_t)size) ==
                   (size_t)job->nbytes;
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

/* -- one part -------------------------------------------------------------------------------------------------- */

/* Read and decode a chunk. into: where it fills one run of the result, or NULL. wanted: bytes at its beginning that
 * are looked at. Returns where it is in *chunk; false for anything that the Python path should look at. */
bool load_stored(const Job *job, const Stored *stored, char *into, int64_t wanted, Reader *reader, char **chunk) {
    if (job->unfilters) return load_filtered(job, stored, into, reader, chunk);
    const bool plain = job->codec == PLAIN;
    int64_t size = stored->size;
    if (plain ? size != job->nbytes + CHECKSUM * job->checksum : size > job->max_encoded) return false;
    char *data = plain && !job->checksum && into ? into : reader->encoded;
    reader->taken = (uint64_t)size;
    /* Memory is decoded where it is, unless something is done to it in place. */
    if (stored->bytes && !stored->may_change && !(plain && (job->swap || data == into)))
        data = (char *)(uintptr_t)(stored->bytes + stored->start);
    else if (!read_stored(stored, data, size, 0))
        return false;
    if (job->checksum) {
        size -= CHECKSUM;
        if (size < 0 || number(data + size) != lib.crc32c_value((const uint8_t *)data, (size_t)size)) return false;
    }
    *chunk = data;
    if (!plain) {
        *chunk = into ? into : reader->decoded;
        if (!decode(job, data, size, *chunk, wanted, reader)) return false;
    }
    if (job->swap) swap_bytes(*chunk, job->nbytes, job->swap);
    return true;
}

/* Fetch and decode a chunk: see `load_stored`. */
Found load_chunk(const Call *call, const int64_t *coords, char *into, Reader *reader, char **chunk) {
    Stored stored;
    const Found found = find_stored(call, coords, reader, &stored);
    if (found != FOUND) return found;
    const bool loaded = load_stored(call->job, &stored, into, call->job->nbytes, reader, chunk);
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
    if (!load_stored(job, stored, NULL, end_of(copy), reader, &chunk)) return false;
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
    if (!load_stored(job, stored, fills ? whole.dst : NULL, end_of(&whole), reader, &chunk)) return false;
    if (chunk != whole.dst) copy_axes(whole.axis, whole.n, whole.dst, chunk + whole.src_start, whole.run, whole.run);
    return true;
}

static int do_box(const Call *call, int64_t part, Reader *reader) {
    const Job *job = call->job;
    const Element element = call->element;
    Copy copy = {
        .run = element_size(call), .src_start = element.start, .dst = (char *)(intptr_t)job->out, .cast = element.cast};
    int64_t coords[MAX_NDIM];
    reader->placed = (uint64_t)out_size(call);
    for (int64_t a = job->ndim - 1; a >= 0; a--) {
        const int64_t n = call->window->n[a];
        const Span *span = call->spans;
        if (call->part_spans)
            span += call->part_spans[reader->number * job->ndim + a];
        else
            span += call->window->first[a] + part % n, part /= n;
        coords[a] = span->chunk;
        reader->placed *= (uint64_t)span->count;
        if (!add_axis(call, span, (int)a, &copy)) return LEFT;
    }
    Stored stored;
    const Found found = find_stored(call, coords, reader, &stored);
    if (found == FOUND) {
        const bool copied = copy_stored(job, &stored, &copy, reader);
        leave_stored(call, &stored);
        return copied ? DONE : LEFT;
    }
    if (found == ODD) return LEFT;
    copy.run = out_size(call);
    simplify(&copy, true);
    copy_axes(copy.axis, copy.n, copy.dst, call->fill, copy.run, out_size(call));
    return DONE;
}

void close_reader(Reader *reader) {
    if (reader->fd >= 0) close(reader->fd);
    if (reader->zstd) give_context_back(reader->zstd);
    if (reader->inflater) lib.libdeflate_free_decompressor(reader->inflater);
}

Done read_all(const Call *call, int64_t first, int64_t n, char *status, char *scratch) {
    int (*const do_one)(const Call *, int64_t, Reader *) =
        call->copies ? do_copies : call->job->npoints < 0 ? do_box : do_points;
    Reader reader = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    if (call->version) reader.fd = open_regular(call->path, &reader.shard_size);
    bool sound = !call->version || (reader.fd >= 0 && is_version(call, reader.fd));
    for (int64_t i = 0; sound && i < n; i++) {
        reader.taken = 0, reader.number = i;
        status[i] = (char)do_one(call, first + i, &reader);
        if (status[i] == DONE)
            done.taken += reader.taken, done.placed += reader.placed;
        else
            done.left++;
    }
    if (!sound || (call->version && !is_version(call, reader.fd))) {
        memset(status, LEFT, (size_t)n);
        done = (Done){.left = n};
    }
    close_reader(&reader);
    return done;
}

/* Whether the functions that a job needs are there. */
bool has_decoder(const Job *job) {
    if (job->checksum && !lib.crc32c_value) return false;
    switch (job->codec) {
        case PLAIN:
            return true;
        case BLOSC:
            return lib.blosc_decompress_ctx != NULL;
        case ZSTD:
            return lib.ZSTD_createDCtx && lib.ZSTD_freeDCtx && lib.ZSTD_decompressDCtx &&
                   lib.ZSTD_getFrameContentSize && lib.ZSTD_findFrameCompressedSize;
        case LZ4:
            return lib.LZ4_decompress_safe != NULL;
        case GZIP:
        case ZLIB:
            return has_inflater(job);
    }
    return false;
}
