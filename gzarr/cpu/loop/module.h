/* What the files share that Python calls. */
#ifndef GZARR_MODULE_H
#define GZARR_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "loop.h"

static const Py_ssize_t WORD = sizeof(int64_t);

/* Numbers of a Job before its arrays. */
enum { JOB_HEAD = 16 };

/* tables.c: fill a struct of `head` numbers and then `rows` arrays of MAX_NDIM from a table, in which these have `ndim`
 * numbers. more: bytes that the table has besides. False if it is not so long. */
bool unpack(const Py_buffer *table, int64_t ndim, int head, int rows, Py_ssize_t more, int64_t *to);
/* False if the tables do not fit each other, or if functions are missing. */
bool take_job(const Py_buffer *table, Job *job);
bool job_is_sound(const Job *job);
bool take_encoder(const Py_buffer *table, const Job *job, Encoder *encoder);
/* Give a call, which has its job, the columns of a table of so many chunks: of boxes spans, lists, firsts, slots and the
 * blocks of slots, of points coords, starts, places and order. False if they do not fit each other. (Apart from other
 * arguments, as CPython counts those of nested tuples wrong.) */
enum { TABLE_COLUMNS = 5 };
bool take_table(Call *call, PyObject *columns, Py_buffer *table, int64_t n);
/* Take (places, bounds, numbers, paths): see Objects. in_memory: whether they are no files, and have no paths. */
enum { OBJECT_COLUMNS = 4 };
bool take_objects(PyObject *sources, Py_buffer *b, bool in_memory, Objects *objects);
void release(Py_buffer *buffers, int n);
/* Take the memory of the items of a sequence, none of None. Returns: it, to be given to `release_all`; NULL with an
 * exception. */
Py_buffer *take_all(PyObject *items, Py_ssize_t *n);
void release_all(Py_buffer *buffers, Py_ssize_t n);

/* What is stored of chunks, or of shards, in memory that is taken. */
typedef struct {
    Py_buffer *buffers;
    Item *all;
    Py_ssize_t n;
} Items;

Item item_of(const Py_buffer *buffer);
/* Take what a sequence holds, None for nothing. False with an exception. Items are to be released in any case. */
bool take_items(PyObject *objects, Items *items);
void release_items(Items *items);
/* What a read returns: (parts left, bytes read, bytes placed). */
PyObject *report(const Done *done);
/* Raise the exception that is set, or ValueError. Returns: NULL. */
PyObject *refuse(void);

/* chunks.c */
PyObject *loop_read(PyObject *module, PyObject *args);
PyObject *loop_write(PyObject *module, PyObject *args);

/* device.c */
PyObject *loop_fetch(PyObject *module, PyObject *args);
PyObject *loop_put(PyObject *module, PyObject *args);
PyObject *loop_plain_zstd(PyObject *module, PyObject *args);
PyObject *loop_parse_blosc(PyObject *module, PyObject *args);

/* items.c */
PyObject *loop_decode_items(PyObject *module, PyObject *args);
PyObject *loop_encode_items(PyObject *module, PyObject *args);

/* basic.c: add the type `Basic`. */
bool add_basic(PyObject *module);

#endif
