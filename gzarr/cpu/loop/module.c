/* What Python calls: see loop.h. */
#include "module.h"

#include <string.h>

/* Counts what Python and the loop agree on: arguments, tables, results. */
enum { VERSION = 29 };

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

/* bind(addresses): the fields of `lib`, in its order, as they lie in memory; 0 for a function that is not there. */
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
     "Read a table of chunks. Returns how many of them were left, bytes read, bytes placed."},
    {"begin_sort", loop_begin_sort, METH_VARARGS, "Begin to sort points by the chunks that hold them."},
    {"sort_points", loop_sort_points, METH_VARARGS, "Sort points, with other threads. Returns how many chunks hold some."},
    {"decode_items", loop_decode_items, METH_VARARGS, "Make strings or bytes of a buffer of items. Returns whether that was possible."},
    {"encode_items", loop_encode_items, METH_VARARGS, "Lay out strings or bytes as items. Returns None if one is something else."},
    {"take", loop_take, METH_VARARGS, "Gather rows of a pool."},
    {"reduce", loop_reduce, METH_VARARGS, "Reduce the windows of a block. Returns whether that was possible."},
    {"write", loop_write, METH_VARARGS,
     "Write a table of chunks. Returns how many were left, bytes gathered, bytes made, and what a shard or a store needs."},
    {"fetch", loop_fetch, METH_VARARGS, "Fetch encoded chunks into a buffer."},
    {"put", loop_put, METH_VARARGS, "Store encoded chunks as files or shards. Returns how many of these were left."},
    {"plain_zstd", loop_plain_zstd, METH_VARARGS, "Find the chunks that are Zstandard frames without anything odd."},
    {"parse_blosc", loop_parse_blosc, METH_VARARGS,
     "Describe Blosc frames, and count or note their streams. Returns whether there are as many as were counted."},
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
