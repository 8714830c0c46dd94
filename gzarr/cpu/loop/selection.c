/* Basic selections: what stands between the brackets, and the arrays of what it takes: see basic.c. */
#include "basic.h"

#include <string.h>

static bool take_integer(PyObject *item, int64_t extent, Wanted *wanted) {
    long long at = PyLong_AsLongLong(item);
    if (at == -1 && PyErr_Occurred()) return false;
    if (at < 0) at += extent;
    *wanted = (Wanted){.start = at, .step = 1, .count = 1, .dropped = true};
    return at >= 0 && at < extent;
}

static bool take_slice(PyObject *item, int64_t extent, Wanted *wanted) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(item, &start, &stop, &step)) return false;
    const Py_ssize_t count = PySlice_AdjustIndices((Py_ssize_t)extent, &start, &stop, step);
    *wanted = (Wanted){.start = start, .step = count > 1 ? step : 1, .count = count};
    return count > 0 && step > 0;
}

static bool take_item(const Basic *basic, PyObject *item, int64_t extent, Wanted *wanted) {
    if (PySlice_Check(item)) return take_slice(item, extent, wanted);
    if (PyLong_CheckExact(item)) return take_integer(item, extent, wanted);
    if ((PyObject *)Py_TYPE(item) != basic->index) return false;
    PyObject *number = PyNumber_Index(item);
    const bool taken = number && take_integer(number, extent, wanted);
    Py_XDECREF(number);
    return taken;
}

bool take_key(const Basic *basic, PyObject *key, Wanted *wanted) {
    const int64_t ndim = basic->job.ndim;
    const bool several = PyTuple_CheckExact(key);
    const Py_ssize_t n = several ? PyTuple_Size(key) : 1;
    int64_t a = 0;
    bool dots = false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = several ? PyTuple_GetItem(key, i) : key;
        if (item == Py_Ellipsis) {
            const int64_t behind = n - i - 1, end = ndim - behind;
            if (dots || end < a) return false;
            for (dots = true; a < end; a++) wanted[a] = (Wanted){.step = 1, .count = basic->extent[a]};
        } else {
            if (a == ndim || !take_item(basic, item, basic->extent[a], &wanted[a])) return false;
            a++;
        }
    }
    for (; a < ndim; a++) wanted[a] = (Wanted){.step = 1, .count = basic->extent[a]};
    for (a = 0; a < ndim; a++)
        if (wanted[a].count < 1) return false;
    return true;
}

/* Cut what an axis takes along its chunks. Returns: the number of spans, 0 if they are too many. */
static int cut_axis(const Wanted *wanted, int64_t length, int64_t extent, Span *spans) {
    const int64_t last = wanted->start + (wanted->count - 1) * wanted->step;
    int n = 0;
    if (last / length - wanted->start / length >= MAX_PARTS) return 0;
    for (int64_t done = 0; done < wanted->count; n++) {
        const int64_t at = wanted->start + done * wanted->step, chunk = at / length, low = chunk * length;
        const int64_t within = (low + length - 1 - at) / wanted->step + 1, left = wanted->count - done;
        const int64_t count = within < left ? within : left, there = extent - low < length ? extent - low : length;
        spans[n] = (Span){chunk, count, at - low, count > 1 ? wanted->step : 1, -1, done, 1, -1, count == there};
        done += count;
    }
    return n;
}

bool cut(const Basic *basic, const Wanted *wanted, int most, Copies *copies) {
    const int64_t ndim = basic->job.ndim;
    Span spans[MAX_PARTS];
    copies->n = 1;
    /* From the last axis on: what there is becomes the first of as many copies as the axis has spans. */
    for (int64_t a = ndim - 1; a >= 0; a--) {
        const int n = cut_axis(&wanted[a], basic->job.chunk_shape[a], basic->extent[a], spans), before = copies->n;
        if (n < 1 || n * before > most) return false;
        copies->n = n * before;
        for (int i = copies->n - 1; i >= 0; i--) {
            Span *to = copies->spans + i * ndim;
            if (i >= before) memcpy(to, copies->spans + i % before * ndim, (size_t)ndim * sizeof(Span));
            to[a] = spans[i / before];
        }
    }
    return copies->n == 1 || copies->n * basic->job.nbytes <= MAX_NBYTES;
}

bool find_object(const Basic *basic, Copies *copies, int64_t *coords) {
    const Span *first = copies->spans, *last = first + (copies->n - 1) * basic->job.ndim;
    for (int64_t a = 0; a < basic->job.ndim; a++) {
        coords[a] = first[a].chunk / basic->counts[a];
        if (last[a].chunk / basic->counts[a] != coords[a]) return false;
    }
    for (int i = 0; i < copies->n; i++) {
        const Span *spans = first + i * basic->job.ndim;
        copies->entries[i] = 0;
        for (int64_t a = 0; a < basic->job.ndim; a++)
            copies->entries[i] += spans[a].chunk % basic->counts[a] * basic->steps[a];
    }
    return true;
}

/* -- results and values ---------------------------------------------------------------------------------------- */

PyObject *make_result(const Basic *basic, const Wanted *wanted) {
    Py_ssize_t n = 0;
    for (int64_t a = 0; a < basic->job.ndim; a++) n += !wanted[a].dropped;
    PyObject *shape = PyTuple_New(n);
    n = 0;
    for (int64_t a = 0; shape && a < basic->job.ndim; a++) {
        if (wanted[a].dropped) continue;
        PyObject *count = PyLong_FromLongLong(wanted[a].count);
        if (!count || PyTuple_SetItem(shape, n++, count)) Py_CLEAR(shape);
    }
    if (!shape) return NULL;
    PyObject *dtype = basic->stored_as == Py_None ? basic->dtype : basic->stored_as;
    PyObject *result = PyObject_CallFunctionObjArgs(basic->empty, shape, dtype, NULL);
    Py_DECREF(shape);
    return result;
}

PyObject *finish(const Basic *basic, PyObject *result, const Wanted *wanted) {
    bool is_scalar = true;
    for (int64_t a = 0; a < basic->job.ndim; a++) is_scalar = is_scalar && wanted[a].dropped;
    if (result && basic->stored_as != Py_None) {
        PyObject *view = PyObject_CallMethod(result, "view", "O", basic->dtype);
        Py_DECREF(result);
        result = view;
    }
    if (!result || !is_scalar) return result;
    PyObject *nothing = PyTuple_New(0), *scalar = nothing ? PyObject_GetItem(result, nothing) : NULL;
    Py_XDECREF(nothing);
    Py_DECREF(result);
    return scalar;
}

bool has_dtype(const Basic *basic, PyObject *array) {
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    const bool has = dtype && PyObject_RichCompareBool(dtype, basic->dtype, Py_EQ) == 1;
    Py_XDECREF(dtype);
    return has;
}

bool take_array(Job *job, const Py_buffer *array, const Wanted *wanted, bool repeats) {
    const bool single = repeats && !array->ndim;
    int axis = 0;
    if (array->itemsize != job->itemsize) return false;
    for (int64_t a = 0; a < job->ndim; a++) {
        job->out_shape[a] = wanted[a].count;
        job->out_stride[a] = 0;
        if (single || wanted[a].dropped) continue;
        if (axis == array->ndim || array->shape[axis] != wanted[a].count) return false;
        job->out_stride[a] = array->strides[axis++];
    }
    job->out = (int64_t)(intptr_t)array->buf;
    return axis == array->ndim;
}
