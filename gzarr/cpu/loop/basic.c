/* Reads and writes basic selections, integers and slices, from what stands between the brackets on: see loop.h.
 *
 * Theory of operation. For one chunk, what Python does besides the loop takes longer than the loop: it normalizes the
 * selection, cuts it along the chunks and makes tables. A `Basic` knows all of an array that these need, and does the
 * same for selections of a few chunks, which must be in one shard if there are shards. Whatever it does not know is left:
 * it then returns None, or LEFT, and Python begins again.
 *
 * Rules: nothing of a `Basic` changes once it is made, so threads may share it.
 */
#include "basic.h"

#include <string.h>

/* What is returned for what is left. Of what was raised, Python will say it again, but not an interrupt, or what a store
 * has raised, which may not fail twice. */
static PyObject *leave(bool by_store) {
    if (!by_store && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static Call make_call(const Basic *basic, const Job *job, const Copies *copies) {
    return (Call){
        .job = job,
        .n = copies->n,
        .spans = copies->spans,
        .n_copies = copies->n,
        .entries = basic->find ? copies->entries : NULL,
        .path = PyBytes_AsString(basic->path),
        .path_length = PyBytes_Size(basic->path),
        .fill = PyBytes_AsString(basic->fill),
    };
}

/* -- reading --------------------------------------------------------------------------------------------------- */

static PyObject *tuple_of(const Basic *basic, const int64_t *coords) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)basic->job.ndim);
    for (int64_t a = 0; tuple && a < basic->job.ndim; a++) {
        PyObject *coordinate = PyLong_FromLongLong(coords[a]);
        if (!coordinate || PyTuple_SetItem(tuple, (Py_ssize_t)a, coordinate)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* The shard that holds all parts. */
typedef struct {
    PyObject *found;
    Py_buffer index;
    char path[MAX_PATH];
} Shard;

/* Find the shard and let a call read it. False if it is not one, or if it is not known. */
static bool find_shard(const Basic *basic, Call *call, Copies *copies, Shard *shard) {
    int64_t coords[MAX_NDIM];
    PyObject *key = find_object(basic, copies, coords) ? tuple_of(basic, coords) : NULL;
    if (!key) return false;
    shard->found = PyObject_CallFunctionObjArgs(basic->find, key, NULL);
    Py_DECREF(key);
    if (!shard->found || shard->found == Py_None) return false;
    PyObject *index = PyTuple_GetItem(shard->found, 0), *version = PyTuple_GetItem(shard->found, 1);
    if (!index || !version || PyObject_GetBuffer(index, &shard->index, PyBUF_SIMPLE)) return false;
    call->version = (const int64_t *)PyBytes_AsString(version);
    call->index = shard->index.buf;
    call->n_index = shard->index.len / (2 * WORD);
    call->sharded = true;
    if (!call->version || PyBytes_Size(version) != 5 * WORD) return false;
    const bool has_path = PyTuple_Size(shard->found) == 3; /* which does not come from its coordinates */
    if (!has_path && !make_path(call, coords, shard->path)) return false;
    call->path = has_path ? PyBytes_AsString(PyTuple_GetItem(shard->found, 2)) : shard->path;
    return call->path != NULL;
}

/* Chunks that a store has given. */
typedef struct {
    Py_buffer *buffers;
    Py_ssize_t n;
    bool failed; /* the store */
    Item items[MAX_PARTS];
} Chunks;

/* Fetch all chunks and let a call read them. False if that fails. */
static bool fetch_chunks(const Basic *basic, Call *call, Chunks *chunks) {
    const int n = (int)call->n;
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        int64_t at[MAX_NDIM];
        for (int64_t a = 0; a < basic->job.ndim; a++) at[a] = call->spans[i * basic->job.ndim + a].chunk;
        PyObject *coords = tuple_of(basic, at);
        if (!coords || PyList_SetItem(list, i, coords)) Py_CLEAR(list);
    }
    PyObject *found = list ? PyObject_CallFunctionObjArgs(basic->fetch, list, NULL) : NULL;
    chunks->failed = !found;
    chunks->buffers = found ? take_all(found, &chunks->n) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(found);
    if (!chunks->buffers || chunks->n != n) return false;
    for (int i = 0; i < n; i++) chunks->items[i] = item_of(&chunks->buffers[i]);
    call->items = chunks->items;
    return true;
}

/* Read the chunks into the result of a job. False if that cannot be. by_store: becomes whether a store has failed. */
static bool read_chunks(const Basic *basic, const Job *job, Copies *copies, bool *by_store) {
    Call call = make_call(basic, job, copies);
    Shard shard = {0};
    Chunks chunks = {0};
    char status[MAX_PARTS];
    Done done = {.left = copies->n};
    const bool found = (!basic->find || find_shard(basic, &call, copies, &shard)) &&
                       (!basic->fetch || fetch_chunks(basic, &call, &chunks));
    Scratch *scratch = found ? take_scratch((size_t)(job->nbytes + job->max_encoded)) : NULL;
    if (scratch) {
        Py_BEGIN_ALLOW_THREADS
        done = read_all(&call, status, scratch->bytes);
        Py_END_ALLOW_THREADS
        give_scratch_back(scratch);
    }
    if (shard.index.obj) PyBuffer_Release(&shard.index);
    Py_XDECREF(shard.found);
    if (chunks.buffers) release_all(chunks.buffers, chunks.n);
    *by_store = chunks.failed;
    return !done.left;
}

/* read(key, dtype, out): the result, a new array or scalar if `out` is None; None if that is left. */
static PyObject *basic_read(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    const Basic *basic = (const Basic *)self;
    Wanted wanted[MAX_NDIM];
    Copies copies;
    Py_buffer memory;
    if (n_args < 2 || n_args > 3) return refuse();
    PyObject *out = n_args == 3 ? args[2] : Py_None;
    if (!(out == Py_None ? args[1] == basic->dtype : has_dtype(basic, out))) return leave(false);
    if (!take_key(basic, args[0], wanted)) return leave(false);
    if (!cut(basic, wanted, MAX_PARTS, &copies)) return leave(false);
    PyObject *result = out == Py_None ? make_result(basic, wanted) : Py_NewRef(out);
    if (!result) return NULL;
    Job job = basic->job;
    bool by_store = false, is_read = !PyObject_GetBuffer(result, &memory, PyBUF_STRIDED);
    if (is_read) {
        is_read = take_array(&job, &memory, wanted, false) && read_chunks(basic, &job, &copies, &by_store);
        PyBuffer_Release(&memory);
    }
    if (is_read) return out == Py_None ? finish(basic, result, wanted) : result;
    Py_DECREF(result);
    return leave(by_store);
}

/* -- writing --------------------------------------------------------------------------------------------------- */

/* Cut what a write of a selection has, all in one object. False if it may not be written here. */
static bool cut_write(const Basic *basic, PyObject *key, Wanted *wanted, Copies *copies, int64_t *coords) {
    return basic->writes && take_key(basic, key, wanted) && cut(basic, wanted, basic->find ? MAX_PARTS : 1, copies) &&
           find_object(basic, copies, coords);
}

/* locate(key): coordinates of the only object that a selection touches; None if it may not be written here. */
static PyObject *basic_locate(PyObject *self, PyObject *key) {
    const Basic *basic = (const Basic *)self;
    Wanted wanted[MAX_NDIM];
    Copies copies;
    int64_t coords[MAX_NDIM];
    return cut_write(basic, key, wanted, &copies, coords) ? tuple_of(basic, coords) : leave(false);
}

static PyObject *left(void) {
    PyObject *none = leave(false);
    Py_XDECREF(none);
    return none ? PyLong_FromLong(LEFT) : NULL;
}

static bool is_at(const Basic *basic, const int64_t *coords, PyObject *given) {
    bool same = PyTuple_CheckExact(given) && PyTuple_Size(given) == basic->job.ndim;
    for (int64_t a = 0; same && a < basic->job.ndim; a++)
        same = PyLong_AsLongLong(PyTuple_GetItem(given, (Py_ssize_t)a)) == coords[a];
    return same;
}

/* Whether the only part covers its chunk. */
static bool covers_chunk(const Call *call) {
    for (int64_t a = 0; a < call->job->ndim; a++)
        if (call->spans[a].count != call->job->chunk_shape[a]) return false;
    return true;
}

/* Encode the chunk that a store is to have. Returns: it, EMPTY or LEFT. */
static PyObject *encode_chunk(const Basic *basic, Call *call, Sink *sink) {
    Chunks chunks = {0};
    uint64_t entry[2];
    char status = LEFT;
    PyObject *made = NULL;
    call->items = chunks.items;
    const bool found = covers_chunk(call) || fetch_chunks(basic, call, &chunks);
    const int64_t room = write_room(call->job, sink->encoder);
    Scratch *scratch = found ? take_scratch((size_t)(room + call->job->max_encoded)) : NULL;
    if (scratch) {
        sink->shard = scratch->bytes + room, sink->capacity = call->job->max_encoded, sink->index = entry;
        Py_BEGIN_ALLOW_THREADS
        write_all(call, sink, &status, scratch->bytes);
        Py_END_ALLOW_THREADS
        if (status == DONE) made = PyBytes_FromStringAndSize(sink->shard + entry[0], (Py_ssize_t)entry[1]);
        give_scratch_back(scratch);
    }
    if (chunks.buffers) release_all(chunks.buffers, chunks.n);
    if (chunks.failed || status == DONE) return made;
    return status == LEFT ? left() : PyLong_FromLong(status);
}

/* Write chunks of the object with some coordinates. Returns: what became of it. */
static int write_object(const Basic *basic, Call *call, Sink *sink, const int64_t *coords) {
    char status[MAX_PARTS] = {LEFT}, path[MAX_PATH];
    if (basic->find) {
        if (!make_path(call, coords, path)) return LEFT;
        call->path = path;
        return write_shard(call, sink, &basic->format, status);
    }
    Scratch *scratch = take_scratch((size_t)write_room(call->job, sink->encoder));
    if (!scratch) return LEFT;
    write_all(call, sink, status, scratch->bytes);
    give_scratch_back(scratch);
    return status[0];
}

/* write(coords, key, value, keep_empty): DONE, LEFT or EMPTY; instead of DONE the chunk, if a store is to take it. The
 * caller holds the lock of the object, whose coordinates `locate` gave: what stands in the key may say something else by
 * now. */
static PyObject *basic_write(PyObject *self, PyObject *args) {
    const Basic *basic = (const Basic *)self;
    PyObject *given, *key, *array, *made = NULL;
    int keep_empty, status = LEFT;
    Wanted wanted[MAX_NDIM];
    Copies copies;
    int64_t coords[MAX_NDIM];
    Py_buffer value;
    if (!PyArg_ParseTuple(args, "OOOp", &given, &key, &array, &keep_empty)) return NULL;
    if (!has_dtype(basic, array) || !cut_write(basic, key, wanted, &copies, coords) || !is_at(basic, coords, given))
        return left();
    PyObject *number = basic->fetch ? NULL : PyObject_CallNoArgs(basic->number);
    Sink sink = {
        .temporary = PyBytes_AsString(basic->temporary),
        .temporary_length = PyBytes_Size(basic->temporary),
        .number = number ? PyLong_AsUnsignedLongLong(number) : 0,
    };
    Py_XDECREF(number);
    if (PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(array, &value, PyBUF_STRIDES)) return left();
    Job job = basic->job;
    Encoder encoder = basic->encoder;
    encoder.keep_empty |= keep_empty;
    sink.encoder = &encoder;
    const bool fits = take_array(&job, &value, wanted, true);
    Call call = make_call(basic, &job, &copies);
    if (fits && basic->fetch) {
        made = encode_chunk(basic, &call, &sink);
    } else {
        if (fits) {
            Py_BEGIN_ALLOW_THREADS
            status = write_object(basic, &call, &sink, coords);
            Py_END_ALLOW_THREADS
        }
        made = PyLong_FromLong(status);
    }
    PyBuffer_Release(&value);
    return made;
}

/* -- the type -------------------------------------------------------------------------------------------------- */

enum { N_HELD = 10 };

/* The objects of Python that are held, by numbers. */
static PyObject *held(const Basic *basic, int number) {
    PyObject *const all[N_HELD] = {basic->dtype, basic->empty,     basic->stored_as, basic->index, basic->path,
                                   basic->fill,  basic->temporary, basic->number,    basic->find,  basic->fetch};
    return all[number];
}

/* What `fetch` calls may lead back to the array: a mapping that holds it, say. Such a circle is broken elsewhere. */
static int basic_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < N_HELD; i++) Py_VISIT(held((const Basic *)self, i));
    return 0;
}

