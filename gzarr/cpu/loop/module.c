/* What Python calls: see loop.h. */
#include "module.h"

#include <string.h>

struct Library lib;

/* Counts what Python and the loop agree on: arguments, tables, results. */
enum { VERSION = 26 };

bool unpack(const Py_buffer *table, int64_t ndim, int head, int rows, Py_ssize_t more, int64_t *to) {
    if (ndim < 1 || ndim > MAX_NDIM || table->len != (head + rows * ndim) * WORD + more) return false;
    const int64_t *from = table->buf;
    memcpy(to, from, (size_t)(head * WORD));
    for (int row = 0; row < rows; row++)
        memcpy(to + head + row * MAX_NDIM, from + head + row * ndim, (size_t)(ndim * WORD));
    return true;
}

/* Whether every offset that the chunk's strides make lies in the chunk, and sizes are such that nothing overflows. */
static bool job_is_sound(const Job *job) {
    if (job->itemsize < 1 || job->nbytes < 1 || job->nbytes > INT32_MAX / 2)
        return false;
    int64_t last = job->itemsize;
    for (int64_t a = 0; a < job->ndim; a++) {
        if (job->chunk_shape[a] < 1 || job->chunk_shape[a] > job->nbytes) return false;
        if (job->chunk_stride[a] < 0 || job->chunk_stride[a] > job->nbytes) return false;
        last += (job->chunk_shape[a] - 1) * job->chunk_stride[a];
        if (last > job->nbytes) return false;
    }
    return job->max_encoded >= job->nbytes + CHECKSUM && job->max_encoded <= INT32_MAX && job->swap >= 0 &&
           job->swap <= job->itemsize;
}

static bool box_is_sound(const Call *call, int64_t n_spans, int64_t first, int64_t n) {
    int64_t parts = 1;
    for (int64_t a = 0; a < call->job->ndim; a++) {
        const int64_t from = call->window->first[a], count = call->window->n[a];
        if (from < 0 || count < 1 || count > n_spans || from > n_spans - count) return false;
        if (parts > INT64_MAX / count) return false;
        parts *= count;
    }
    return first >= 0 && first <= parts && n <= parts - first;
}

static bool encoder_is_sound(const Encoder *encoder, const Job *job) {
    for (int64_t a = 0; a < job->ndim; a++)
        if (encoder->extent[a] < 0) return false;
    return memchr(encoder->cname, 0, MAX_CNAME) && encoder->level >= INT32_MIN && encoder->level <= INT32_MAX &&
           encoder->shuffle >= 0 && encoder->shuffle <= 2 && encoder->typesize >= 1 && encoder->typesize <= 255 &&
           encoder->blocksize >= 0 && encoder->blocksize <= INT32_MAX && encoder->frame_checksum >= 0 &&
           encoder->frame_checksum <= 1 && job->max_encoded - job->nbytes >= 64 && has_encoder(job) && frames_are_sound(job, encoder);
}

static bool shard_is_sound(const Py_buffer *shard, const Py_buffer *index, int64_t position, int64_t next,
                           int64_t until) {
    return index->buf && position >= 0 && position <= shard->len && next >= 0 && until <= index->len / (2 * WORD);
}

bool take_job(const Py_buffer *table, Job *job) {
    if (table->len < WORD) return false;
    const int64_t ndim = *(const int64_t *)table->buf;
    if (ndim < 1 || ndim > MAX_NDIM) return false;
    const Py_ssize_t filters = table->len - (10 + 4 * ndim) * WORD;
    return filters >= 0 && filters % FILTER_NBYTES == 0 && unpack(table, ndim, 10, 4, filters, (int64_t *)job) &&
           job_is_sound(job) && has_decoder(job) &&
           take_filters(job, (const char *)table->buf + table->len - filters, filters / FILTER_NBYTES);
}

bool take_window(const Py_buffer *table, const Job *job, Window *window) {
    return unpack(table, job->ndim, 0, 4, 0, (int64_t *)window);
}

bool take_encoder(const Py_buffer *table, const Job *job, Encoder *encoder) {
    if (!unpack(table, job->ndim, 9, 1, MAX_CNAME, (int64_t *)encoder)) return false;
    memcpy(encoder->cname, (const char *)table->buf + table->len - MAX_CNAME, MAX_CNAME);
    return encoder_is_sound(encoder, job);
}

/* Take what is wanted of every element: where it begins, its bytes, those in the result, types of a cast or -1 and -1; all of
 * it without a table. False if they do not fit each other. */
static bool take_element(const Py_buffer *table, const Job *job, Element *element) {
    const int64_t *numbers = table->buf;
    *element = (Element){0};
    if (!numbers) return true;
    if (table->len != 5 * WORD) return false;
    element->start = numbers[0], element->size = numbers[1], element->out_size = numbers[2];
    return element->start >= 0 && element->size >= 1 && element->size <= job->itemsize &&
           element->start <= job->itemsize - element->size && element->out_size >= 1 && element->out_size <= INT32_MAX &&
           find_cast(numbers[3], numbers[4], element->size, element->out_size, &element->cast);
}

