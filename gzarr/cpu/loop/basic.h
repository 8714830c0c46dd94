/* What the files about basic selections share: see basic.c. */
#ifndef GZARR_BASIC_H
#define GZARR_BASIC_H

#include "module.h"

/* Chunks of one read, and decoded bytes of several: more are for several threads. */
enum { MAX_PARTS = 16, MAX_NBYTES = 1 << 19 };

/* The copies of a selection: of each chunk one, with a span for each axis. */
typedef struct {
    Span spans[MAX_PARTS * MAX_NDIM];
    int n;
    int64_t entries[MAX_PARTS]; /* in the index of the shard that holds all of them */
} Copies;

typedef struct {
    PyObject_HEAD
    Job job; /* but for the result or value */
    Encoder encoder;
    int64_t extent[MAX_NDIM];
    bool writes;
    PyObject *dtype, *empty, *stored_as; /* of the elements; makes arrays; of what is made if that is no buffer, or None */
    PyObject *index;                     /* the type of NumPy's integers */
    PyObject *path, *fill, *temporary;   /* bytes */
    PyObject *number;                    /* gives Sink.number */
    PyObject *find;                      /* says what is known of a shard; NULL if there are no shards */
    PyObject *fetch;                     /* gives chunks from a store; NULL if they are files */
    int64_t counts[MAX_NDIM], steps[MAX_NDIM]; /* of shards: chunks, and entries of the index from one to the next */
    IndexFormat format;                        /* of shards that are written */
} Basic;

/* What one axis takes of the array. */
typedef struct {
    int64_t start, step, count;
    bool dropped; /* from the result, as it is an integer */
} Wanted;

/* selection.c */
/* What a key takes of every axis. False if it is not a basic selection that is known here. */
bool take_key(const Basic *basic, PyObject *key, Wanted *wanted);
/* Cut what is wanted along the chunks. False if these are more than `most`. */
bool cut(const Basic *basic, const Wanted *wanted, int most, Copies *copies);
/* The coordinates of the object that holds all chunks: a shard, whose grid is noted, or the only chunk. False if they are in
 * several. */
bool find_object(const Basic *basic, Copies *copies, int64_t *coords);
/* An array for what is wanted, with an axis for each that is not dropped. */
PyObject *make_result(const Basic *basic, const Wanted *wanted);
/* What a caller gets: elements of the array's own type, a scalar if there are no axes. */
PyObject *finish(const Basic *basic, PyObject *result, const Wanted *wanted);
bool has_dtype(const Basic *basic, PyObject *array);
/* Let a job have an array of the selection's shape as its result or value; a single element if it may be repeated. False
 * if it has another shape. */
bool take_array(Job *job, const Py_buffer *array, const Wanted *wanted, bool repeats);

#endif