static void basic_dealloc(PyObject *self) {
    Basic *basic = (Basic *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int i = 0; i < N_HELD; i++) Py_XDECREF(held(basic, i));
    freefunc release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(self);
    Py_DECREF(type);
}

static bool basic_is_sound(const Basic *basic) {
    for (int64_t a = 0; a < basic->job.ndim; a++)
        if (basic->extent[a] < 0 || basic->extent[a] > (INT64_C(1) << 62) || basic->counts[a] < 1) return false;
    return basic->job.npoints == -1 && PyBytes_Size(basic->fill) == basic->job.itemsize;
}

/* The entries of a shard, 0 if they are too many. */
static int64_t count_entries(const Basic *basic) {
    int64_t entries = 1;
    for (int64_t a = 0; a < basic->job.ndim; a++) {
        if (basic->counts[a] > MAX_SPARE_NBYTES / entries) return 0;
        entries *= basic->counts[a];
    }
    return entries;
}

/* Take what writes files need: (encoder, temporary, number, checksum, at_start), of which the last are about indexes of
 * shards. */
static bool take_target(Basic *basic, PyObject *target) {
    Py_buffer encoder;
    PyObject *temporary, *number;
    int checksum, at_start;
    if (!PyArg_ParseTuple(target, "y*SOpp", &encoder, &temporary, &number, &checksum, &at_start)) return false;
    basic->format = (IndexFormat){count_entries(basic), checksum, at_start};
    basic->writes = take_encoder(&encoder, &basic->job, &basic->encoder) && basic->format.entries &&
                    (!checksum || lib.crc32c_value);
    PyBuffer_Release(&encoder);
    basic->temporary = Py_NewRef(temporary), basic->number = Py_NewRef(number);
    return basic->writes;
}