/* Give a call the tables of a box. False if they do not fit each other. */
bool take_box(Call *call, const Py_buffer *spans, const Py_buffer *lists, int64_t first, int64_t n) {
    call->spans = spans->buf;
    call->lists = lists->buf;
    call->n_lists = lists->len / WORD;
    return box_is_sound(call, spans->len / (Py_ssize_t)sizeof(Span), first, n);
}

bool take_points(Call *call, const Py_buffer *table, int64_t first, int64_t n) {
    const Job *job = call->job;
    call->rows = table[0].buf;
    call->starts = table[1].buf;
    call->places = table[2].buf;
    call->order = table[3].buf;
    const int64_t n_rows = table[0].len / (WORD * job->ndim);
    return table[1].len == (n_rows + 1) * WORD && table[3].len == job->npoints * WORD &&
           table[2].len == table[3].len && first >= 0 && first <= n_rows && n <= n_rows - first;
}

PyObject *refuse(void) {
    PyErr_SetString(PyExc_ValueError, "the tables of a read or write do not fit each other");
    return NULL;
}

void release(Py_buffer *buffers, int n) {
    for (int i = 0; i < n; i++)
        if (buffers[i].obj) PyBuffer_Release(&buffers[i]);
}

/* read(job, window, table0, table1, table2, table3, path, index, fill, first, scratch, version, written, element,
 * status). version: of the shard, five numbers; None for any. element: see `take_element`. */
static PyObject *loop_read(PyObject *module, PyObject *args) {
    enum { JOB, WINDOW, TABLE, PATH = TABLE + 4, INDEX, FILL, SCRATCH, EXPECTED, WRITTEN, ELEMENT, STATUS, N };
    Py_buffer b[N];
    long long first;
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*z*y*Lw*z*y*z*w*", &b[JOB], &b[WINDOW], &b[TABLE], &b[TABLE + 1],
                          &b[TABLE + 2], &b[TABLE + 3], &b[PATH], &b[INDEX], &b[FILL], &first, &b[SCRATCH],
                          &b[EXPECTED], &b[WRITTEN], &b[ELEMENT], &b[STATUS]))
        return NULL;
    Job table = {0};
    Window window = {0};
    const Job *job = &table;
    bool sound = take_job(&b[JOB], &table) && take_window(&b[WINDOW], job, &window) &&
                 b[SCRATCH].len >= job->max_encoded + job->nbytes && b[WRITTEN].len >= WORD &&
                 (!b[EXPECTED].buf || b[EXPECTED].len == 5 * WORD);
    Call call = {
        .job = job,
        .window = &window,
        .version = b[EXPECTED].buf,
        .written = b[WRITTEN].buf,
        .n_written = b[WRITTEN].len / WORD,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
        .index = b[INDEX].buf && b[INDEX].len ? b[INDEX].buf : NULL,
        .n_index = b[INDEX].len / (2 * WORD),
        .sharded = b[INDEX].buf != NULL,
        .fill = b[FILL].buf,
    };
    sound = sound && take_element(&b[ELEMENT], job, &call.element) && b[FILL].len == out_size(&call);
    if (sound && job->npoints < 0)
        sound = take_box(&call, &b[TABLE], &b[TABLE + 1], first, b[STATUS].len);
    else if (sound)
        sound = take_points(&call, &b[TABLE], first, b[STATUS].len);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = read_all(&call, first, b[STATUS].len, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    return Py_BuildValue("(LKK)", (long long)done.left, (unsigned long long)done.taken,
                         (unsigned long long)done.placed);
}

/* read_copies(job, numbers, coords, firsts, inside, counts, place, slots, blocks, shards, written, path, fill, first,
 * scratch, items, status). numbers: rows of a block, itemsize there, types of a cast or -1 and -1. shards: None for chunks
 * that are stored alone. items: what is stored of every chunk, or of every shard, None for nothing; None for files. */
