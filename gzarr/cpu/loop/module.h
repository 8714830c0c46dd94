/* What the files share that Python calls. */
#ifndef GZARR_MODULE_H
#define GZARR_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "loop.h"

static const Py_ssize_t WORD = sizeof(int64_t);

/* module.c: fill a struct of `head` numbers and then `rows` arrays of MAX_NDIM from a table, in which these have `ndim`
 * numbers. more: bytes that the table has besides. False if it is not so long. */
bool unpack(const Py_buffer *table, int64_t ndim, int head, int rows, Py_ssize_t more, int64_t *to);
/* False if the tables do not fit each other, or if functions are missing. */
bool take_job(const Py_buffer *table, Job *job);
bool take_encoder(const Py_buffer *table, const Job *job, Encoder *encoder);
bool take_window(const Py_buffer *table, const Job *job, Window *window);
/* Give a call the tables of a box, or of points. False if they do not fit each other. */
bool take_box(Call *call, const Py_buffer *spans, const Py_buffer *lists, int64_t first, int64_t n);
bool take_points(Call *call, const Py_buffer *table, int64_t first, int64_t n);
PyObject *refuse(void);
void release(Py_buffer *buffers, int n);
/* Take the memory of the items of a sequence, none of None. Returns: it, to be given to `release_all`; NULL with an
 * exception. */
Py_buffer *take_all(PyObject *items, Py_ssize_t *n);
void release_all(Py_buffer *buffers, Py_ssize_t n);

/* memory.c: describe memory that is taken. Returns: NULL without an exception if there is no memory. */
Item *make_items(const Py_buffer *buffers, Py_ssize_t n);
PyObject *loop_read_buffers(PyObject *module, PyObject *args);
PyObject *loop_write_buffers(PyObject *module, PyObject *args);

/* items.c */
PyObject *loop_decode_items(PyObject *module, PyObject *args);
PyObject *loop_encode_items(PyObject *module, PyObject *args);

/* basic.c: add the type `Basic`. */
bool add_basic(PyObject *module);

#endif
