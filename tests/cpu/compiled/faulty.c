/* Preloaded before the C library: lets calls of open, write, rename, pread and preadv, and those of files within an open
 * directory, fail when `set_fault` has said so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, RENAME, READ, FOLDER, LOCK };

static int fault, fault_errno, skipped, failing;

/* From the call number `after` on, `count` calls of a function fail. */
void set_fault(int function, int error, int after, int count) {
    fault = function, fault_errno = error, skipped = after, failing = count;
}

static int fails(int function) {
    if (function != fault || skipped-- > 0 || failing-- <= 0) return 0;
    errno = fault_errno;
    return 1;
}

/* Do what another process may: publish a file, and begin another one in its place. */
static void replace(int fd) {
    char link[64], path[4096] = {0}, moved[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return;
    snprintf(moved, sizeof moved, "%s.moved", path);
    rename(path, moved);
    const int other = open(path, O_WRONLY | O_CREAT, 0666);
    dprintf(other, "other");
    close(other);
}

int flock(int fd, int how) {
    if (fails(LOCK)) {
        dprintf(fd, "kept");
        replace(fd);
    }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, how);
}

static int opens(const char *name, const char *path, int flags, int mode) {
    if ((flags & O_CREAT) && fails(OPEN)) return -1;
    if ((flags & O_DIRECTORY) && fails(FOLDER)) return -1;
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    return real(path, flags, mode);
}

#define OPENS(name)                                \
    int name(const char *path, int flags, ...) {   \
        va_list more;                              \
        va_start(more, flags);                     \
        const int mode = va_arg(more, int);        \
        va_end(more);                              \
        return opens(#name, path, flags, mode);    \
    }

OPENS(open)
OPENS(open64)

#define OPENS_IN(name)                                                                                    \
    int name(int folder, const char *path, int flags, ...) {                                              \
        va_list more;                                                                                     \
        va_start(more, flags);                                                                            \
        const int mode = va_arg(more, int);                                                               \
        va_end(more);                                                                                     \
        if ((flags & O_CREAT) && fails(OPEN)) return -1;                                                  \
        return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
    }

OPENS_IN(openat)
OPENS_IN(openat64)

ssize_t write(int fd, const void *data, size_t n) {
    if (fd > 2 && fails(WRITE)) {
        if (fault_errno >= 0) return -1;
        replace(fd);
    }
    return ((ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, data, n);
}

/* What a read that fails returns: without an error number the file ends early; with a negative one it is touched, and
 * the read does not fail. */
static int read_fails(int fd) {
    if (!fails(READ)) return 0;
    return fault_errno < 0 ? futimens(fd, NULL) : 1;
}

#define READS(name)                                                                                            \
    ssize_t name(int fd, void *data, size_t n, off_t at) {                                                     \
        if (read_fails(fd)) return fault_errno ? -1 : 0;                                                       \
        return ((ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, #name))(fd, data, n, at);             \
    }

READS(pread)
READS(pread64)

struct iovec;

#define READS_PIECES(name)                                                                                         \
    ssize_t name(int fd, const struct iovec *pieces, int n, off_t at) {                                            \
        if (read_fails(fd)) return fault_errno ? -1 : 0;                                                           \
        return ((ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, #name))(fd, pieces, n, at);    \
    }

READS_PIECES(preadv)
READS_PIECES(preadv64)

ssize_t writev(int fd, const struct iovec *runs, int n) {
    if (fd > 2 && fails(WRITE)) return -1;
    return ((ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev"))(fd, runs, n);
}

int rename(const char *from, const char *to) {
    if (fails(RENAME)) return -1;
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    if (fails(RENAME)) return -1;
    return ((int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat"))(from_folder, from, to_folder, to);
}