static PyObject *loop_read_copies(PyObject *module, PyObject *args) {
    enum { JOB, NUMBERS, COORDS, FIRSTS, INSIDE, COUNTS, PLACE, SLOTS, BLOCKS, SHARDS, WRITTEN, PATH, FILL, SCRATCH, STATUS, N };
    Py_buffer b[N], *buffers = NULL;
    PyObject *objects;
    Item *items = NULL;
    Py_ssize_t n_items = 0;
    long long first;
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*z*y*y*y*Lw*Ow*", &b[JOB], &b[NUMBERS], &b[COORDS], &b[FIRSTS],
                          &b[INSIDE], &b[COUNTS], &b[PLACE], &b[SLOTS], &b[BLOCKS], &b[SHARDS], &b[WRITTEN], &b[PATH],
                          &b[FILL], &first, &b[SCRATCH], &objects, &b[STATUS]))
        return NULL;
    const bool in_memory = objects != Py_None;
    if (in_memory) {
        buffers = take_all(objects, &n_items);
        items = buffers ? make_items(buffers, n_items) : NULL;
    }
    Job job = {0};
    const int64_t *numbers = b[NUMBERS].buf;
    bool sound = (items || !in_memory) && take_job(&b[JOB], &job) && job.npoints == -2 && b[NUMBERS].len == 4 * WORD &&
                 b[SCRATCH].len >= job.max_encoded + job.nbytes;
    const int64_t ndim = sound ? job.ndim : 1;
    Copies copies = {
        .coords = b[COORDS].buf,
        .firsts = b[FIRSTS].buf,
        .inside = b[INSIDE].buf,
        .counts = b[COUNTS].buf,
        .place = b[PLACE].buf,
        .slots = b[SLOTS].buf,
        .blocks = b[BLOCKS].buf,
        .n = b[COORDS].len / (WORD * ndim),
        .n_fragments = b[SLOTS].len / WORD,
        .n_blocks = b[BLOCKS].len / (2 * WORD),
        .rows = sound ? numbers[0] : 0,
        .itemsize = sound ? numbers[1] : 0,
    };
    const int64_t n = b[STATUS].len, columns = copies.n_fragments * ndim * WORD;
    sound = sound && find_cast(numbers[2], numbers[3], job.itemsize, copies.itemsize, &copies.cast) && copies.rows > 0 &&
            b[FILL].len == copies.itemsize && b[FIRSTS].len == (copies.n + 1) * WORD && b[INSIDE].len == columns &&
            b[COUNTS].len == columns && b[PLACE].len == columns && first >= 0 && first <= copies.n &&
            n <= copies.n - first && b[WRITTEN].len >= WORD;
    const Py_ssize_t width = (SHARD_COORDS + 3 * ndim) * WORD;
    const int64_t n_shards = b[SHARDS].len / width;
    if (sound && b[SHARDS].buf)
        sound = b[SHARDS].len == n_shards * width && shards_are_sound(b[SHARDS].buf, n_shards, ndim, n);
    if (in_memory) sound = sound && n_items == (b[SHARDS].buf ? n_shards : n);
    Call call = {
        .job = &job,
        .copies = &copies,
        .items = b[SHARDS].buf ? NULL : items,
        .written = b[WRITTEN].buf,
        .n_written = b[WRITTEN].len / WORD,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
        .sharded = b[SHARDS].buf != NULL,
        .fill = b[FILL].buf,
    };
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        if (call.sharded)
            done = read_shards(&call, first, b[SHARDS].buf, n_shards, items, b[STATUS].buf, b[SCRATCH].buf);
        else
            done = read_all(&call, first, n, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    const bool failed = in_memory && !items;
    PyMem_Free(items);
    if (buffers) release_all(buffers, n_items);
    release(b, N);
    if (failed) return buffers ? PyErr_NoMemory() : NULL;
    if (!sound) return refuse();
    return Py_BuildValue("(LKK)", (long long)done.left, (unsigned long long)done.taken,
                         (unsigned long long)done.placed);
}

static const char SORT[] = "gzarr.sort";

static void end_sort(PyObject *capsule) { free_sort(PyCapsule_GetPointer(capsule, SORT)); }

/* begin_sort(axes, n, n_blocks, granule_bits, start) */
static PyObject *loop_begin_sort(PyObject *module, PyObject *args) {
    Py_buffer axes;
    long long n, n_blocks, granule_bits, start;
    bool sound = false;
    if (!PyArg_ParseTuple(args, "y*LLLL", &axes, &n, &n_blocks, &granule_bits, &start)) return NULL;
    const int64_t numbers[] = {n, n_blocks, granule_bits, start}, ndim = axes.len / (Py_ssize_t)sizeof(PointAxis);
    Sort *sort = NULL;
    const bool fits = ndim >= 1 && ndim <= MAX_NDIM && axes.len == ndim * (Py_ssize_t)sizeof(PointAxis);
    if (fits) sort = new_sort(axes.buf, ndim, numbers, &sound);
    PyBuffer_Release(&axes);
    if (fits && !sort) return PyErr_NoMemory();
    PyObject *capsule = sound ? PyCapsule_New(sort, SORT, end_sort) : NULL;
    if (sort && !capsule) free_sort(sort);
    return sound ? capsule : refuse();
}

/* sort_points(sort, coords, order, places, starts, rows): a tuple of the coordinates of every axis. Threads may call it at
 * the same time. Returns: number of rows. */
static PyObject *loop_sort_points(PyObject *module, PyObject *args) {
    enum { ORDER, PLACES, STARTS, ROWS, COORDS, N = COORDS + MAX_NDIM };
    Py_buffer b[N];
    PyObject *capsule, *coords;
    int64_t n_rows = 0;
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "OO!w*w*w*w*", &capsule, &PyTuple_Type, &coords, &b[ORDER], &b[PLACES], &b[STARTS],
                          &b[ROWS]))
        return NULL;
    Sort *sort = PyCapsule_GetPointer(capsule, SORT);
    if (!sort) {
        release(b, N);
        return NULL;
    }
    Points points = {.order = b[ORDER].buf, .places = b[PLACES].buf, .starts = b[STARTS].buf, .rows = b[ROWS].buf};
    const int64_t ndim = axes_of_sort(sort), nbytes = points_of_sort(sort) * WORD;
    bool sound = PyTuple_Size(coords) == ndim && b[ORDER].len == nbytes && b[PLACES].len == nbytes &&
                 b[STARTS].len == nbytes + WORD && b[ROWS].len == ndim * nbytes;
    for (int64_t a = 0; sound && a < ndim; a++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(coords, a), &b[COORDS + a], PyBUF_SIMPLE)) {
            release(b, N);
            return NULL;
        }
        points.coords[a] = b[COORDS + a].buf;
        sound = b[COORDS + a].len == nbytes;
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        n_rows = sort_points(sort, &points);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound || n_rows == -2) return refuse();
    return PyLong_FromLongLong(n_rows);
}

