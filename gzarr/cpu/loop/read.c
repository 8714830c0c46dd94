/* Reads the chunks of a call: see loop.h.
 *
 * Each chunk is decoded once and copied to every place that wants a part of it. A call takes chunks of many shards: each of
 * these is opened once, must be the version that its index belongs to, and must still be that, unchanged, when all its chunks
 * were read. So nobody has to look at its version before or afterwards.
 */
#include "loop.h"

#include <string.h>
#include <unistd.h>

/* -- one chunk ------------------------------------------------------------------------------------------------- */

/* What copy `f` takes, and where it goes. False if it leaves chunk or slot. */
static bool plan_copy(const Call *call, int64_t f, Copy *copy) {
    const int64_t ndim = call->job->ndim;
    copy->n = 0, copy->run = element_size(call), copy->src_start = call->element.start, copy->cast = call->element.cast;
    copy->dst = (char *)(intptr_t)call->job->out;
    if (call->slots) {
        const int64_t slot = call->slots[f];
        if (slot < 0 || slot / call->job->rows >= call->n_blocks) return false;
        const int64_t *block = call->blocks + 2 * (slot / call->job->rows);
        copy->dst = (char *)(intptr_t)block[0] + slot % call->job->rows * block[1];
    }
    for (int64_t a = 0; a < ndim; a++)
        if (!add_axis(call, call->spans + f * ndim + a, (int)a, copy)) return false;
    return true;
}

static bool fill_copies(const Call *call, int64_t first, int64_t last) {
    Copy copy;
    for (int64_t f = first; f < last; f++) {
        if (!plan_copy(call, f, &copy)) return false;
        copy.run = out_size(call);
        simplify(&copy, true);
        copy_axes(copy.axis, copy.n, copy.dst, call->fill, copy.run, out_size(call));
    }
    return true;
}

/* Decode a chunk that is there, and make its copies. */
static bool make_copies(const Call *call, const Stored *stored, int64_t first, int64_t last, Reader *reader) {
    const Job *job = call->job;
    Copy copy;
    if (!plan_copy(call, first, &copy)) return false;
    if (last - first == 1) return copy_stored(job, stored, &copy, reader);
    char *into = NULL, *chunk;
    if (!copy.cast) {
        simplify(&copy, false);
        if (!copy.n && copy.run == job->nbytes) into = copy.dst;
    }
    if (!load_stored(job, stored, into, (Extent){0, job->nbytes}, reader, &chunk)) return false;
    for (int64_t f = first; f < last; f++) {
        if (!plan_copy(call, f, &copy)) return false;
        const char *src = chunk + copy.src_start;
        if (copy.cast) {
            cast_box(&copy, src);
        } else if (copy.dst != src) {
            simplify(&copy, false);
            copy_axes(copy.axis, copy.n, copy.dst, src, copy.run, copy.run);
        }
    }
    return true;
}

static uint64_t nbytes_of(const Call *call, int64_t first, int64_t last) {
    const int64_t ndim = call->job->ndim;
    uint64_t nbytes = 0;
    for (int64_t f = first; f < last; f++) {
        uint64_t of_copy = (uint64_t)out_size(call);
        for (int64_t a = 0; a < ndim; a++) of_copy *= (uint64_t)call->spans[f * ndim + a].count;
        nbytes += of_copy;
    }
    return nbytes;
}

static int read_boxes(const Call *call, int64_t number, Reader *reader) {
    const int64_t first = call->firsts ? call->firsts[number] : number, ndim = call->job->ndim;
    const int64_t last = call->firsts ? call->firsts[number + 1] : number + 1;
    if (first < 0 || last < first || last > call->n_copies) return LEFT;
    if (first == last) return DONE;
    int64_t coords[MAX_NDIM];
    for (int64_t a = 0; a < ndim; a++) coords[a] = call->spans[first * ndim + a].chunk;
    reader->placed = nbytes_of(call, first, last);
    Stored stored;
    const Found found = find_stored(call, coords, reader, &stored);
    if (found == ODD) return LEFT;
    if (found == ABSENT) return fill_copies(call, first, last) ? DONE : LEFT;
    const bool copied = make_copies(call, &stored, first, last, reader);
    leave_stored(call, &stored);
    return copied ? DONE : LEFT;
}

