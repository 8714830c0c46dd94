/* Strings and bytes of variable length: their number, and then each after its length, all numbers in four bytes.
 *
 * The interpreter's lock is held throughout, and no code of Python runs meanwhile but what frees what a slot held: the
 * elements that are read here stay where they are. What is odd is left to Python, which says what is wrong. */
#include "module.h"

#include <string.h>

enum { NUMBER = 4 };

static uint32_t load(const unsigned char *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static char *store(char *to, uint32_t number) {
    for (int i = 0; i < NUMBER; i++) to[i] = (char)(number >> 8 * i);
    return to + NUMBER;
}

/* Take the memory of a contiguous array of objects. False with an exception if it is none. */
static bool take_slots(PyObject *array, int flags, Py_buffer *slots) {
    if (PyObject_GetBuffer(array, slots, flags | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) return false;
    if (slots->format && !strcmp(slots->format, "O") && slots->itemsize == (Py_ssize_t)sizeof(PyObject *)) return true;
    PyBuffer_Release(slots);
    PyErr_SetString(PyExc_TypeError, "not an array of objects");
    return false;
}

/* Make objects of the items from `first` on, as many as there are slots. All lengths are checked. False if something is
 * odd. */
static bool make_objects(const Py_buffer *data, Py_ssize_t count, Py_ssize_t first, const Py_buffer *out, bool text) {
    const Py_ssize_t n = out->len / (Py_ssize_t)sizeof(PyObject *);
    const unsigned char *at = data->buf, *end = at + data->len;
    PyObject **slots = out->buf;
    if (first < 0 || n > count || first > count - n || end - at < NUMBER || load(at) != (uint64_t)count) return false;
    at += NUMBER;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (end - at < NUMBER) return false;
        const uint32_t length = load(at);
        at += NUMBER;
        if (end - at < (Py_ssize_t)length) return false;
        if (i >= first && i - first < n) {
            const char *item = (const char *)at;
            PyObject *made = text ? PyUnicode_DecodeUTF8(item, length, NULL) : PyBytes_FromStringAndSize(item, length);
            if (!made) return false;
            PyObject *old = slots[i - first];
            slots[i - first] = made;
            Py_XDECREF(old);
        }
        at += length;
    }
    return true;
}

/* decode_items(data, count, first, out, text). */
PyObject *loop_decode_items(PyObject *module, PyObject *args) {
    Py_buffer data, out;
    Py_ssize_t count, first;
    PyObject *array;
    int text;
    if (!PyArg_ParseTuple(args, "y*nnOp", &data, &count, &first, &array, &text)) return NULL;
    if (!take_slots(array, PyBUF_WRITABLE, &out)) {
        PyBuffer_Release(&data);
        return NULL;
    }
    const bool done = make_objects(&data, count, first, &out, text);
    PyErr_Clear();
    PyBuffer_Release(&out);
    PyBuffer_Release(&data);
    return PyBool_FromLong(done);
}

#ifndef Py_GIL_DISABLED
/* The bytes of an element, which it keeps; none for None. A string that is not ASCII keeps its UTF-8 as long as it lives.
 * NULL if it is something else. */
static const char *bytes_of(PyObject *item, bool text, Py_ssize_t *length) {
    char *found = NULL;
    *length = 0;
    if (item == Py_None) return "";
    if (!item) return NULL;
    if (text) return PyUnicode_Check(item) ? PyUnicode_AsUTF8AndSize(item, length) : NULL;
    return PyBytes_Check(item) && !PyBytes_AsStringAndSize(item, &found, length) ? found : NULL;
}

/* Bytes of all items with their lengths; -1 if something is odd. */
static Py_ssize_t measure(PyObject *const *items, Py_ssize_t n, bool text) {
    Py_ssize_t total = NUMBER, length;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!bytes_of(items[i], text, &length) || length > INT32_MAX) return -1;
        if (total > PY_SSIZE_T_MAX - NUMBER - length) return -1;
        total += NUMBER + length;
    }
    return total;
}

static bool lay_items(PyObject *const *items, Py_ssize_t n, bool text, char *to, const char *end) {
    to = store(to, (uint32_t)n);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t length;
        const char *bytes = bytes_of(items[i], text, &length);
        if (!bytes || end - to < NUMBER || end - to - NUMBER < length) return false;
        to = store(to, (uint32_t)length);
        memcpy(to, bytes, (size_t)length);
        to += length;
    }
    return to == end;
}
#endif

/* encode_items(items, text). Without the interpreter's lock others might change the items: Python encodes them then. */
PyObject *loop_encode_items(PyObject *module, PyObject *args) {
    PyObject *array, *made = NULL;
    int text;
    if (!PyArg_ParseTuple(args, "Op", &array, &text)) return NULL;
#ifndef Py_GIL_DISABLED
    Py_buffer items;
    if (!take_slots(array, 0, &items)) return NULL;
    const Py_ssize_t n = items.len / (Py_ssize_t)sizeof(PyObject *);
    const Py_ssize_t total = n > INT32_MAX ? -1 : measure(items.buf, n, text);
    made = total < 0 ? NULL : PyBytes_FromStringAndSize(NULL, total);
    if (made) {
        char *to = PyBytes_AsString(made);
        if (!lay_items(items.buf, n, text, to, to + total)) Py_CLEAR(made);
    }
    PyErr_Clear();
    PyBuffer_Release(&items);
#endif
    return made ? made : Py_NewRef(Py_None);
}
