/* Gathers, encodes and stores chunks: see loop.h. */
#include "loop.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Frames of larger chunks are written to their file while they are made. */
enum { MIN_STREAMED = 1 << 20 };

/* What is written of a chunk. */
typedef struct {
    int64_t coords[MAX_NDIM];
    Copy copy;   /* from the value, at copy.dst, into the chunk, from byte copy.src_start on */
    bool covers; /* all of the chunk: what reaches beyond the array may hold what others have appended since */
    bool ends;   /* all of it that lies within the array; fill values are to be beyond */
    int64_t first, last; /* points; instead of the copy */
} Piece;

/* -- gathering ------------------------------------------------------------------------------------------------- */

bool plan_gather(const Call *call, const Span *spans, Copy *copy) {
    const Job *job = call->job;
    Copy found = {.run = element_size(call), .src_start = call->element.start, .dst = (char *)(intptr_t)job->out};
    for (int64_t a = job->ndim - 1; a >= 0; a--)
        if (!add_axis(call, spans + a, (int)a, &found)) return false;
    *copy = (Copy){.n = found.n, .run = found.run, .src_start = found.src_start, .dst = found.dst};
    for (int i = 0; i < found.n; i++) { /* the other way round: from the array to the chunk */
        const Axis *axis = &found.axis[i];
        copy->axis[i] = (Axis){.n = axis->n, .src = axis->dst, .dst = axis->src, .in = axis->out, .out = axis->in};
    }
    return true;
}

/* What is written of the chunk of some points. False if they leave the chunk or the value. */
static bool plan_points(const Call *call, int64_t row, Piece *piece) {
    int64_t end;
    *piece = (Piece){.covers = false};
    memcpy(piece->coords, call->coords + row * call->job->ndim, (size_t)call->job->ndim * sizeof(int64_t));
    return find_points(call, row, &piece->first, &piece->last, &end);
}

/* Find out what is written of a chunk. False if it leaves the chunk or the value. */
static bool plan_piece(const Call *call, const Encoder *encoder, int64_t number, Piece *piece) {
    const Job *job = call->job;
    const Span *spans = call->spans + number * job->ndim;
    if (job->npoints >= 0) return plan_points(call, number, piece);
    piece->covers = !call->element.size;
    piece->ends = !encoder->keeps_beyond && !call->element.size;
    for (int64_t a = job->ndim - 1; a >= 0; a--) {
        const int64_t length = job->chunk_shape[a];
        piece->coords[a] = spans[a].chunk;
        if (spans[a].chunk < 0 || spans[a].chunk > encoder->extent[a] / length) return false;
        piece->covers = piece->covers && spans[a].full && encoder->extent[a] - spans[a].chunk * length >= length;
        piece->ends = piece->ends && spans[a].full;
    }
    return plan_gather(call, spans, &piece->copy);
}

/* Whether all elements of a chunk are the fill value, bit for bit. */
static bool is_empty(const Call *call, const char *chunk) {
    const size_t size = (size_t)call->job->itemsize, nbytes = (size_t)call->job->nbytes;
    /* Most chunks differ in their first element, or in their last: no need to read the rest. */
    if (memcmp(chunk, call->fill, size) || memcmp(chunk + nbytes - size, call->fill, size)) return false;
    return !memcmp(chunk + size, chunk, nbytes - size);
}

static void fill_chunk(const Call *call, char *to) {
    const int64_t nbytes = call->job->nbytes;
    memcpy(to, call->fill, (size_t)call->job->itemsize); /* one element, then what there is again and again */
    for (int64_t done = call->job->itemsize; done < nbytes;) {
        const int64_t more = nbytes - done < done ? nbytes - done : done;
        memcpy(to + done, to, (size_t)more);
        done += more;
    }
}

/* A chunk as it is to be encoded: in the value itself if it lies there as it should, else in `to`. NULL if what is
 * there already cannot be read. */
