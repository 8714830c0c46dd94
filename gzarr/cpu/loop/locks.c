/* The locks of files: see gzarr/storage/file_locks.py, which this follows. Here nobody waits, and only a temporary file
 * that is made here is used: what another holds, or has left, is the Python path's. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer names of files have another temporary name (file_locks.MAX_NAME_NBYTES). How often a directory that another
 * thread has removed is made again. Locks and directories held at once, by all threads. */
enum { MAX_NAME = 100, ATTEMPTS = 5, MAX_LOCKS = 512 };

/* The descriptors of locks and directories that are held, each with one added; 0 is a free place, -1 one whose file is
 * being opened. A forked child closes them: it would keep the locks. */
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

/* -- directories ------------------------------------------------------------------------------------------------ */

/* Nobody lists a directory: to be allowed to go through it is enough. */
#ifdef O_PATH
enum { AS_FOLDER = O_PATH | O_DIRECTORY | O_CLOEXEC };
#else
enum { AS_FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
#endif

/* Bytes of a path up to the name of the file. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

void leave_folder(Folder *folder) {
    if (folder->fd < 0) return;
    note(folder->place, 0);
    close(folder->fd);
    folder->fd = -1;
}

/* Hold the directory of a file. If that cannot be, none is held, and files are found by their paths. */
static void enter_folder(const char *path, Folder *folder) {
    const size_t length = folder_length(path);
    if (folder->fd >= 0 && folder->length == length && !memcmp(folder->path, path, length)) return;
    leave_folder(folder);
    if (!length || length >= MAX_PATH || (folder->place = reserve()) < 0) return;
    memcpy(folder->path, path, length);
    folder->path[length] = 0;
    folder->length = length;
    folder->fd = open(folder->path, AS_FOLDER);
    note(folder->place, folder->fd + 1);
}

/* Where the names of a lock begin. */
static int base_of(const Lock *lock) { return lock->folder && lock->folder->fd >= 0 ? lock->folder->fd : AT_FDCWD; }

/* -- locks ------------------------------------------------------------------------------------------------------- */

/* Name the file and its temporary file: in the directory that is held, or by their paths. */
static bool name_files(const char *path, const char *prefix, int64_t length, Lock *lock) {
    const size_t folder = folder_length(path), name = strlen(path + folder);
    const size_t begin = base_of(lock) == AT_FDCWD ? folder : 0;
    if (name > MAX_NAME || folder + (size_t)length + name >= MAX_PATH) return false;
    memcpy(lock->temporary, path, begin);
    memcpy(lock->temporary + begin, prefix, (size_t)length);
    memcpy(lock->temporary + begin + length, path + folder, name + 1);
    lock->name = path + folder - begin;
    return true;
}

static int open_temporary(char *path, const char *prefix, int64_t length, Lock *lock) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (lock->folder) enter_folder(path, lock->folder);
        if (!name_files(path, prefix, length, lock)) return -1;
        const int fd = openat(base_of(lock), lock->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != ENOENT) return fd;
        if (lock->folder) leave_folder(lock->folder); /* it was removed */
        if (!make_parents(path)) return -1;
    }
    return -1;
}

/* Whether the name of the temporary file leads to the file that is locked. */
static bool leads_to(const Lock *lock) {
    struct stat there;
    return !fstatat(base_of(lock), lock->temporary, &there, AT_SYMLINK_NOFOLLOW) && there.st_ino == lock->inode &&
           there.st_dev == lock->device;
}

static void release_lock(Lock *lock) {
    note(lock->place, 0);
    flock(lock->fd, LOCK_UN); /* a child may have a copy */
    close(lock->fd);
    lock->fd = -1;
}

bool take_lock(char *path, const char *prefix, int64_t length, Lock *lock) {
    lock->fd = -1;
    if ((lock->place = reserve()) < 0) return false;
    struct stat here;
    const int fd = open_temporary(path, prefix, length, lock);
    note(lock->place, fd + 1);
    if (fd < 0) return false;
    lock->fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) unlinkat(base_of(lock), lock->temporary, 0); /* files have no locks here */
    } else if (!fstat(fd, &here)) {
        lock->inode = here.st_ino;
        lock->device = here.st_dev;
        if (leads_to(lock) && here.st_nlink == 1 && (!here.st_size || !ftruncate(fd, 0))) return true;
    }
    release_lock(lock);
    return false;
}

bool rename_lock(Lock *lock) {
    const int base = base_of(lock);
    if (!leads_to(lock) || renameat(base, lock->temporary, base, lock->name)) return false;
    release_lock(lock);
    return true;
}

bool remove_locked(Lock *lock) {
    if (unlinkat(base_of(lock), lock->name, 0) && errno != ENOENT) return false;
    end_lock(lock);
    return true;
}

void end_lock(Lock *lock) {
    if (lock->fd < 0) return;
    if (leads_to(lock)) unlinkat(base_of(lock), lock->temporary, 0);
    release_lock(lock);
}
