/* Fetches the encoded chunks of a table into a staging buffer: see gzarr/gpu/native/fetch.py.
 *
 * Theory of operation. A file is opened once. All that is read of it comes from that descriptor. Of a shard, that must be
 * the version that the places of its chunks belong to, and still be that when all were read, in the order of the file and
 * with one call for those that lie near each other. Several threads fetch into one buffer at the same time: they take room
 * by adding to one number.
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
    if (lstat(path, &info)) return (errno == ENOENT || errno == ENOTDIR) && !is_lost(path) ? MISSING_CHUNK : LEFT_CHUNK;
    if (S_ISLNK(info.st_mode) && stat(path, &info)) return LEFT_CHUNK; /* a link to nothing */
    return S_ISREG(info.st_mode) ? (int64_t)info.st_size : LEFT_CHUNK;
}

static int64_t fetch_file(const Fetch *fetch, const char *path, int64_t *offset) {
    int64_t size;
    if (fetch->capacity < 0) return size_of(path);
    const int fd = open_regular(path, &size);
    if (fd < 0) return fd == -1 ? MISSING_CHUNK : LEFT_CHUNK;
    *offset = reserve(fetch, size);
    if (*offset >= 0 && !read_exactly(fd, fetch->slab + *offset, size, 0)) *offset = -1, size = LEFT_CHUNK;
    close(fd);
    return size;
}

static void fetch_files(const Fetch *fetch) {
    const Call *call = fetch->call;
    char path[MAX_PATH];
    for (int64_t i = 0; i < call->n; i++) {
        const bool is_known = make_path(call, call->coords + i * call->job->ndim, path);
        fetch->offsets[i] = -1;
        fetch->sizes[i] = is_known ? fetch_file(fetch, path, &fetch->offsets[i]) : LEFT_CHUNK;
    }
}

/* -- shards ---------------------------------------------------------------------------------------------------- */

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

/* Look chunks of a shard up. Returns: how many are to be read; these are put into `ranges`, in the order of the file. */
static int64_t find_ranges(const Fetch *fetch, int64_t first, int64_t last, int64_t shard_size, Range *ranges) {
    int64_t n = 0;
    bool in_order = true;
    for (int64_t i = first; i < last; i++) {
        uint64_t start;
        int64_t size;
        const Found found = look_up(fetch->objects->places, i, shard_size, &start, &size);
        fetch->sizes[i] = found == FOUND ? size : found == ABSENT ? MISSING_CHUNK : LEFT_CHUNK;
        fetch->offsets[i] = found == FOUND ? reserve(fetch, size) : -1;
        if (fetch->offsets[i] < 0) continue;
        in_order &= !n || ranges[n - 1].start <= (int64_t)start;
        ranges[n++] = (Range){.start = (int64_t)start, .size = size, .part = i};
    }
    if (!in_order) qsort(ranges, (size_t)n, sizeof(Range), by_place);
    return n;
}

/* Fetch chunks of a shard, by its number and path. */
static void fetch_shard(const Fetch *fetch, int64_t number, const char *path) {
    const int64_t first = fetch->objects->bounds[number], last = fetch->objects->bounds[number + 1];
    const int64_t *numbers = fetch->objects->numbers + number * OBJECT_NUMBERS, state = numbers[OBJECT_STATE];
    Call call = *fetch->call;
    int64_t size = -1;
    const int fd = state < OBJECT_UNCHECKED ? -2 : open_regular(path, &size);
    Range *ranges = malloc((size_t)(last - first) * sizeof(Range));
    call.version = state == OBJECT_CHECKED ? numbers + OBJECT_VERSION : NULL;
    bool sound = ranges && (state == OBJECT_MISSING ? fd == -1 : fd >= 0 && is_version(&call, fd));
    if (sound) {
        read_ranges(fetch, fd, ranges, find_ranges(fetch, first, last, size, ranges));
        sound = fd < 0 || is_version(&call, fd);
    }
    for (int64_t i = first; !sound && i < last; i++) fetch->offsets[i] = -1, fetch->sizes[i] = LEFT_CHUNK;
    free(ranges);
    if (fd >= 0) close(fd);
}

void fetch_all(const Fetch *fetch) {
    if (!fetch->objects) {
        fetch_files(fetch);
        return;
    }
    const char *path = fetch->objects->paths;
    for (int64_t i = 0; i < fetch->objects->n_objects; i++, path += strlen(path) + 1) fetch_shard(fetch, i, path);
}