/* take(pool, slots, out, elements, from_size, to_size, from, to): of each row so many elements; types of a cast or -1 and
 * -1. */
static PyObject *loop_take(PyObject *module, PyObject *args) {
    enum { POOL, SLOTS, OUT, N };
    Py_buffer b[N];
    long long elements, from_size, to_size, from, to;
    if (!PyArg_ParseTuple(args, "y*y*w*LLLLL", &b[POOL], &b[SLOTS], &b[OUT], &elements, &from_size, &to_size, &from,
                          &to))
        return NULL;
    Taking taking = {
        .pool = b[POOL].buf,
        .out = b[OUT].buf,
        .slots = b[SLOTS].buf,
        .n = b[SLOTS].len / WORD,
        .elements = elements,
        .from_size = from_size,
        .to_size = to_size,
    };
    bool sound = elements > 0 && from_size > 0 && to_size > 0 && elements <= b[POOL].len && from_size <= b[POOL].len &&
                 to_size <= INT32_MAX && elements <= INT64_MAX / INT32_MAX && from_size <= INT32_MAX &&
                 find_cast(from, to, from_size, to_size, &taking.cast);
    if (sound) {
        taking.n_rows = b[POOL].len / (elements * from_size);
        sound = taking.n <= b[OUT].len / (elements * to_size);
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        sound = take_rows(&taking);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* Take what is to be reduced. False if the block, the factors and the result do not fit each other. */
static bool take_windows(const Py_buffer *block, const Py_buffer *factors, const Py_buffer *out, Windows *windows) {
    const int ndim = block->ndim;
    if (ndim < 1 || ndim > MAX_NDIM || out->ndim != ndim || factors->len != ndim * WORD) return false;
    if (block->itemsize != out->itemsize) return false;
    for (int a = 0; a < ndim; a++) {
        const int64_t length = block->shape[a], factor = ((const int64_t *)factors->buf)[a];
        if (length < 1 || factor < 1 || out->shape[a] != length / factor + (length % factor != 0)) return false;
        windows->axis[a] = (WindowAxis){length, factor, block->strides[a], out->strides[a]};
    }
    windows->ndim = ndim;
    windows->itemsize = block->itemsize;
    windows->block = block->buf;
    windows->out = out->buf;
    return true;
}

/* reduce(block, factors, out, kind, method): arrays of any strides. */
static PyObject *loop_reduce(PyObject *module, PyObject *args) {
    enum { FACTORS, BLOCK, OUT, N };
    Py_buffer b[N];
    PyObject *block, *out;
    Windows windows = {0};
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "Oy*OiL", &block, &b[FACTORS], &out, &windows.kind, &windows.method)) return NULL;
    if (PyObject_GetBuffer(block, &b[BLOCK], PyBUF_STRIDED_RO) || PyObject_GetBuffer(out, &b[OUT], PyBUF_STRIDED)) {
        release(b, N);
        return NULL;
    }
    const bool sound = take_windows(&b[BLOCK], &b[FACTORS], &b[OUT], &windows);
    bool done = false;
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = reduce_windows(&windows);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    return sound ? PyBool_FromLong(done) : refuse();
}

/* write(job, encoder, window, spans, lists, path, temporary, fill, first, scratch, status, written, shard, index,
 * position, number, bytes, old, next, until, places, order, element): files if shard and index are None, else written is. bytes, old: of the old
 * shard and of its index, nothing and a blank one if there is none, None if it is covered whole. */