static const char *gather(const Call *call, const Piece *piece, char *to, State *state) {
    const Job *job = call->job;
    Copy copy = piece->copy;
    simplify(&copy, false);
    if (piece->covers && !copy.n && copy.run == job->nbytes) return copy.dst;
    Found old = ABSENT;
    if (!piece->covers && !piece->ends) {
        char *chunk = NULL;
        old = load_chunk(call, piece->coords, to, &state->reader, &chunk);
        if (old == ODD) return NULL;
        if (old == FOUND && chunk != to) memcpy(to, chunk, (size_t)job->nbytes);
    }
    if (old == ABSENT && !piece->covers) fill_chunk(call, to);
    if (job->npoints >= 0)
        scatter_points(call, piece->first, piece->last, to);
    else
        copy_axes(copy.axis, copy.n, to + copy.src_start, copy.dst, copy.run, copy.run);
    return to;
}

/* -- encoding -------------------------------------------------------------------------------------------------- */

/* Encode a chunk that lies in the value whole, and surely is not empty, while it is gathered. streamed:
 * whether it was written to the locked file, or left half written there. Returns: as `encode`; 0 also for what is to be gathered first. */
static int64_t encode_from_value(const Call *call, const Sink *sink, const Piece *piece, char *to, bool *streamed,
                                 State *state) {
    const Job *job = call->job;
    const Encoder *e = sink->encoder;
    Copy copy = {.n = piece->copy.n, .run = piece->copy.run, .src_start = piece->copy.src_start, .dst = piece->copy.dst};
    Box box;
    if (job->codec != BLOSC || !e->frame || !piece->covers) return 0;
    if (!e->keep_empty && !memcmp(copy.dst, call->fill, (size_t)job->itemsize)) return 0;
    for (int i = 0; i < copy.n; i++) {
        const Axis *axis = &piece->copy.axis[i];
        if (axis->in || axis->out) return 0;
        copy.axis[i] = (Axis){.n = axis->n, .src = axis->dst, .dst = axis->src};
    }
    if (!lay_out_box(&copy, &box)) return 0;
    if (sink->shard || job->checksum || job->nbytes < MIN_STREAMED || !lock_file(sink, state))
        return make_frame(job, e, NULL, &box, to, -1, state);
    const int64_t made = make_frame(job, e, NULL, &box, to, state->lock.fd, state);
    *streamed = made || ftruncate(state->lock.fd, 0);
    return made;
}

/* -- files ----------------------------------------------------------------------------------------------------- */

bool lock_file(const Sink *sink, State *state) {
    return state->lock.fd >= 0 || take_lock(state->path, sink->temporary, sink->temporary_length, &state->lock);
}

/* Write runs that lie apart: a copy less than gathering them. */
static bool write_runs(int fd, const Copy *copy) {
    const Axis *axis = &copy->axis[0];
    struct iovec runs[MAX_RUNS];
    for (int64_t i = 0; i < axis->n;) {
        int n = 0;
        for (; n < MAX_RUNS && i < axis->n; n++, i++)
            runs[n] = (struct iovec){.iov_base = copy->dst + i * axis->src, .iov_len = (size_t)copy->run};
        if (writev(fd, runs, n) != (ssize_t)(n * copy->run)) return false;
    }
    return true;
}

/* Let the file that was written under a lock take its place. */
bool publish(Sink *sink, State *state) {
    /* Before it is seen: it must differ from all files that had its inode. */
    uint64_t *at = lib.written + (uint64_t)state->lock.inode % lib.n_written;
    __atomic_store_n(at, sink->number++, __ATOMIC_RELAXED);
    return rename_lock(&state->lock);
}

/* Replace a chunk's file under its lock: whatever fails, the old one stays. runs: instead of data. */
bool replace_file(Sink *sink, const char *data, int64_t size, const Copy *runs, State *state) {
    if (!lock_file(sink, state)) return false;
    const int fd = state->lock.fd;
    return (runs ? write_runs(fd, runs) : write_exactly(fd, data, size)) && publish(sink, state);
}

/* Delete a chunk's file under its lock, if it is there. */
bool delete_file(const Sink *sink, State *state) {
    struct stat info;
    if (state->lock.fd < 0 && lstat(state->path, &info) && errno == ENOENT) return true;
    return lock_file(sink, state) && remove_locked(&state->lock);
}

