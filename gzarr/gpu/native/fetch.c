/* Fetches the encoded chunks of a table into a staging buffer: see gzarr/gpu/native/fetch.py.
 *
 * Theory of operation. A file is opened once. All that is read of it comes from that descriptor, and so from one version
 * of it: first the index of a shard, which is verified, then the chunks, in the order of the file, with one call for
 * those that lie near each other. Several threads fetch into one buffer at the same time: they take room by adding to
 * one number.
 */
#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Gaps that are read over (gzarr/storage/coalesce.py, MAX_GAP_NBYTES), pieces and bytes of one call. */
enum { MAX_GAP = 1 << 14, MAX_PIECES = 1024 };
static const int64_t MAX_CALL = 1 << 30;

/* A chunk of a shard, and the number of its part. */
typedef struct {
    int64_t start, size, part;
} Range;

/* -- places ---------------------------------------------------------------------------------------------------- */

/* Take room for a chunk in the slab. Returns: where it begins; -1 if there is none. */
static int64_t reserve(const Fetch *fetch, int64_t size) {
    if (size > fetch->capacity) return -1;
    const int64_t room = (size + fetch->phase + SLAB_ALIGNMENT - 1) / SLAB_ALIGNMENT * SLAB_ALIGNMENT;
    int64_t at = __atomic_load_n(fetch->cursor, __ATOMIC_RELAXED);
    do {
        if (room > fetch->capacity - at) return -1;
    } while (!__atomic_compare_exchange_n(fetch->cursor, &at, at + room, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return at + fetch->phase;
}

/* -- files ----------------------------------------------------------------------------------------------------- */

/* The size of a regular file without opening it; MISSING_CHUNK or LEFT_CHUNK. */
static int64_t size_of(const char *path) {
    struct stat info;
    if (stat(path, &info)) return errno == ENOENT || errno == ENOTDIR ? MISSING_CHUNK : LEFT_CHUNK;
    return S_ISREG(info.st_mode) ? (int64_t)info.st_size : LEFT_CHUNK;
}

static int64_t fetch_file(const Fetch *fetch, const char *path, int64_t *offset) {
    *offset = -1;
    if (fetch->mode == LOCATE_CHUNKS || fetch->capacity < 0) {
        const int64_t size = size_of(path);
        if (fetch->mode == LOCATE_CHUNKS && size >= 0) *offset = 0;
        return size;
    }
    int64_t size;
    const int fd = open_regular(path, &size);
    if (fd < 0) return fd == -1 ? MISSING_CHUNK : LEFT_CHUNK;
    *offset = reserve(fetch, size);
    if (*offset >= 0 && !read_exactly(fd, fetch->slab + *offset, size, 0)) *offset = -1, size = LEFT_CHUNK;
    close(fd);
    return size;
}

static void fetch_files(const Fetch *fetch) {
    const Job job = {.ndim = fetch->places->ndim, .separator = fetch->places->separator};
    const Call call = {.job = &job, .path = fetch->path, .path_length = fetch->path_length};
    char path[MAX_PATH];
    for (int64_t i = 0; i < fetch->n; i++) {
        const bool is_known = make_path(&call, fetch->coords + i * job.ndim, path);
        fetch->offsets[i] = -1;
        fetch->sizes[i] = is_known ? fetch_file(fetch, path, &fetch->offsets[i]) : LEFT_CHUNK;
    }
}

/* -- shards ---------------------------------------------------------------------------------------------------- */

/* Read the index of a shard and check it as gzarr/layout/shard.py does. */
static bool read_index(const Places *places, int fd, int64_t shard_size, uint64_t *index) {
    const int64_t entries = places->entries, nbytes = 16 * entries, whole = nbytes + (places->checksum ? CHECKSUM : 0);
    if (shard_size < whole || !read_exactly(fd, (char *)index, whole, places->at_start ? 0 : shard_size - whole))
        return false;
    if (places->checksum) {
        const uint32_t sum = number((const char *)index + nbytes);
        if (!lib.crc32c_value || lib.crc32c_value((const uint8_t *)index, (size_t)nbytes) != sum) return false;
    }
    bool sound = true;
    for (int64_t i = 0; i < entries; i++) {
        const uint64_t start = index[2 * i], size = index[2 * i + 1];
        sound &= (start == MISSING) == (size == MISSING) && (start == MISSING || start + size >= start);
    }
    return sound;
}

static int by_place(const void *a, const void *b) {
    const Range *one = a, *other = b;
    if (one->start != other->start) return one->start < other->start ? -1 : 1;
    return one->part < other->part ? -1 : one->part > other->part;
}

/* Read pieces that follow each other in a file. It is this thread's own: its position may change. */
static bool read_pieces(int fd, struct iovec *pieces, int n, int64_t at) {
#ifndef __linux__
    if (lseek(fd, (off_t)at, SEEK_SET) < 0) return false;
#endif
    while (n) {
#ifdef __linux__
        ssize_t got = preadv(fd, pieces, n, (off_t)at);
#else
        ssize_t got = readv(fd, pieces, n);
#endif
        if (got <= 0) return false; /* it ended early, failed, or a signal wants attention */
        at += got;
        for (; n && (size_t)got >= pieces->iov_len; n--, pieces++) got -= (ssize_t)pieces->iov_len;
        if (n) pieces->iov_base = (char *)pieces->iov_base + got, pieces->iov_len -= (size_t)got;
    }
    return true;
}

/* Read the chunks that have room in the slab. ranges: in the order of the file. */
static void read_ranges(const Fetch *fetch, int fd, const Range *ranges, int64_t n) {
    struct iovec pieces[MAX_PIECES];
    char gap[MAX_GAP];
    for (int64_t first = 0, next; first < n; first = next) {
        int64_t end = ranges[first].start;
        int count = 0;
        for (next = first; next < n && count + 2 <= MAX_PIECES; next++) {
            const Range *range = &ranges[next];
            const int64_t between = range->start - end;
            if (between < 0 || between > MAX_GAP) break; /* chunks with the same bytes may share them */
            if (next > first && range->start + range->size - ranges[first].start > MAX_CALL) break;
            if (between) pieces[count++] = (struct iovec){.iov_base = gap, .iov_len = (size_t)between};
            char *to = fetch->slab + fetch->offsets[range->part];
            if (range->size) pieces[count++] = (struct iovec){.iov_base = to, .iov_len = (size_t)range->size};
            end = range->start + range->size;
        }
        if (read_pieces(fd, pieces, count, ranges[first].start)) continue;
        for (int64_t i = first; i < next; i++) {
            fetch->offsets[ranges[i].part] = -1;
            fetch->sizes[ranges[i].part] = LEFT_CHUNK;
        }
    }
}

/* Which entry of the index of its shard is a chunk's. False if none is. */
static bool find_entry(const Places *places, const int64_t *shard, const int64_t *coords, int64_t *at) {
    uint64_t entry = 0;
    for (int64_t a = 0; a < places->ndim; a++) {
        const uint64_t within = (uint64_t)coords[a] - (uint64_t)shard[a] * (uint64_t)places->counts[a];
        if (within >= (uint64_t)places->entries) return false; /* a product of larger numbers may wrap to another chunk's */
        entry += within * (uint64_t)places->steps[a];
    }
    *at = (int64_t)entry;
    return entry < (uint64_t)places->entries;
}

/* Look chunks of a shard up. Returns: how many are to be read; these are put into `ranges`, in the order of the file. */
static int64_t find_ranges(const Fetch *fetch, const int64_t *shard, const void *index, int64_t first, int64_t last, int64_t shard_size,
                           Range *ranges) {
    int64_t n = 0;
    bool in_order = true;
    for (int64_t i = first; i < last; i++) {
        uint64_t start;
        int64_t at, size = LEFT_CHUNK, *offset = &fetch->offsets[i];
        const int64_t *coords = fetch->coords + i * fetch->places->ndim;
        const bool is_known = find_entry(fetch->places, shard, coords, &at);
        const Found found = is_known ? look_up(index, at, shard_size, &start, &size) : ODD;
        fetch->sizes[i] = found == FOUND ? size : found == ABSENT ? MISSING_CHUNK : LEFT_CHUNK;
        *offset = -1;
        if (found != FOUND) continue;
        *offset = fetch->mode == LOCATE_CHUNKS ? (int64_t)start : reserve(fetch, size);
        if (*offset < 0 || fetch->mode == LOCATE_CHUNKS) continue;
        in_order &= !n || ranges[n - 1].start <= (int64_t)start;
        ranges[n++] = (Range){.start = (int64_t)start, .size = size, .part = i};
    }
    if (!in_order) qsort(ranges, (size_t)n, sizeof(Range), by_place);
    return n;
}

/* Fetch chunks of a shard. number: of the shard. */
static void fetch_shard(const Fetch *fetch, int64_t number) {
    const Places *places = fetch->places;
    const int64_t first = fetch->bounds[number], last = fetch->bounds[number + 1];
    const int64_t *shard = fetch->owners + number * places->ndim;
    const Job job = {.ndim = places->ndim, .separator = places->separator};
    const Call call = {.job = &job, .path = fetch->path, .path_length = fetch->path_length};
    char path[MAX_PATH];
    int64_t size;
    const int fd = make_path(&call, shard, path) ? open_regular(path, &size) : -2;
    uint64_t *index = fd < 0 ? NULL : malloc((size_t)(16 * places->entries + CHECKSUM));
    Range *ranges = fd < 0 ? NULL : malloc((size_t)(last - first) * sizeof(Range));
    if (index && ranges && read_index(places, fd, size, index)) {
        read_ranges(fetch, fd, ranges, find_ranges(fetch, shard, index, first, last, size, ranges));
    } else {
        for (int64_t i = first; i < last; i++) {
            fetch->sizes[i] = fd == -1 ? MISSING_CHUNK : LEFT_CHUNK;
            fetch->offsets[i] = -1;
        }
    }
    free(ranges);
    free(index);
    if (fd >= 0) close(fd);
}

bool fetch_is_sound(const Fetch *fetch) {
    const Places *places = fetch->places;
    if (places->entries < 0 || places->entries > INT32_MAX || fetch->phase < 0 || fetch->phase >= SLAB_ALIGNMENT ||
        fetch->mode < FETCH_CHUNKS || fetch->mode > LOCATE_CHUNKS || *fetch->cursor < 0)
        return false;
    if (!places->entries) return true;
    for (int64_t s = 0; s < fetch->n_owners; s++)
        if (fetch->bounds[s] > fetch->bounds[s + 1]) return false;
    return fetch->bounds[0] == 0 && fetch->bounds[fetch->n_owners] == fetch->n;
}

void fetch_all(const Fetch *fetch) {
    if (!fetch->places->entries) fetch_files(fetch);
    for (int64_t s = 0; fetch->places->entries && s < fetch->n_owners; s++) fetch_shard(fetch, s);
}
