/* Reads and writes chunks that are in memory: see gzarr/cpu/compiled/buffers.py. */
#include "module.h"

/* Whether every part has a span on each axis. */
static bool part_spans_are_sound(const Py_buffer *table, int64_t ndim, int64_t n, int64_t n_spans) {
    const int32_t *rows = table->buf;
    if (table->len != n * ndim * (Py_ssize_t)sizeof(int32_t)) return false;
    for (int64_t i = 0; i < n * ndim; i++)
        if (rows[i] < 0 || rows[i] >= n_spans) return false;
    return true;
}

/* read_buffers(job, window, table0, table1, table2, table3, items, index, fill, first, scratch, status). items: for every
 * part what is stored of its chunk, None for nothing; with an index, a shard alone. Of a box, table2 may say the row of
 * each part's span on every axis. */
PyObject *loop_read_buffers(PyObject *module, PyObject *args) {
    enum { JOB, WINDOW, TABLE, INDEX = TABLE + 4, FILL, SCRATCH, STATUS, N };
    Py_buffer b[N];
    PyObject *objects;
    long long first;
    Items items = {0};
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*Oz*y*Lw*w*", &b[JOB], &b[WINDOW], &b[TABLE], &b[TABLE + 1], &b[TABLE + 2],
                          &b[TABLE + 3], &objects, &b[INDEX], &b[FILL], &first, &b[SCRATCH], &b[STATUS]))
        return NULL;
    Job table = {0};
    Window window = {0};
    const Job *job = &table;
    const bool sharded = b[INDEX].buf != NULL;
    const int64_t n = b[STATUS].len;
    bool sound = take_items(objects, &items) && take_job(&b[JOB], &table) && take_window(&b[WINDOW], job, &window) &&
                 b[FILL].len == job->itemsize && b[SCRATCH].len >= job->max_encoded + job->nbytes &&
                 items.n == (sharded ? 1 : n) && (!sharded || items.all->bytes);
    Call call = {
        .job = job,
        .window = &window,
        .items = sharded ? NULL : items.all,
        .index = b[INDEX].buf,
        .n_index = b[INDEX].len / (2 * WORD),
        .sharded = sharded,
        .fill = b[FILL].buf,
    };
    if (sound && sharded)
        call.bytes = items.all->bytes, call.n_bytes = items.all->size, call.bytes_may_change = items.all->may_change;
    if (sound && job->npoints >= 0) {
        sound = take_points(&call, &b[TABLE], first, n);
    } else if (sound && b[TABLE + 2].len) {
        call.part_spans = b[TABLE + 2].buf, call.spans = b[TABLE].buf;
        call.lists = b[TABLE + 1].buf, call.n_lists = b[TABLE + 1].len / WORD;
        sound = !sharded && part_spans_are_sound(&b[TABLE + 2], job->ndim, n, b[TABLE].len / (Py_ssize_t)sizeof(Span));
    } else if (sound) {
        sound = take_box(&call, &b[TABLE], &b[TABLE + 1], first, n);
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = read_all(&call, first, n, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    release_items(&items);
    release(b, N);
    return sound ? report(&done) : refuse();
}

/* The chunks that a write has made: bytes, None for those that it has not. */
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

/* write_buffers(job, encoder, window, spans, lists, items, fill, first, scratch, status, slab). items: for every part what
 * is stored of its chunk, None for nothing, or if the part covers it. slab: memory for the chunks. Returns also the list
 * of what they are now. */
PyObject *loop_write_buffers(PyObject *module, PyObject *args) {
    enum { JOB, ENCODER, WINDOW, SPANS, LISTS, FILL, SCRATCH, STATUS, SLAB, N };
    Py_buffer b[N];
    PyObject *objects;
    long long first;
    Items items = {0};
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*Oy*Lw*w*w*", &b[JOB], &b[ENCODER], &b[WINDOW], &b[SPANS], &b[LISTS], &objects,
                          &b[FILL], &first, &b[SCRATCH], &b[STATUS], &b[SLAB]))
        return NULL;
    Job table = {0};
    Window window = {0};
    Encoder encoder = {0};
    const Job *job = &table;
    const int64_t n = b[STATUS].len;
    uint64_t *entries = PyMem_Malloc((size_t)(2 * n + 1) * sizeof(uint64_t));
    PyObject *made = NULL;
    if (!entries) PyErr_NoMemory();
    bool sound = entries && take_items(objects, &items) && take_job(&b[JOB], &table) && take_window(&b[WINDOW], job, &window) &&
                 job->npoints < 0 && take_encoder(&b[ENCODER], job, &encoder) && b[FILL].len == job->itemsize &&
                 b[SCRATCH].len >= write_room(job, &encoder) && items.n == n;
    Call call = {.job = job, .window = &window, .items = items.all, .fill = b[FILL].buf};
    Sink sink = {.encoder = &encoder, .shard = b[SLAB].buf, .index = entries, .capacity = b[SLAB].len};
    sound = sound && take_box(&call, &b[SPANS], &b[LISTS], first, n);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = write_all(&call, &sink, first, n, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
        made = list_made(&sink, b[STATUS].buf, n);
    }
    PyMem_Free(entries);
    release_items(&items);
    release(b, N);
    if (!sound) return refuse();
    if (!made) return NULL;
    return Py_BuildValue("(LKKN)", (long long)done.left, (unsigned long long)done.taken,
                         (unsigned long long)done.placed, made);
}