static PyObject *loop_write(PyObject *module, PyObject *args) {
    enum { JOB, ENCODER, WINDOW, TABLE, PATH = TABLE + 4, TEMPORARY, FILL, SCRATCH, STATUS, BYTES, OLD, ELEMENT, WRITTEN,
           SHARD, INDEX, N };
    Py_buffer b[N];
    long long first, position, next, until;
    unsigned long long number;
    Done done = {0};
    memset(b, 0, sizeof b);
    PyObject *written, *shard, *index;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*Lw*w*OOOLKz*z*LLy*y*z*", &b[JOB], &b[ENCODER], &b[WINDOW], &b[TABLE],
                          &b[TABLE + 1], &b[PATH], &b[TEMPORARY], &b[FILL], &first, &b[SCRATCH], &b[STATUS], &written,
                          &shard, &index, &position, &number, &b[BYTES], &b[OLD], &next, &until,
                          &b[TABLE + 2], &b[TABLE + 3], &b[ELEMENT]))
        return NULL;
    if ((written != Py_None && PyObject_GetBuffer(written, &b[WRITTEN], PyBUF_WRITABLE)) ||
        (shard != Py_None && PyObject_GetBuffer(shard, &b[SHARD], PyBUF_WRITABLE)) ||
        (index != Py_None && PyObject_GetBuffer(index, &b[INDEX], PyBUF_WRITABLE))) {
        release(b, N);
        return NULL;
    }
    Job table = {0};
    Window window = {0};
    Encoder encoder = {0};
    const Job *job = &table;
    const int64_t n = b[STATUS].len;
    const bool sharded = b[SHARD].buf != NULL;
    bool sound = take_job(&b[JOB], &table) && take_window(&b[WINDOW], job, &window) && job->npoints >= -1 &&
                 take_encoder(&b[ENCODER], job, &encoder) && b[FILL].len == job->itemsize &&
                 b[SCRATCH].len >= write_room(job, &encoder);
    sound = sound && (sharded ? shard_is_sound(&b[SHARD], &b[INDEX], position, next, until) : b[WRITTEN].len >= WORD);
    sound = sound && !b[OLD].buf == !b[BYTES].buf && (!b[OLD].buf || b[OLD].len == b[INDEX].len);
    Call call = {
        .job = job,
        .window = &window,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
        .index = b[OLD].buf,
        .n_index = b[INDEX].len / (2 * WORD),
        .bytes = b[BYTES].buf,
        .n_bytes = b[BYTES].len,
        .bytes_may_change = !b[BYTES].readonly,
        .sharded = sharded,
        .fill = b[FILL].buf,
    };
    Sink sink = {
        .encoder = &encoder,
        .temporary = b[TEMPORARY].buf,
        .temporary_length = b[TEMPORARY].len,
        .written = b[WRITTEN].buf,
        .n_written = b[WRITTEN].len / WORD,
        .number = number,
        .shard = b[SHARD].buf,
        .index = b[INDEX].buf,
        .position = position,
        .capacity = b[SHARD].len,
        .next = next,
        .until = until,
    };
    sound = sound && take_element(&b[ELEMENT], job, &call.element) && !call.element.cast &&
            (job->npoints < 0 ? take_box(&call, &b[TABLE], &b[TABLE + 1], first, n)
                              : take_points(&call, &b[TABLE], first, n));
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = write_all(&call, &sink, first, n, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    return Py_BuildValue("(LKKLL)", (long long)done.left, (unsigned long long)done.taken,
                         (unsigned long long)done.placed, (long long)sink.position, (long long)sink.next);
}

static PyObject *refuse_fetch(void) {
    PyErr_SetString(PyExc_ValueError, "the tables of what is fetched do not fit each other");
    return NULL;
}

/* fetch(places, axes, chunks, windows, runs, numbers, path, slab, phase, mode, offsets, sizes, spans, cursor, first) */
static PyObject *loop_fetch(PyObject *module, PyObject *args) {
    enum { PLACES, AXES, CHUNKS, WINDOWS, RUNS, NUMBERS, PATH, SLAB, OFFSETS, SIZES, SPANS, CURSOR, N };
    Py_buffer b[N];
    long long phase, mode, first;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*w*LLw*w*w*w*L", &b[PLACES], &b[AXES], &b[CHUNKS], &b[WINDOWS], &b[RUNS],
                          &b[NUMBERS], &b[PATH], &b[SLAB], &phase, &mode, &b[OFFSETS], &b[SIZES], &b[SPANS], &b[CURSOR],
                          &first))
        return NULL;
    Places places = {0};
    const int64_t ndim = b[PLACES].len >= WORD ? *(const int64_t *)b[PLACES].buf : 0;
    bool sound = unpack(&b[PLACES], ndim, 5, 2, 0, (int64_t *)&places) && b[AXES].len == 4 * ndim * WORD &&
                 b[CURSOR].len == WORD && b[SIZES].len == b[OFFSETS].len;
    const Fetch fetch = {
        .places = &places,
        .axes = b[AXES].buf,
        .chunks = b[CHUNKS].buf,
        .windows = b[WINDOWS].buf,
        .runs = b[RUNS].buf,
        .n_chunks = b[CHUNKS].len / WORD,
        .n_windows = b[WINDOWS].len / (3 * WORD),
        .n_runs = b[RUNS].len / (3 * WORD),
        .numbers = b[NUMBERS].len ? b[NUMBERS].buf : NULL,
        .n_numbers = b[NUMBERS].len / WORD,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
        .slab = b[SLAB].buf,
        .capacity = b[SLAB].len - SLAB_ALIGNMENT,
        .cursor = b[CURSOR].buf,
        .phase = phase,
        .mode = mode,
        .offsets = b[OFFSETS].buf,
        .sizes = b[SIZES].buf,
        .spans = b[SPANS].buf,
    };
    const int64_t n_out = sound ? b[SPANS].len / (ndim * (Py_ssize_t)sizeof(int32_t)) : 0;
    sound = sound && (mode == COUNT_SPANS || n_out == b[OFFSETS].len / WORD) && fetch_is_sound(&fetch, first, n_out);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        fetch_all(&fetch, first);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse_fetch();
    Py_RETURN_NONE;
}

/* Take the memory of the items of a sequence, none of None. Returns: it, to be given to `release_all`; NULL with an
 * exception. */
Py_buffer *take_all(PyObject *items, Py_ssize_t *n) {
    *n = PySequence_Size(items);
    if (*n < 0) return NULL;
    Py_buffer *buffers = PyMem_Calloc((size_t)*n + 1, sizeof(Py_buffer));
    if (!buffers) return (Py_buffer *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *n; i++) {
        PyObject *item = PySequence_GetItem(items, i);
        const bool taken = item && (item == Py_None || !PyObject_GetBuffer(item, &buffers[i], PyBUF_SIMPLE));
        Py_XDECREF(item);
        if (taken) continue;
        release(buffers, (int)i);
        PyMem_Free(buffers);
        return NULL;
    }
    return buffers;
}

