/* Reads and writes chunks that are in files, and copies boxes of chunks: see gzarr/cpu/compiled/{read,copies,write}.py. */
#include "module.h"

static bool shard_is_sound(const Py_buffer *shard, const Py_buffer *index, int64_t position, int64_t next,
                           int64_t until) {
    return index->buf && position >= 0 && position <= shard->len && next >= 0 && until <= index->len / (2 * WORD);
}

/* read(job, window, table0, table1, table2, table3, path, index, fill, first, scratch, version, written, element,
 * status). version: of the shard, five numbers; None for any. element: see `take_element`. */
PyObject *loop_read(PyObject *module, PyObject *args) {
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
    return sound ? report(&done) : refuse();
}

/* read_copies(job, numbers, coords, firsts, inside, counts, place, slots, blocks, shards, written, path, fill, first,
 * scratch, items, status). numbers: rows of a block, itemsize there, types of a cast or -1 and -1. shards: None for chunks
 * that are stored alone. items: what is stored of every chunk, or of every shard, None for nothing; None for files. */
PyObject *loop_read_copies(PyObject *module, PyObject *args) {
    enum { JOB, NUMBERS, COORDS, FIRSTS, INSIDE, COUNTS, PLACE, SLOTS, BLOCKS, SHARDS, WRITTEN, PATH, FILL, SCRATCH, STATUS, N };
    Py_buffer b[N];
    PyObject *objects;
    Items items = {0};
    long long first;
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*z*y*y*y*Lw*Ow*", &b[JOB], &b[NUMBERS], &b[COORDS], &b[FIRSTS],
                          &b[INSIDE], &b[COUNTS], &b[PLACE], &b[SLOTS], &b[BLOCKS], &b[SHARDS], &b[WRITTEN], &b[PATH],
                          &b[FILL], &first, &b[SCRATCH], &objects, &b[STATUS]))
        return NULL;
    const bool in_memory = objects != Py_None;
    Job job = {0};
    const int64_t *numbers = b[NUMBERS].buf;
    bool sound = (!in_memory || take_items(objects, &items)) && take_job(&b[JOB], &job) && job.npoints == -2 &&
                 b[NUMBERS].len == 4 * WORD && b[SCRATCH].len >= job.max_encoded + job.nbytes;
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
    if (in_memory) sound = sound && items.n == (b[SHARDS].buf ? n_shards : n);
    Call call = {
        .job = &job,
        .copies = &copies,
        .items = b[SHARDS].buf ? NULL : items.all,
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
            done = read_shards(&call, first, b[SHARDS].buf, n_shards, items.all, b[STATUS].buf, b[SCRATCH].buf);
        else
            done = read_all(&call, first, n, b[STATUS].buf, b[SCRATCH].buf);
        Py_END_ALLOW_THREADS
    }
    release_items(&items);
    release(b, N);
    return sound ? report(&done) : refuse();
}

/* write(job, encoder, window, spans, lists, path, temporary, fill, first, scratch, status, written, shard, index,
 * position, number, bytes, old, next, until, places, order, element): files if shard and index are None, else written
 * is. bytes, old: of the old shard and of its index, nothing and a blank one if there is none, None if it is covered
 * whole. */
PyObject *loop_write(PyObject *module, PyObject *args) {
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
