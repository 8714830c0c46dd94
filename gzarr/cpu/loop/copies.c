/* Reads chunks of which many boxes want some: each is decoded once and copied to every slot that wants a part of it.
 *
 * Theory of operation. A row of the tables is a chunk; its fragments say what of it goes where in which slot. Slots are
 * rows of blocks of memory. One call takes chunks of many shards: each of these is opened once, must be the version that
 * its index belongs to, and must still be that, unchanged, when all its chunks were read. So nobody has to look at its
 * version before or afterwards.
 */
#include "loop.h"

#include <string.h>
#include <unistd.h>

/* -- one chunk ------------------------------------------------------------------------------------------------- */

/* Where fragment `f` goes, and from where. False if it leaves chunk or slot. */
static bool plan_copy(const Call *call, int64_t f, Copy *copy) {
    const Job *job = call->job;
    const Copies *copies = call->copies;
    const int64_t ndim = job->ndim, slot = copies->slots[f];
    if (slot < 0 || slot / copies->rows >= copies->n_blocks) return false;
    const int64_t *block = copies->blocks + 2 * (slot / copies->rows);
    const int64_t *inside = copies->inside + f * ndim, *counts = copies->counts + f * ndim;
    const int64_t *place = copies->place + f * ndim;
    copy->n = 0, copy->run = job->itemsize, copy->src_start = 0, copy->cast = copies->cast;
    copy->dst = (char *)(intptr_t)block[0] + slot % copies->rows * block[1];
    for (int64_t a = 0; a < ndim; a++) {
        const int64_t n = counts[a];
        if (n < 1 || n > job->chunk_shape[a] || n > job->out_shape[a]) return false;
        if (inside[a] < 0 || inside[a] > job->chunk_shape[a] - n) return false;
        if (place[a] < 0 || place[a] > job->out_shape[a] - n) return false;
        copy->src_start += inside[a] * job->chunk_stride[a];
        copy->dst += place[a] * job->out_stride[a];
        if (n > 1) copy->axis[copy->n++] = (Axis){.n = n, .src = job->chunk_stride[a], .dst = job->out_stride[a]};
    }
    return true;
}

static bool fill_slots(const Call *call, int64_t first, int64_t last) {
    Copy copy;
    for (int64_t f = first; f < last; f++) {
        if (!plan_copy(call, f, &copy)) return false;
        copy.run = call->copies->itemsize;
        simplify(&copy, true);
        copy_axes(copy.axis, copy.n, copy.dst, call->fill, copy.run, call->copies->itemsize);
    }
    return true;
}

/* Decode a chunk that is there, and copy its fragments. */
static bool copy_fragments(const Call *call, const Stored *stored, int64_t first, int64_t last, Reader *reader) {
    const Job *job = call->job;
    const CastRun cast = call->copies->cast;
    Copy copy;
    if (!plan_copy(call, first, &copy)) return false;
    if (last - first == 1) return copy_stored(job, stored, &copy, reader);
    char *into = NULL, *chunk;
    if (!cast) {
        simplify(&copy, false);
        if (!copy.n && copy.run == job->nbytes) into = copy.dst;
    }
    if (!load_stored(job, stored, into, job->nbytes, reader, &chunk)) return false;
    for (int64_t f = first; f < last; f++) {
        if (!plan_copy(call, f, &copy)) return false;
        const char *src = chunk + copy.src_start;
        if (cast) {
            cast_box(&copy, src);
        } else if (copy.dst != src) {
            simplify(&copy, false);
            copy_axes(copy.axis, copy.n, copy.dst, src, copy.run, copy.run);
        }
    }
    return true;
}

int do_copies(const Call *call, int64_t row, Reader *reader) {
    const Copies *copies = call->copies;
    const int64_t first = copies->firsts[row], last = copies->firsts[row + 1], ndim = call->job->ndim;
    if (first < 0 || last < first || last > copies->n_fragments) return LEFT;
    if (first == last) return DONE;
    reader->placed = 0;
    for (int64_t f = first; f < last; f++) {
        uint64_t nbytes = (uint64_t)copies->itemsize;
        for (int64_t a = 0; a < ndim; a++) nbytes *= (uint64_t)copies->counts[f * ndim + a];
        reader->placed += nbytes;
    }
    Stored stored;
    const Found found = find_stored(call, copies->coords + row * ndim, reader, &stored);
    if (found == ODD) return LEFT;
    if (found == ABSENT) return fill_slots(call, first, last) ? DONE : LEFT;
    const bool copied = copy_fragments(call, &stored, first, last, reader);
    leave_stored(call, &stored);
    return copied ? DONE : LEFT;
}