void release_all(Py_buffer *buffers, Py_ssize_t n) {
    release(buffers, (int)n);
    PyMem_Free(buffers);
}

/* copy(buffers, slab, offsets, sizes): copy what has an offset that is not negative, and note all sizes; None has none. */
static PyObject *loop_copy(PyObject *module, PyObject *args) {
    enum { SLAB, OFFSETS, SIZES, N };
    Py_buffer b[N];
    PyObject *items;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "Ow*y*w*", &items, &b[SLAB], &b[OFFSETS], &b[SIZES])) return NULL;
    Py_buffer *buffers = take_all(items, &n);
    bool sound = buffers && n <= INT32_MAX && b[OFFSETS].len == n * WORD && b[SIZES].len == n * WORD;
    const int64_t *offsets = b[OFFSETS].buf;
    int64_t *sizes = b[SIZES].buf;
    for (Py_ssize_t i = 0; sound && i < n; i++) {
        sizes[i] = buffers[i].obj ? buffers[i].len : MISSING_CHUNK;
        sound = offsets[i] < 0 || (sizes[i] <= b[SLAB].len && offsets[i] <= b[SLAB].len - sizes[i]);
    }
    if (sound) {
        char *slab = b[SLAB].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < n; i++)
            if (offsets[i] >= 0 && sizes[i] > 0) memcpy(slab + offsets[i], buffers[i].buf, (size_t)sizes[i]);
        Py_END_ALLOW_THREADS
    }
    if (buffers) release_all(buffers, n);
    release(b, N);
    if (!buffers) return NULL;
    if (!sound) return refuse_fetch();
    Py_RETURN_NONE;
}

/* gather(job, spans, lists, axes, part_spans, rows) */
static PyObject *loop_gather(PyObject *module, PyObject *args) {
    enum { JOB, SPANS, LISTS, AXES, PART_SPANS, ROWS, N };
    Py_buffer b[N];
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*", &b[JOB], &b[SPANS], &b[LISTS], &b[AXES], &b[PART_SPANS], &b[ROWS]))
        return NULL;
    Job job = {0};
    const int64_t ndim = b[JOB].len >= WORD ? *(const int64_t *)b[JOB].buf : 0;
    bool sound = unpack(&b[JOB], ndim, 10, 4, 0, (int64_t *)&job) && job_is_sound(&job) && job.npoints < 0 &&
                 b[AXES].len == 4 * ndim * WORD;
    const Gathering gathering = {
        .call = {.job = &job, .spans = b[SPANS].buf, .lists = b[LISTS].buf, .n_lists = b[LISTS].len / WORD},
        .axes = b[AXES].buf,
        .n_spans = b[SPANS].len / (Py_ssize_t)sizeof(Span),
        .part_spans = b[PART_SPANS].buf,
        .n = sound ? b[PART_SPANS].len / (ndim * (Py_ssize_t)sizeof(int32_t)) : 0,
        .rows = b[ROWS].buf,
        .rows_nbytes = b[ROWS].len,
    };
    sound = sound && gathering_is_sound(&gathering);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        sound = gather_all(&gathering);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* put(places, path, temporary, coords, addresses, sizes, written, number, status) */
static PyObject *loop_put(PyObject *module, PyObject *args) {
    enum { PLACES, PATH, TEMPORARY, COORDS, ADDRESSES, SIZES, WRITTEN, STATUS, N };
    Py_buffer b[N];
    unsigned long long number;
    int64_t left = 0;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*Kw*", &b[PLACES], &b[PATH], &b[TEMPORARY], &b[COORDS], &b[ADDRESSES],
                          &b[SIZES], &b[WRITTEN], &number, &b[STATUS]))
        return NULL;
    Places places = {0};
    const int64_t ndim = b[PLACES].len >= WORD ? *(const int64_t *)b[PLACES].buf : 0, n = b[STATUS].len;
    bool sound = unpack(&b[PLACES], ndim, 5, 2, 0, (int64_t *)&places) && places.entries >= 0 &&
                 places.entries <= INT32_MAX && n <= INT32_MAX && (!places.checksum || lib.crc32c_value);
    const int64_t n_chunks = n * (places.entries ? places.entries : 1);
    sound = sound && b[COORDS].len / WORD == n * ndim && b[SIZES].len / WORD == n_chunks &&
            b[ADDRESSES].len / WORD == n_chunks && b[WRITTEN].len >= WORD;
    const Put put = {
        .places = &places,
        .coords = b[COORDS].buf,
        .addresses = b[ADDRESSES].buf,
        .sizes = b[SIZES].buf,
        .n = n,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
    };
    Sink sink = {
        .temporary = b[TEMPORARY].buf,
        .temporary_length = b[TEMPORARY].len,
        .written = b[WRITTEN].buf,
        .n_written = b[WRITTEN].len / WORD,
        .number = number,
    };
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        left = put_all(&put, &sink, b[STATUS].buf);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    return PyLong_FromLongLong(left);
}

