/* Finds stored chunks, in files, shards or memory, and reads and writes bytes of files: see loop.h. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- bytes of files -------------------------------------------------------------------------------------------- */

/* Read `n` bytes of a file, from `at` on. False if that cannot be. */
bool read_exactly(int fd, char *to, int64_t n, int64_t at) {
    while (n) {
        const ssize_t got = pread(fd, to, (size_t)(n < (1 << 28) ? n : 1 << 28), (off_t)at);
        if (got <= 0) return false; /* it ended early, failed, or a signal wants attention */
        to += got, at += got, n -= got;
    }
    return true;
}

bool write_at(int fd, const char *data, int64_t n, int64_t at) {
    while (n) {
        const ssize_t put = pwrite(fd, data, (size_t)n, at);
        if (put <= 0) return false;
        data += put, n -= put, at += put;
    }
    return true;
}

bool write_exactly(int fd, const char *data, int64_t n) {
    while (n) {
        const ssize_t put = write(fd, data, (size_t)n);
        if (put <= 0) return false; /* it failed, or a signal wants attention */
        data += put, n -= put;
    }
    return true;
}

/* -- places of chunks ------------------------------------------------------------------------------------------ */

/* The path of a chunk's file, a string in MAX_PATH bytes. False if it is too long. */
bool make_path(const Call *call, const int64_t *coords, char *path) {
    const int64_t ndim = call->job->ndim;
    if (call->path_length + 21 * ndim >= MAX_PATH) return false;
    char *at = path + call->path_length;
    memcpy(path, call->path, (size_t)call->path_length);
    for (int64_t a = 0; a < ndim; a++) {
        char digits[20];
        int n = 0;
        if (coords[a] < 0) return false;
        for (uint64_t c = (uint64_t)coords[a]; n == 0 || c; c /= 10) digits[n++] = (char)('0' + c % 10);
        if (a) *at++ = (char)call->job->separator;
        while (n) *at++ = digits[--n];
    }
    *at = 0;
    return true;
}

/* What an entry of the index of a shard of so many bytes says. ODD if that is not within the shard. */
Found look_up(const void *index, int64_t at, int64_t shard_size, uint64_t *start, int64_t *size) {
    uint64_t entry[2]; /* a copy, as an index may lie anywhere in a shard */
    memcpy(entry, (const char *)index + (size_t)at * sizeof entry, sizeof entry);
    *start = entry[0];
    if (*start == MISSING) return ABSENT;
    if (shard_size < 0 || *start > (uint64_t)shard_size || entry[1] > (uint64_t)shard_size - *start) return ODD;
    *size = (int64_t)entry[1];
    return FOUND;
}

/* The same of a chunk of a call. */
Found look_up_chunk(const Call *call, int64_t number, int64_t shard_size, uint64_t *start, int64_t *size) {
    const int64_t at = call->entries ? call->entries[number] : number;
    return at < 0 || at >= call->n_index ? ODD : look_up(call->index, at, shard_size, start, size);
}

/* Whether a file that is not there may be lost, as a directory above it is a link to nothing. */
bool is_lost(const char *path) {
    char above[MAX_PATH];
    struct stat info;
    strncpy(above, path, sizeof above - 1)[sizeof above - 1] = 0;
    for (char *end = strrchr(above, '/'); end && end != above; end = strrchr(above, '/')) {
        *end = 0;
        if (!lstat(above, &info)) return S_ISLNK(info.st_mode) && stat(above, &info);
    }
    return false;
}

/* Open a regular file. Returns: its descriptor; -1 if there is none, -2 if it is to be left. Nothing waits for a pipe. */
int open_regular(const char *path, int64_t *size) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    int fd = open(path, flags | O_NOFOLLOW);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return is_lost(path) ? -2 : -1;
    if (fd < 0) fd = open(path, flags); /* a link; if it leads to nothing, that is no missing file */
    struct stat info;
    if (fd < 0) return -2;
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

/* Whether an open shard is the version that its index is of, and unchanged, if a version is asked for (FIXED: of none). */
bool is_version(const Call *call, int fd) {
    const int64_t *version = call->version;
    struct stat info;
    if (!version || version[1] < 0) return true;
    if (fstat(fd, &info)) return false;
    const uint64_t *noted = lib.written + (uint64_t)info.st_ino % lib.n_written;
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

static Found find_range(const Call *call, const Reader *reader, Stored *stored) {
    if (!call->index) return ABSENT;
    uint64_t start = 0;
    *stored = (Stored){.bytes = call->bytes, .may_change = call->bytes_may_change, .fd = reader->fd};
    const int64_t shard_size = call->bytes ? call->n_bytes : reader->fd < 0 ? -1 : reader->shard_size;
    const Found found = look_up_chunk(call, reader->number, shard_size, &start, &stored->size);
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
    return call->sharded ? find_range(call, reader, stored) : find_file(call, coords, reader, stored);
}

void leave_stored(const Call *call, const Stored *stored) {
    if (!call->sharded && !call->items) close(stored->fd);
}

/* Read `n` bytes of a chunk, from `at` on. False if that cannot be. */
bool read_stored(const Stored *stored, char *to, int64_t n, int64_t at) {
    if (at < 0 || n < 0 || n > stored->size - at) return false;
    if (!stored->bytes) return read_exactly(stored->fd, to, n, stored->start + at);
    memcpy(to, stored->bytes + stored->start + at, (size_t)n);
    return true;
}
