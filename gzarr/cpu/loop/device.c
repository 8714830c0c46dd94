/* Brings encoded chunks to devices and back: see loop.h. */
#include "device.h"
#include "module.h"

#include <string.h>

/* fetch(places, axes, chunks, windows, runs, numbers, path, slab, phase, mode, offsets, sizes, spans, cursor, first) */
PyObject *loop_fetch(PyObject *module, PyObject *args) {
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
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* copy(buffers, slab, offsets, sizes): copy what has an offset that is not negative, and note all sizes; None has none. */
PyObject *loop_copy(PyObject *module, PyObject *args) {
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
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* gather(job, spans, lists, axes, part_spans, rows) */
PyObject *loop_gather(PyObject *module, PyObject *args) {
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
PyObject *loop_put(PyObject *module, PyObject *args) {
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
PyObject *loop_join(PyObject *module, PyObject *args) {
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
PyObject *loop_is_plain_zstd(PyObject *module, PyObject *args) {
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
PyObject *loop_parse_blosc(PyObject *module, PyObject *args) {
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
PyObject *loop_describe(PyObject *module, PyObject *args) {
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