/* join(places, addresses, sizes, out) */
static PyObject *loop_join(PyObject *module, PyObject *args) {
    enum { PLACES, ADDRESSES, SIZES, OUT, N };
    Py_buffer b[N];
    int64_t made = -1;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &b[PLACES], &b[ADDRESSES], &b[SIZES], &b[OUT])) return NULL;
    Places places = {0};
    const int64_t ndim = b[PLACES].len >= WORD ? *(const int64_t *)b[PLACES].buf : 0;
    const bool sound = unpack(&b[PLACES], ndim, 5, 2, 0, (int64_t *)&places) && places.entries >= 1 &&
                       places.entries <= INT32_MAX && (!places.checksum || lib.crc32c_value) &&
                       b[SIZES].len == places.entries * WORD && b[ADDRESSES].len == b[SIZES].len;
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        made = join_shard(&places, b[ADDRESSES].buf, b[SIZES].buf, b[OUT].buf, b[OUT].len);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (made < 0) return refuse();
    return PyLong_FromLongLong(made);
}

static bool take_frames(const Py_buffer *slab, const Py_buffer *offsets, const Py_buffer *sizes, Frames *frames) {
    frames->slab = slab->buf;
    frames->slab_nbytes = slab->len;
    frames->offsets = offsets->buf;
    frames->sizes = sizes->buf;
    frames->n = sizes->len / WORD;
    return offsets->len == sizes->len && sizes->len % WORD == 0;
}

