/* Reads and writes tables of chunks: see gzarr/cpu/compiled/{read,write}.py. */
#include "module.h"

/* read(job, table, sources, items, path, fill, scratch, status): table: see `take_table`. sources: see `take_objects`;
 * None for chunks that are stored alone. items: what is stored of every chunk, or of every object, None for nothing; None
 * for files. Returns: (chunks left, bytes read, bytes placed). */
PyObject *loop_read(PyObject *module, PyObject *args) {
    enum { JOB, TABLE, OBJECTS = TABLE + TABLE_COLUMNS, PATH = OBJECTS + OBJECT_COLUMNS, FILL, SCRATCH, STATUS, N };
    Py_buffer b[N];
    PyObject *table, *sources, *given;
    Items items = {0};
    Objects objects = {0};
    Done done = {0};
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "y*OOOy*y*w*w*", &b[JOB], &table, &sources, &given, &b[PATH], &b[FILL], &b[SCRATCH],
                          &b[STATUS]))
        return NULL;
    const bool in_memory = given != Py_None, sharded = sources != Py_None;
    Job job = {0};
    const int64_t n = b[STATUS].len;
    bool sound = (!sharded || take_objects(sources, &b[OBJECTS], in_memory, &objects)) &&
                 (!in_memory || take_items(given, &items)) && take_job(&b[JOB], &job);
    Call call = {
        .job = &job,
        .items = sharded ? NULL : items.all,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
        .sharded = sharded,
        .fill = b[FILL].buf,
    };
    sound = sound && take_table(&call, table, &b[TABLE], n) && b[FILL].len == out_size(&call) &&
            b[SCRATCH].len >= job.max_encoded + job.nbytes;
    if (sharded) sound = sound && b[OBJECTS].len == 2 * n * WORD && objects_are_sound(&objects, n);
    if (in_memory) sound = sound && items.n == (sharded ? objects.n_objects : n);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        if (sharded)
            done = read_objects(&call, &objects, items.all, b[STATUS].buf, b[SCRATCH].buf);
        else
            done = read_all(&call, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    release_items(&items);
    release(b, N);
    return sound ? report(&done) : refuse();
}

enum { FILE_PATH, TEMPORARY, MADE, INDEX, OLD, OLD_INDEX, ENTRIES, N_HELD };

/* Where a write puts its chunks, and the memory that this is. */
typedef struct {
    Py_buffer held[N_HELD];
    Items items;
    uint64_t *entries; /* of chunks for a store */
} Destination;

/* Take (path, temporary, number): files. */
static bool take_files(PyObject *files, Destination *to, Call *call, Sink *sink) {
    Py_buffer *held = to->held;
    unsigned long long number;
    if (!PyArg_ParseTuple(files, "y*y*K", &held[FILE_PATH], &held[TEMPORARY], &number)) return false;
    call->path = held[FILE_PATH].buf, call->path_length = held[FILE_PATH].len;
    sink->temporary = held[TEMPORARY].buf, sink->temporary_length = held[TEMPORARY].len;
    sink->number = number;
    return true;
}

/* Take (made, index, position, next, until, old, old_index, entries): a shard that is put together in memory. old, old_index:
 * of the old shard, nothing and a blank one if there is none, None if it is covered whole. entries: as in Call. */
static bool take_shard(PyObject *shard, Destination *to, Call *call, Sink *sink) {
    Py_buffer *held = to->held;
    long long position, next, until;
    if (!PyArg_ParseTuple(shard, "w*w*LLLz*z*y*", &held[MADE], &held[INDEX], &position, &next, &until, &held[OLD],
                          &held[OLD_INDEX], &held[ENTRIES]))
        return false;
    call->sharded = true, call->entries = held[ENTRIES].buf;
    call->index = held[OLD_INDEX].buf, call->n_index = held[INDEX].len / (2 * WORD);
    call->bytes = held[OLD].buf, call->n_bytes = held[OLD].len, call->bytes_may_change = !held[OLD].readonly;
    sink->shard = held[MADE].buf, sink->capacity = held[MADE].len, sink->index = held[INDEX].buf;
    sink->position = position, sink->next = next, sink->until = until;
    return held[ENTRIES].len == call->n * WORD && !call->index == !call->bytes &&
           (!call->index || held[OLD_INDEX].len == held[INDEX].len) && position >= 0 && position <= held[MADE].len &&
           next >= 0 && until <= call->n_index;
}

