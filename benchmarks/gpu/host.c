// What benchmarks/gpu/host.py needs besides Python: the floor of system calls, and how often the interpreter's lock is
// taken.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Open, ask for the size, read and close files, one after the other, and lay their contents side by side.
// index: bytes to read from each file's end first. Returns: the bytes read, or -1.
int64_t read_files(const char *const *paths, int64_t n, char *target, int64_t room, int64_t index) {
    int64_t total = 0;
    struct stat status;
    for (int64_t i = 0; i < n; i++) {
        int file = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (file < 0 || fstat(file, &status) < 0 || total + status.st_size > room) return -1;
        if (index > 0 && pread(file, target + total, index, status.st_size - index) != index) return -1;
        int64_t size = status.st_size - index;
        if (pread(file, target + total, size, 0) != size) return -1;
        total += size;
        close(file);
    }
    return total;
}

// Replace files by others of the same sizes: create, write, close, rename. Returns: the bytes written, or -1.
int64_t write_files(const char *const *paths, const int64_t *sizes, int64_t n, const char *source) {
    char name[4096];
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        if (snprintf(name, sizeof name, "%s.part", paths[i]) >= (int)sizeof name) return -1;
        int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 || write(file, source + total, sizes[i]) != sizes[i]) return -1;
        close(file);
        if (rename(name, paths[i]) < 0) return -1;
        total += sizes[i];
    }
    return total;
}

// The interpreter's lock has no public state. `_PyRuntime` contains it as an int that is 1 while the lock is taken. It
// is found by elimination: the caller looks at all ints again and again, in turn with and without the lock.
static int *runtime;
static int64_t n_ints;
static char *possible;

// Begin to look. Returns: the number of candidates, 0 if the interpreter does not export its state.
int64_t begin_search(void) {
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    void *address = dlsym(RTLD_DEFAULT, "_PyRuntime");
    if (address == NULL || !dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) || symbol == NULL) return 0;
    runtime = address;
    n_ints = symbol->st_size / sizeof(int);
    free(possible);
    possible = malloc(n_ints);
    if (possible == NULL) return 0;
    memset(possible, 1, n_ints);
    return n_ints;
}

// Exclude every int with another value. Returns: the candidates that are left.
int64_t exclude(int taken) {
    int64_t left = 0;
    for (int64_t i = 0; i < n_ints; i++) {
        possible[i] = possible[i] && *(volatile int *)(runtime + i) == taken;
        left += possible[i];
    }
    return left;
}

static volatile int *lock;
static volatile int going;
static pthread_t sampler;
static int64_t n_samples, n_taken;

// Take the only candidate. Returns: whether there is exactly one.
int end_search(void) {
    int64_t left = 0;
    for (int64_t i = 0; i < n_ints; i++) {
        if (possible[i]) lock = runtime + i;
        left += possible[i];
    }
    return left == 1;
}

static void *sample(void *period) {
    struct timespec pause = {0, (long)(intptr_t)period};
    while (going) {
        nanosleep(&pause, NULL);
        n_samples++;
        n_taken += *lock != 0;
    }
    return NULL;
}

// Begin to look at the lock about every `period_ns` on a thread of its own.
int begin_samples(int64_t period_ns) {
    going = 1;
    n_samples = n_taken = 0;
    return pthread_create(&sampler, NULL, sample, (void *)(intptr_t)period_ns);
}

// Stop. Returns: the share of samples in which the lock was taken; -1 if there are none.
double end_samples(int64_t *samples) {
    going = 0;
    pthread_join(sampler, NULL);
    *samples = n_samples;
    return n_samples ? (double)n_taken / n_samples : -1;
}