/* -- shards ---------------------------------------------------------------------------------------------------- */

static void note_entry(Sink *sink, int64_t entry, int64_t size) {
    sink->index[2 * entry] = (uint64_t)sink->position;
    sink->index[2 * entry + 1] = (uint64_t)size;
    sink->position += size;
}

/* Bring bytes of the old shard behind the new ones. False if that cannot be. */
static bool copy_run(const Call *call, Sink *sink, const Reader *reader, uint64_t start, int64_t n) {
    char *to = sink->shard + sink->position;
    if (!call->bytes) return read_exactly(reader->fd, to, n, (int64_t)start);
    memcpy(to, call->bytes + start, (size_t)n);
    return true;
}

/* Copy the old chunks before an entry that are not copied yet, those that follow each other at once. False if one is not
 * in the old shard, or if there is no room. */
static bool copy_entries(const Call *call, Sink *sink, int64_t end, const Reader *reader) {
    const int64_t old_nbytes = call->bytes ? call->n_bytes : reader->shard_size;
    uint64_t start, from = 0;
    int64_t size, run = 0;
    for (; call->index && sink->next < end; sink->next++) {
        const Found found = look_up(call->index, sink->next, old_nbytes, &start, &size);
        if (found == ABSENT) continue;
        if (found == ODD || size > sink->capacity - sink->position - run) return false;
        if (start != from + (uint64_t)run) {
            if (!copy_run(call, sink, reader, from, run)) return false;
            sink->position += run, from = start, run = 0;
        }
        sink->index[2 * sink->next] = (uint64_t)(sink->position + run);
        sink->index[2 * sink->next + 1] = (uint64_t)size;
        run += size;
    }
    sink->next = end;
    if (!copy_run(call, sink, reader, from, run)) return false;
    sink->position += run;
    return true;
}

/* Come to the entry of a chunk that is written; parts come in the order of their entries. False if it cannot be
 * replaced. */
static bool reach_entry(const Call *call, Sink *sink, int64_t entry, const Reader *reader) {
    uint64_t start;
    int64_t size;
    if (entry < sink->next || entry >= call->n_index || !copy_entries(call, sink, entry, reader)) return false;
    sink->next++;
    return !call->index || look_up(call->index, entry, call->bytes ? call->n_bytes : reader->shard_size, &start, &size) != ODD;
}

/* -- one part -------------------------------------------------------------------------------------------------- */

/* Where a part's chunk is to be encoded; NULL if there is no room. In a shard that is behind those before it. */
static char *room_for(const Job *job, const Sink *sink, State *state) {
    if (!sink->shard) return state->reader.encoded;
    return sink->capacity - sink->position >= job->max_encoded ? sink->shard + sink->position : NULL;
}

/* Whether a whole chunk that is stored as it is lies in the value as long runs, and surely is not empty. The piece's
 * copy is then simple. */
static bool lies_in_runs(const Call *call, const Encoder *encoder, Piece *piece) {
    Copy copy = piece->copy;
    simplify(&copy, false);
    if (copy.n != 1 || copy.axis[0].in || copy.axis[0].out || copy.run < MIN_FILE_RUN) return false;
    if (copy.axis[0].n * copy.run != call->job->nbytes || copy.axis[0].dst != copy.run) return false;
    if (!encoder->keep_empty && !memcmp(copy.dst, call->fill, (size_t)call->job->itemsize)) return false;
    piece->copy = copy;
    return true;
}

