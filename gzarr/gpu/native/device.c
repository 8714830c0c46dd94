/* What Python calls to bring encoded chunks to devices and back. */
#include "device.h"
#include "../../cpu/loop/module.h"

#include <string.h>

/* fetch(ndim, separator, coords, path, sources, slab, phase, answer, cursor). coords, path: of files. answer: offsets, sizes.
 * sources: see `take_objects`; None for files. */
PyObject *loop_fetch(PyObject *module, PyObject *args) {
    enum { COORDS, PATH, SLAB, OFFSETS, SIZES, CURSOR, OBJECTS, N = OBJECTS + OBJECT_COLUMNS };
    Py_buffer b[N];
    PyObject *sources;
    Objects objects = {0};
    long long ndim, separator, phase;
    memset(b, 0, sizeof b);
    if (!PyArg_ParseTuple(args, "LLy*y*Ow*L(w*w*)w*", &ndim, &separator, &b[COORDS], &b[PATH], &sources, &b[SLAB],
                          &phase, &b[OFFSETS], &b[SIZES], &b[CURSOR]))
        return NULL;
    const bool sharded = sources != Py_None;
    const int64_t n = b[SIZES].len / WORD;
    bool sound = !sharded || (take_objects(sources, &b[OBJECTS], false, &objects) && b[OBJECTS].len == 2 * n * WORD &&
                              objects_are_sound(&objects, n));
    const Job job = {.ndim = ndim, .separator = separator};
    const Call call = {
        .job = &job,
        .n = n,
        .coords = b[COORDS].buf,
        .path = b[PATH].buf,
        .path_length = b[PATH].len,
    };
    const Fetch fetch = {
        .call = &call,
        .objects = sharded ? &objects : NULL,
        .slab = b[SLAB].buf,
        .capacity = b[SLAB].len - SLAB_ALIGNMENT,
        .cursor = b[CURSOR].buf,
        .phase = phase,
        .offsets = b[OFFSETS].buf,
        .sizes = b[SIZES].buf,
    };
    sound = sound && ndim >= 1 && ndim <= MAX_NDIM && b[OFFSETS].len == n * WORD &&
            (sharded || b[COORDS].len == n * ndim * WORD) && b[CURSOR].len == WORD && *fetch.cursor >= 0 && phase >= 0 &&
            phase < SLAB_ALIGNMENT;
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        fetch_all(&fetch);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* put(places, path, temporary, coords, addresses, sizes, number, status) */
PyObject *loop_put(PyObject *module, PyObject *args) {
    enum { PLACES, PATH, TEMPORARY, COORDS, ADDRESSES, SIZES, STATUS, N };
    Py_buffer b[N];
    unsigned long long number;
    int64_t left = 0;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*Kw*", &b[PLACES], &b[PATH], &b[TEMPORARY], &b[COORDS], &b[ADDRESSES],
                          &b[SIZES], &number, &b[STATUS]))
        return NULL;
    Places places = {0};
    const int64_t ndim = b[PLACES].len >= WORD ? *(const int64_t *)b[PLACES].buf : 0, n = b[STATUS].len;
    bool sound = unpack(&b[PLACES], ndim, 5, 0, 0, (int64_t *)&places) && places.entries >= 0 &&
                 places.entries <= INT32_MAX && n <= INT32_MAX && (!places.checksum || lib.crc32c_value);
    const int64_t n_chunks = n * (places.entries ? places.entries : 1);
    sound = sound && b[COORDS].len / WORD == n * ndim && b[SIZES].len / WORD == n_chunks &&
            b[ADDRESSES].len / WORD == n_chunks;
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

static bool take_frames(const Py_buffer *slab, const Py_buffer *offsets, const Py_buffer *sizes, Frames *frames) {
    frames->slab = slab->buf;
    frames->slab_nbytes = slab->len;
    frames->offsets = offsets->buf;
    frames->sizes = sizes->buf;
    frames->n = sizes->len / WORD;
    return offsets->len == sizes->len && sizes->len % WORD == 0;
}

/* plain_zstd(slab, offsets, sizes, nbytes, plain) */
PyObject *loop_plain_zstd(PyObject *module, PyObject *args) {
    enum { SLAB, OFFSETS, SIZES, NBYTES, PLAIN, N };
    Py_buffer b[N];
    Frames frames = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &b[SLAB], &b[OFFSETS], &b[SIZES], &b[NBYTES], &b[PLAIN])) return NULL;
    const bool sound = take_frames(&b[SLAB], &b[OFFSETS], &b[SIZES], &frames) && b[NBYTES].len == b[SIZES].len &&
                       b[PLAIN].len == frames.n;
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        find_plain_zstd(&frames, b[NBYTES].buf, b[PLAIN].buf);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    Py_RETURN_NONE;
}

/* parse_blosc(slab, offsets, sizes, nbytes, frames, bounds, streams) */
PyObject *loop_parse_blosc(PyObject *module, PyObject *args) {
    enum { SLAB, OFFSETS, SIZES, FRAMES, BOUNDS, STREAMS, N };
    Py_buffer b[N];
    Frames frames = {0};
    long long nbytes;
    bool counted = false;
    if (!PyArg_ParseTuple(args, "y*y*y*Lw*w*w*", &b[SLAB], &b[OFFSETS], &b[SIZES], &nbytes, &b[FRAMES], &b[BOUNDS], &b[STREAMS]))
        return NULL;
    bool sound = take_frames(&b[SLAB], &b[OFFSETS], &b[SIZES], &frames) && nbytes > 0 &&
                 b[FRAMES].len == frames.n * (Py_ssize_t)sizeof(Frame) && b[BOUNDS].len == (STREAM_KINDS + 1) * WORD &&
                 b[STREAMS].len % (STREAM_COLUMNS * WORD) == 0;
    frames.nbytes = nbytes;
    frames.frames = b[FRAMES].buf;
    frames.bounds = b[BOUNDS].buf;
    frames.streams = b[STREAMS].len ? b[STREAMS].buf : NULL;
    frames.n_streams = b[STREAMS].len / (STREAM_COLUMNS * WORD);
    for (int kind = 0; sound && kind <= STREAM_KINDS; kind++)
        sound = !frames.streams || (frames.bounds[kind] >= 0 && frames.bounds[kind] <= frames.n_streams);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        counted = parse_blosc(&frames);
        Py_END_ALLOW_THREADS
    }
    release(b, N);
    if (!sound) return refuse();
    return PyBool_FromLong(counted);
}
