/* The locks of files: see gzarr/storage/file_locks.py, which this follows. Here nobody waits: what another holds is left
 * to the Python path. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer names of files have another temporary name (file_locks.MAX_NAME_NBYTES). How often a directory that another
 * thread has removed is made again. Locks held at once, by all threads. */
enum { MAX_NAME = 100, ATTEMPTS = 5, MAX_LOCKS = 256 };

/* The descriptors of locks that are held, each with one added; 0 is a free place, -1 one whose file is being opened. A
 * forked child closes them: it would keep the locks. */
static int held[MAX_LOCKS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static int reserve(void) {
    int place = -1;
    pthread_mutex_lock(&guard);
    for (int i = 0; place < 0 && i < MAX_LOCKS; i++)
        if (!held[i]) held[place = i] = -1;
    pthread_mutex_unlock(&guard);
    return place;
}

static void note(int place, int value) {
    pthread_mutex_lock(&guard);
    held[place] = value;
    pthread_mutex_unlock(&guard);
}

static void before_fork(void) { pthread_mutex_lock(&guard); }

static void after_fork(void) { pthread_mutex_unlock(&guard); }

static void begin_child(void) {
    for (int i = 0; i < MAX_LOCKS; i++) {
        if (held[i] > 0) close(held[i] - 1);
        held[i] = 0;
    }
    pthread_mutex_unlock(&guard);
}

bool watch_forks(void) {
    static bool watched;
    if (!watched) watched = !pthread_atfork(before_fork, after_fork, begin_child);
    return watched;
}

/* Make the directories above a file. */
static bool make_parents(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return false;
    *slash = 0;
    bool made = !mkdir(path, 0777) || errno == EEXIST;
    if (!made && errno == ENOENT) made = make_parents(path) && (!mkdir(path, 0777) || errno == EEXIST);
    *slash = '/';
    return made;
}

static bool name_temporary(const char *path, const char *prefix, int64_t length, char *temporary) {
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0, name = strlen(path + folder);
    if (name > MAX_NAME || folder + (size_t)length + name >= MAX_PATH) return false;
    memcpy(temporary, path, folder);
    memcpy(temporary + folder, prefix, (size_t)length);
    memcpy(temporary + folder + length, path + folder, name + 1);
    return true;
}

static int open_temporary(char *path, const char *temporary) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const int fd = open(temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 || errno != ENOENT || !make_parents(path)) return fd;
    }
    return -1;
}

/* Whether the name of the temporary file leads to the file that is locked. */
static bool leads_to(const Lock *lock) {
    struct stat there;
    return !lstat(lock->temporary, &there) && there.st_ino == lock->inode && there.st_dev == lock->device;
}

static void release_lock(Lock *lock) {
    note(lock->place, 0);
    flock(lock->fd, LOCK_UN); /* a child may have a copy */
    close(lock->fd);
    lock->fd = -1;
}

bool take_lock(char *path, const char *prefix, int64_t length, Lock *lock) {
    lock->fd = -1;
    if (!name_temporary(path, prefix, length, lock->temporary) || (lock->place = reserve()) < 0) return false;
    struct stat here;
    const int fd = open_temporary(path, lock->temporary);
    note(lock->place, fd + 1);
    if (fd < 0) return false;
    lock->fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) unlink(lock->temporary); /* files have no locks here */
    } else if (!fstat(fd, &here)) {
        lock->inode = here.st_ino;
        lock->device = here.st_dev;
        if (leads_to(lock) && here.st_nlink == 1 && (!here.st_size || !ftruncate(fd, 0))) return true;
    }
    release_lock(lock);
    return false;
}

bool rename_lock(Lock *lock, const char *path) {
    if (!leads_to(lock) || rename(lock->temporary, path)) return false;
    release_lock(lock);
    return true;
}

void end_lock(Lock *lock) {
    if (lock->fd < 0) return;
    if (leads_to(lock)) unlink(lock->temporary);
    release_lock(lock);
}