static int write_one(const Call *call, Sink *sink, int64_t part, Done *done, State *state) {
    const Job *job = call->job;
    const int64_t entry = call->entries ? call->entries[part] : part;
    Piece piece;
    if (!plan_piece(call, sink->encoder, part, &piece)) return LEFT;
    const bool found = call->items ||
                       (sink->shard ? reach_entry(call, sink, entry, &state->reader) : make_path(call, piece.coords, state->path));
    if (!found || (sink->shard && !call->items && !call->index && !piece.covers)) return LEFT;
    char *to = room_for(job, sink, state);
    if (!to) return LEFT;
    if (!sink->shard && !piece.covers && !lock_file(sink, state)) return LEFT;
    /* What is not compressed is gathered where it is to be; what is merged with old contents is not, as these are read
     * by the same memory. */
    const bool moves = job->swap || (job->codec == PLAIN && (job->checksum || sink->shard));
    if (job->codec == PLAIN && !moves && !job->n_filters && piece.covers && lies_in_runs(call, sink->encoder, &piece)) {
        if (!replace_file(sink, NULL, 0, &piece.copy, state)) return LEFT;
        done->taken += (uint64_t)job->nbytes;
        done->placed += (uint64_t)job->nbytes;
        return DONE;
    }
    const char *data = to;
    Job stored;
    bool streamed = false;
    int64_t size = job->n_filters ? 0 : encode_from_value(call, sink, &piece, to, &streamed, state);
    if (streamed) {
        if (!size || !publish(sink, state)) return LEFT;
        done->taken += (uint64_t)job->nbytes;
        done->placed += (uint64_t)size;
        return DONE;
    }
    if (!size) {
        const bool plain = job->codec == PLAIN && piece.covers;
        char *where = plain ? to : state->reader.decoded;
        data = gather(call, &piece, where, state);
        if (!data) return LEFT;
        if (!sink->encoder->keep_empty && is_empty(call, data))
            return sink->shard || delete_file(sink, state) ? EMPTY : LEFT;
        if (job->codec == PLAIN && moves && where != to) where = to;
        if (data != where && moves) data = memcpy(where, data, (size_t)job->nbytes);
        if (job->swap) swap_bytes(where, job->nbytes, job->swap);
        if (job->n_filters) {
            if (!(data = filter_chunk(job, data, &state->reader))) return LEFT;
            stored = job_of_stored(job), job = &stored;
            if (job->codec == PLAIN) data = memcpy(to, data, (size_t)job->nbytes);
        }
        size = job->nbytes;
        if (job->codec != PLAIN) {
            if (!(size = encode(job, sink->encoder, data, to, state))) return LEFT;
            data = to;
        }
    }
    if (job->checksum) {
        const uint32_t sum = checksum_of(job, data, size);
        memcpy(to + size, &sum, sizeof sum);
        size += CHECKSUM;
    }
    if (sink->shard) {
        note_entry(sink, entry, size);
    } else if (!replace_file(sink, data, size, NULL, state)) {
        return LEFT;
    }
    done->taken += (uint64_t)call->job->nbytes;
    done->placed += (uint64_t)size;
    return DONE;
}

Done write_chunks(const Call *call, Sink *sink, char *status, char *scratch, State *state) {
    Done done = {0};
    state->reader.encoded = scratch;
    state->reader.decoded = scratch + call->job->max_encoded;
    state->blocks = state->reader.decoded + call->job->nbytes;
    for (int64_t i = 0; i < call->n; i++) {
        state->reader.number = i;
        status[i] = (char)write_one(call, sink, i, &done, state);
        if (!sink->shard) end_lock(&state->lock);
        done.left += status[i] == LEFT;
    }
    if (sink->shard && call->n && sink->next < sink->until && !copy_entries(call, sink, sink->until, &state->reader)) {
        done.left += status[call->n - 1] != LEFT;
        status[call->n - 1] = LEFT;
    }
    return done;
}

void end_write(State *state) {
    close_reader(&state->reader);
    if (state->zstd) lib.ZSTD_freeCCtx(state->zstd);
    if (state->deflater) lib.libdeflate_free_compressor(state->deflater);
}

Done write_all(const Call *call, Sink *sink, char *status, char *scratch) {
    Folder folder;
    State state = {.reader.fd = -1, .lock = {.fd = -1, .folder = call->n > 1 ? &folder : NULL}};
    folder.fd = -1;
    const Done done = write_chunks(call, sink, status, scratch, &state);
    leave_folder(&folder);
    end_write(&state);
    return done;
}

int64_t write_room(const Job *job, const Encoder *encoder) {
    return job->max_encoded + job->nbytes + frame_room(encoder);
}