/* Take (items, made): chunks that a store takes. items: for every chunk what is stored, None for nothing, or if it is
 * covered. */
static bool take_chunks(PyObject *chunks, Destination *to, Call *call, Sink *sink) {
    PyObject *objects;
    if (!PyArg_ParseTuple(chunks, "Ow*", &objects, &to->held[MADE]) || !take_items(objects, &to->items)) return false;
    to->entries = PyMem_Malloc((size_t)(2 * to->items.n + 1) * sizeof(uint64_t));
    if (!to->entries) return PyErr_NoMemory() != NULL;
    call->items = to->items.all;
    sink->shard = to->held[MADE].buf, sink->capacity = to->held[MADE].len, sink->index = to->entries;
    return to->items.n == call->n;
}

/* The chunks that a write has made for a store: bytes, None for those that it has not. */
static PyObject *list_made(const Sink *sink, const char *status, Py_ssize_t n) {
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        const uint64_t *entry = sink->index + 2 * i;
        PyObject *made = status[i] == DONE ? PyBytes_FromStringAndSize(sink->shard + entry[0], (Py_ssize_t)entry[1])
                                           : Py_NewRef(Py_None);
        if (!made || PyList_SetItem(list, i, made)) Py_CLEAR(list);
    }
    return list;
}

/* write(job, encoder, table, fill, files, shard, chunks, scratch, status). files, shard, chunks: see `take_files`,
 * `take_shard` and `take_chunks`; all but one are None. Returns: (chunks left, bytes gathered, bytes made), and of a shard
 * where it now ends, and its next entry, or the list of chunks. */
PyObject *loop_write(PyObject *module, PyObject *args) {
    enum { JOB, ENCODER, TABLE, FILL = TABLE + TABLE_COLUMNS, SCRATCH, STATUS, N };
    Py_buffer b[N];
    PyObject *table, *files, *shard, *chunks, *made = NULL;
    Done done = {0};
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "y*y*Oy*OOOw*w*", &b[JOB], &b[ENCODER], &table, &b[FILL], &files, &shard, &chunks,
                          &b[SCRATCH], &b[STATUS]))
        return NULL;
    Job job = {0};
    Encoder encoder = {0};
    Destination to = {0};
    Call call = {.job = &job, .fill = b[FILL].buf};
    Sink sink = {.encoder = &encoder};
    bool sound = take_job(&b[JOB], &job) && take_encoder(&b[ENCODER], &job, &encoder) && b[FILL].len == job.itemsize &&
                 b[SCRATCH].len >= write_room(&job, &encoder) && take_table(&call, table, &b[TABLE], b[STATUS].len) &&
                 !call.element.cast && !call.slots && !call.firsts;
    if (sound)
        sound = files != Py_None   ? take_files(files, &to, &call, &sink)
                : shard != Py_None ? take_shard(shard, &to, &call, &sink)
                                   : take_chunks(chunks, &to, &call, &sink);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = write_all(&call, &sink, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
        const unsigned long long taken = done.taken, placed = done.placed;
        if (to.entries) {
            PyObject *list = list_made(&sink, b[STATUS].buf, call.n);
            made = list ? Py_BuildValue("(LKKN)", (long long)done.left, taken, placed, list) : NULL;
        } else {
            made = Py_BuildValue("(LKKLL)", (long long)done.left, taken, placed, (long long)sink.position,
                                 (long long)sink.next);
        }
    }
    PyMem_Free(to.entries);
    release_items(&to.items);
    release(to.held, N_HELD);
    release(b, N);
    return sound ? made : refuse();
}