/* -- shards ---------------------------------------------------------------------------------------------------- */

/* Open a shard, or take it from memory. False if it can not be. */
static bool take_shard(Call *call, const int64_t *shard, const Item *item, Reader *reader) {
    char path[MAX_PATH];
    if (item) {
        call->bytes = item->bytes, call->n_bytes = item->size, call->bytes_may_change = item->may_change;
        return !item->bytes == !shard[SHARD_INDEX] && !shard[SHARD_CHECKED];
    }
    if (!make_path(call, shard + SHARD_COORDS, path)) return false;
    reader->fd = open_regular(path, &reader->shard_size);
    return reader->fd >= 0 || (reader->fd == -1 && !shard[SHARD_INDEX]);
}

/* Read the chunks of one shard. from: number of the call's first chunk. item: the shard in memory; NULL for a file. False if
 * nothing of it counts. */
static bool read_shard(Call *call, int64_t from, const int64_t *shard, const Item *item, Reader *reader, char *status,
                       Done *done) {
    const int64_t ndim = call->job->ndim, first = shard[SHARD_FIRST], n = shard[SHARD_N];
    const int64_t *coords = shard + SHARD_COORDS;
    if (!take_shard(call, shard, item, reader)) return false;
    Window window = {0};
    memcpy(window.origin, coords + ndim, (size_t)ndim * sizeof(int64_t));
    memcpy(window.entry, coords + 2 * ndim, (size_t)ndim * sizeof(int64_t));
    call->window = &window;
    call->index = (const void *)(intptr_t)shard[SHARD_INDEX];
    call->n_index = shard[SHARD_ENTRIES];
    call->version = shard[SHARD_CHECKED] ? shard + SHARD_VERSION : NULL;
    const bool is_open = reader->fd >= 0;
    bool sound = item || (is_open == (call->index != NULL) && (!is_open || is_version(call, reader->fd)));
    for (int64_t i = 0; sound && i < n; i++) {
        reader->taken = 0;
        status[first + i] = (char)do_copies(call, from + first + i, reader);
        sound = status[first + i] == DONE;
        done->taken += reader->taken, done->placed += reader->placed;
    }
    if (is_open) {
        sound = sound && is_version(call, reader->fd);
        close(reader->fd);
    }
    reader->fd = -1;
    return sound;
}

Done read_shards(Call *call, int64_t first, const int64_t *shards, int64_t n_shards, const Item *items, char *status,
                 char *scratch) {
    Reader reader = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    for (int64_t s = 0; s < n_shards; s++) {
        const int64_t *shard = shards + s * (SHARD_COORDS + 3 * call->job->ndim);
        Done of_shard = {0};
        if (read_shard(call, first, shard, items ? items + s : NULL, &reader, status, &of_shard)) {
            done.taken += of_shard.taken, done.placed += of_shard.placed;
            continue;
        }
        memset(status + shard[SHARD_FIRST], LEFT, (size_t)shard[SHARD_N]);
        done.left += shard[SHARD_N];
    }
    close_reader(&reader);
    return done;
}

/* Whether rows of the tables, of so many chunks, are within each other. */
bool shards_are_sound(const int64_t *shards, int64_t n_shards, int64_t ndim, int64_t n) {
    int64_t next = 0;
    for (int64_t s = 0; s < n_shards; s++, shards += SHARD_COORDS + 3 * ndim) {
        if (shards[SHARD_FIRST] != next || shards[SHARD_N] < 1 || shards[SHARD_N] > n - next) return false;
        if (shards[SHARD_ENTRIES] < 0) return false;
        next += shards[SHARD_N];
    }
    return next == n;
}

/* -- rows of a pool -------------------------------------------------------------------------------------------- */

/* Gather rows of so many elements. False if a row is not there; those before it are copied. */
bool take_rows(const Taking *taking) {
    const int64_t from = taking->elements * taking->from_size, to = taking->elements * taking->to_size;
    for (int64_t i = 0; i < taking->n; i++) {
        const int64_t slot = taking->slots[i];
        if (slot < 0 || slot >= taking->n_rows) return false;
        const char *src = taking->pool + slot * from;
        char *dst = taking->out + i * to;
        if (taking->cast)
            taking->cast(dst, src, taking->elements, taking->to_size, taking->from_size);
        else
            memcpy(dst, src, (size_t)to);
    }
    return true;
}