/* is_plain_zstd(slab, offsets, sizes, nbytes) */
static PyObject *loop_is_plain_zstd(PyObject *module, PyObject *args) {
    enum { SLAB, OFFSETS, SIZES, N };
    Py_buffer b[N];
    Frames frames = {0};
    long long nbytes;
    bool plain = false;
    if (!PyArg_ParseTuple(args, "y*y*y*L", &b[SLAB], &b[OFFSETS], &b[SIZES], &nbytes)) return NULL;
    frames.nbytes = nbytes;
    if (take_frames(&b[SLAB], &b[OFFSETS], &b[SIZES], &frames)) {
        Py_BEGIN_ALLOW_THREADS
        plain = zstd_is_plain(&frames);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    return PyBool_FromLong(plain);
}

/* parse_blosc(slab, offsets, sizes, nbytes, codecs, whole, shuffles, typesizes, blocksizes, cbytes, bounds, streams) */
static PyObject *loop_parse_blosc(PyObject *module, PyObject *args) {
    enum { SLAB, OFFSETS, SIZES, CODECS, WHOLE, SHUFFLES, TYPESIZES, BLOCKSIZES, CBYTES, BOUNDS, STREAMS, N };
    Py_buffer b[N];
    Frames frames = {0};
    long long nbytes;
    bool plain = false;
    if (!PyArg_ParseTuple(args, "y*y*y*Lw*w*w*w*w*w*w*w*", &b[SLAB], &b[OFFSETS], &b[SIZES], &nbytes, &b[CODECS],
                          &b[WHOLE], &b[SHUFFLES], &b[TYPESIZES], &b[BLOCKSIZES], &b[CBYTES], &b[BOUNDS], &b[STREAMS]))
        return NULL;
    bool sound = take_frames(&b[SLAB], &b[OFFSETS], &b[SIZES], &frames) && b[CODECS].len == frames.n &&
                 b[WHOLE].len == frames.n && b[SHUFFLES].len == frames.n &&
                 b[TYPESIZES].len == frames.n * (Py_ssize_t)sizeof(int32_t) && b[BLOCKSIZES].len == frames.n * WORD &&
                 b[CBYTES].len == frames.n * WORD && b[BOUNDS].len == (STREAM_KINDS + 1) * WORD &&
                 b[STREAMS].len % (STREAM_COLUMNS * WORD) == 0;
    frames.nbytes = nbytes;
    frames.codecs = b[CODECS].buf;
    frames.whole = b[WHOLE].buf;
    frames.shuffles = b[SHUFFLES].buf;
    frames.typesizes = b[TYPESIZES].buf;
    frames.blocksizes = b[BLOCKSIZES].buf;
    frames.cbytes = b[CBYTES].buf;
    frames.bounds = b[BOUNDS].buf;
    frames.streams = b[STREAMS].len ? b[STREAMS].buf : NULL;
    frames.n_streams = b[STREAMS].len / (STREAM_COLUMNS * WORD);
    for (int kind = 0; sound && kind <= STREAM_KINDS; kind++)
        sound = !frames.streams || (frames.bounds[kind] >= 0 && frames.bounds[kind] <= frames.n_streams);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        plain = parse_blosc(&frames);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    return PyBool_FromLong(plain);
}

/* describe(sources, starts, targets, counts, source_strides, target_strides, modes, typesizes, blocksizes, chunk_nbytes,
 * nbytes, swap_unit, words, kinds) */
static PyObject *loop_describe(PyObject *module, PyObject *args) {
    enum { SOURCES, STARTS, TARGETS, COUNTS, FROM, TO, MODES, TYPESIZES, BLOCKSIZES, SIZES, WORDS, KINDS, N };
    Py_buffer b[N];
    long long nbytes, swap_unit;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*LLw*w*", &b[SOURCES], &b[STARTS], &b[TARGETS], &b[COUNTS], &b[FROM],
                          &b[TO], &b[MODES], &b[TYPESIZES], &b[BLOCKSIZES], &b[SIZES], &nbytes, &swap_unit, &b[WORDS],
                          &b[KINDS]))
        return NULL;
    const int64_t n = b[MODES].len, axes = n ? b[COUNTS].len / (n * WORD) : 0;
    bool sound = b[TYPESIZES].len == n * (Py_ssize_t)sizeof(int32_t) && nbytes > 0 && b[COUNTS].len == axes * n * WORD &&
                 b[FROM].len == b[COUNTS].len && b[TO].len == b[COUNTS].len &&
                 b[WORDS].len == n * PART_WORDS * (Py_ssize_t)sizeof(uint32_t);
    static const int columns[] = {SOURCES, STARTS, TARGETS, BLOCKSIZES, SIZES, KINDS};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) sound = sound && b[columns[i]].len == n * WORD;
    Parts parts = {
        .n = n,
        .axes = axes,
        .sources = b[SOURCES].buf,
        .starts = b[STARTS].buf,
        .targets = b[TARGETS].buf,
        .counts = b[COUNTS].buf,
        .source_strides = b[FROM].buf,
        .target_strides = b[TO].buf,
        .modes = b[MODES].buf,
        .typesizes = b[TYPESIZES].buf,
        .blocksizes = b[BLOCKSIZES].buf,
        .chunk_nbytes = b[SIZES].buf,
        .nbytes = nbytes,
        .swap_unit = swap_unit,
        .words = b[WORDS].buf,
        .kinds = b[KINDS].buf,
    };
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        describe_parts(&parts);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* bind(addresses): those of the functions of `lib`, in its order, as they lie in memory; 0 for one that is not there. */
static PyObject *loop_bind(PyObject *module, PyObject *args) {
    Py_buffer addresses;
    if (!PyArg_ParseTuple(args, "y*", &addresses)) return NULL;
    const bool fits = addresses.len == sizeof lib;
    if (fits) memcpy(&lib, addresses.buf, sizeof lib);
    PyBuffer_Release(&addresses);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "another number of functions was expected");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", loop_bind, METH_VARARGS, "Take the addresses of the codecs' functions."},
    {"read", loop_read, METH_VARARGS,
     "Read parts of a plan. Returns how many of them were left, bytes read, bytes placed."},
    {"read_copies", loop_read_copies, METH_VARARGS,
     "Read chunks, and copy boxes of them to slots. Returns how many chunks were left, bytes read, bytes placed."},
    {"begin_sort", loop_begin_sort, METH_VARARGS, "Begin to sort points by the chunks that hold them."},
    {"sort_points", loop_sort_points, METH_VARARGS, "Sort points, with other threads. Returns how many chunks hold some."},
    {"read_buffers", loop_read_buffers, METH_VARARGS,
     "Read parts of a plan whose chunks are in memory. Returns (parts left, bytes read, bytes placed)."},
    {"write_buffers", loop_write_buffers, METH_VARARGS,
     "Encode parts of a value as chunks, one after the other in memory. Returns (parts left, bytes read, bytes made)."},
    {"decode_items", loop_decode_items, METH_VARARGS, "Make strings or bytes of a buffer of items. Returns whether that was possible."},
    {"encode_items", loop_encode_items, METH_VARARGS, "Lay out strings or bytes as items. Returns None if one is something else."},
    {"take", loop_take, METH_VARARGS, "Gather rows of a pool."},
    {"reduce", loop_reduce, METH_VARARGS, "Reduce the windows of a block. Returns whether that was possible."},
    {"write", loop_write, METH_VARARGS,
     "Write parts of a plan. Returns how many were left, bytes gathered, bytes made, where a shard now ends, and its "
     "next entry."},
    {"fetch", loop_fetch, METH_VARARGS, "Fetch encoded chunks into a slab, find them in files, or find their spans."},
    {"gather", loop_gather, METH_VARARGS, "Copy values into rows, the decoded chunks of parts."},
    {"put", loop_put, METH_VARARGS, "Store encoded chunks as files or shards. Returns how many of these were left."},
    {"join", loop_join, METH_VARARGS, "Put encoded chunks together as a shard. Returns its bytes, 0 without chunks."},
    {"describe", loop_describe, METH_VARARGS, "Describe boxes for the fast copies of a device."},
    {"is_plain_zstd", loop_is_plain_zstd, METH_VARARGS, "Whether chunks are Zstandard frames without anything odd."},
    {"parse_blosc", loop_parse_blosc, METH_VARARGS,
     "Describe Blosc frames, and count or note their streams. Returns whether nothing is odd."},
    {"copy", loop_copy, METH_VARARGS, "Copy memory into a slab, and note how much that is."},
    {NULL, NULL, 0, NULL},
};

static int begin_module(PyObject *module) {
    if (!watch_forks()) {
        PyErr_NoMemory();
        return -1;
    }
    return add_basic(module) ? PyModule_AddIntConstant(module, "VERSION", VERSION) : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)begin_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_loop",
    .m_doc = "Reads and writes many small chunks without the interpreter.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loop(void) { return PyModuleDef_Init(&definition); }