/* Take what reads of shards need: (find, steps). */
static bool take_shards(Basic *basic, PyObject *shards) {
    Py_buffer steps;
    PyObject *find;
    if (!PyArg_ParseTuple(shards, "Oy*", &find, &steps)) return false;
    const bool sound = unpack(&steps, basic->job.ndim, 0, 1, 0, basic->steps);
    PyBuffer_Release(&steps);
    basic->find = Py_NewRef(find);
    return sound;
}

/* Basic(job, extents, counts, path, fill, arrays, target, shards, fetch). arrays: (dtype, empty, stored_as,
 * index). target: None if nothing is written. shards: None if there are none. fetch: None if chunks are files. */
static PyObject *basic_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    enum { JOB, EXTENTS, COUNTS, N };
    Py_buffer b[N];
    PyObject *path, *fill, *target, *shards, *fetch, *dtype, *empty, *stored_as, *index;
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "y*y*y*SS(OOOO)OOO", &b[JOB], &b[EXTENTS], &b[COUNTS], &path, &fill, &dtype, &empty,
                          &stored_as, &index, &target, &shards, &fetch))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Basic *basic = (Basic *)allocate(type, 0);
    bool sound = basic && take_job(&b[JOB], &basic->job) &&
                 unpack(&b[EXTENTS], basic->job.ndim, 0, 1, 0, basic->extent) &&
                 unpack(&b[COUNTS], basic->job.ndim, 0, 1, 0, basic->counts);
    if (basic) {
        basic->dtype = Py_NewRef(dtype), basic->empty = Py_NewRef(empty), basic->stored_as = Py_NewRef(stored_as);
        basic->index = Py_NewRef(index), basic->path = Py_NewRef(path), basic->fill = Py_NewRef(fill);
        if (fetch != Py_None) basic->fetch = Py_NewRef(fetch);
        sound = sound && basic_is_sound(basic) && (target == Py_None || take_target(basic, target)) &&
                (shards == Py_None || take_shards(basic, shards));
    }
    release(b, N);
    if (sound) return (PyObject *)basic;
    Py_XDECREF((PyObject *)basic);
    return refuse();
}

static PyMethodDef methods[] = {
    {"read", (PyCFunction)(void (*)(void))basic_read, METH_FASTCALL, "Read a selection. Returns None if that is left."},
    {"locate", basic_locate, METH_O, "Return the coordinates of the only chunk that a selection touches, or None."},
    {"write", basic_write, METH_VARARGS, "Write a selection of one chunk. Returns what became of it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"Reads and writes basic selections of few chunks of an array."},
    {Py_tp_new, (void *)basic_new},
    {Py_tp_dealloc, (void *)basic_dealloc},
    {Py_tp_traverse, (void *)basic_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "gzarr.cpu._loop.Basic",
    .basicsize = sizeof(Basic),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

bool add_basic(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    const bool added = type && !PyModule_AddObjectRef(module, "Basic", type);
    Py_XDECREF(type);
    return added;
}
