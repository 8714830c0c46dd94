/* Stores encoded chunks that are in memory: see gzarr/gpu/native/fetch.py. */
#include "device.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/uio.h>

/* Pieces of one call (Linux: UIO_MAXIOV). */
enum { MOST_PIECES = 1024 };

static bool write_pieces(int fd, struct iovec *pieces, int64_t n) {
    while (n) {
        const ssize_t got = writev(fd, pieces, (int)(n < MOST_PIECES ? n : MOST_PIECES));
        if (got <= 0) return false; /* it failed, or a signal wants attention */
        size_t put = (size_t)got;
        for (; n && put >= pieces->iov_len; n--, pieces++) put -= pieces->iov_len;
        if (n) pieces->iov_base = (char *)pieces->iov_base + put, pieces->iov_len -= put;
    }
    return true;
}

/* Make the index of a shard and the list of what it consists of. Returns: pieces; 0 if all chunks are missing. */
static int64_t plan_shard(const Places *places, const int64_t *addresses, const int64_t *sizes, uint64_t *index,
                          struct iovec *pieces) {
    const int64_t nbytes = 16 * places->entries, whole = nbytes + (places->checksum ? CHECKSUM : 0);
    int64_t n = places->at_start, made = 0;
    uint64_t position = places->at_start ? (uint64_t)whole : 0;
    for (int64_t e = 0; e < places->entries; e++) {
        const bool missing = sizes[e] < 0;
        index[2 * e] = missing ? MISSING : position;
        index[2 * e + 1] = missing ? MISSING : (uint64_t)sizes[e];
        if (missing) continue;
        made++;
        position += (uint64_t)sizes[e];
        if (sizes[e]) pieces[n++] = (struct iovec){.iov_base = (void *)(intptr_t)addresses[e], .iov_len = (size_t)sizes[e]};
    }
    if (!made) return 0;
    if (places->checksum) {
        const uint32_t sum = lib.crc32c_value((const uint8_t *)index, (size_t)nbytes);
        memcpy((char *)index + nbytes, &sum, sizeof sum);
    }
    const struct iovec last = {.iov_base = index, .iov_len = (size_t)whole};
    if (places->at_start)
        pieces[0] = last;
    else
        pieces[n++] = last;
    return n;
}

static int put_shard(const Put *put, Sink *sink, int64_t i, State *state) {
    const int64_t entries = put->places->entries;
    uint64_t *index = malloc((size_t)(16 * entries + CHECKSUM));
    struct iovec *pieces = malloc((size_t)(entries + 1) * sizeof(struct iovec));
    int status = LEFT;
    if (index && pieces) {
        const int64_t n = plan_shard(put->places, put->addresses + i * entries, put->sizes + i * entries, index, pieces);
        if (!n)
            status = delete_file(sink, state) ? EMPTY : LEFT;
        else if (lock_file(sink, state) && write_pieces(state->lock.fd, pieces, n) && publish(sink, state))
            status = DONE;
    }
    free(pieces);
    free(index);
    return status;
}

static int put_file(const Put *put, Sink *sink, int64_t i, State *state) {
    const int64_t size = put->sizes[i];
    if (size < 0) return delete_file(sink, state) ? EMPTY : LEFT;
    return replace_file(sink, (const char *)(intptr_t)put->addresses[i], size, NULL, state) ? DONE : LEFT;
}

int64_t put_all(const Put *put, Sink *sink, char *status) {
    const int64_t ndim = put->places->ndim;
    const Job job = {.ndim = ndim, .separator = put->places->separator};
    const Call call = {.job = &job, .path = put->path, .path_length = put->path_length};
    Folder folder;
    State state = {.lock = {.fd = -1, .folder = put->n > 1 ? &folder : NULL}};
    int64_t left = 0;
    folder.fd = -1;
    for (int64_t i = 0; i < put->n; i++) {
        status[i] = LEFT;
        if (make_path(&call, put->coords + i * ndim, state.path))
            status[i] = (char)(put->places->entries ? put_shard : put_file)(put, sink, i, &state);
        end_lock(&state.lock);
        left += status[i] == LEFT;
    }
    leave_folder(&folder);
    return left;
}