static int read_chunk(const Call *call, int64_t number, Reader *reader, Done *done) {
    reader->taken = 0, reader->number = number;
    const int status = (call->job->npoints < 0 ? read_boxes : read_points)(call, number, reader);
    if (status == DONE)
        done->taken += reader->taken, done->placed += reader->placed;
    else
        done->left++;
    return status;
}

Done read_all(const Call *call, char *status, char *scratch) {
    Reader reader = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    if (call->version) reader.fd = open_regular(call->path, &reader.shard_size);
    bool sound = !call->version || (reader.fd >= 0 && is_version(call, reader.fd));
    for (int64_t i = 0; sound && i < call->n; i++) status[i] = (char)read_chunk(call, i, &reader, &done);
    if (!sound || (call->version && !is_version(call, reader.fd))) {
        memset(status, LEFT, (size_t)call->n);
        done = (Done){.left = call->n};
    }
    close_reader(&reader);
    return done;
}

/* -- shards ---------------------------------------------------------------------------------------------------- */

/* Read the chunks of one object. item: its bytes; NULL for a file. False if nothing of it counts. */
static bool read_object(Call *call, const int64_t *numbers, const int64_t *bounds, const char *path, const Item *item,
                        Reader *reader, char *status, Done *done) {
    const int64_t state = numbers[OBJECT_STATE];
    if (item) {
        call->bytes = item->bytes, call->n_bytes = item->size, call->bytes_may_change = item->may_change;
    } else {
        reader->fd = open_regular(path, &reader->shard_size);
    }
    call->version = state == OBJECT_CHECKED && !item ? numbers + OBJECT_VERSION : NULL;
    const bool is_open = reader->fd >= 0;
    bool sound = state >= OBJECT_UNCHECKED && state <= OBJECT_MISSING &&
                 (item || (is_open == (state != OBJECT_MISSING) && reader->fd >= -1 && (!is_open || is_version(call, reader->fd))));
    for (int64_t i = bounds[0]; sound && i < bounds[1]; i++) {
        status[i] = (char)read_chunk(call, i, reader, done);
        sound = status[i] == DONE;
    }
    if (is_open) {
        sound = sound && is_version(call, reader->fd);
        close(reader->fd);
    }
    reader->fd = -1;
    return sound;
}

Done read_objects(Call *call, const Objects *objects, const Item *items, char *status, char *scratch) {
    Reader reader = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    const char *path = objects->paths;
    call->index = objects->places, call->n_index = call->n;
    for (int64_t i = 0; i < objects->n_objects; i++, path += items ? 0 : strlen(path) + 1) {
        const int64_t *bounds = objects->bounds + i;
        Done of_object = {0};
        if (read_object(call, objects->numbers + i * OBJECT_NUMBERS, bounds, path, items ? items + i : NULL, &reader, status,
                        &of_object)) {
            done.taken += of_object.taken, done.placed += of_object.placed;
            continue;
        }
        memset(status + bounds[0], LEFT, (size_t)(bounds[1] - bounds[0]));
        done.left += bounds[1] - bounds[0];
    }
    close_reader(&reader);
    return done;
}

/* Whether objects, of so many chunks, have some of them each. */
bool objects_are_sound(const Objects *objects, int64_t n) {
    for (int64_t i = 0; i < objects->n_objects; i++)
        if (objects->bounds[i] >= objects->bounds[i + 1]) return false;
    return objects->bounds[0] == 0 && objects->bounds[objects->n_objects] == n;
}
