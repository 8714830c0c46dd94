/* Takes what Python gives, tables of numbers and memory, and checks that it fits together: see loop.h. */
#include "module.h"

bool unpack(const Py_buffer *table, int64_t ndim, int head, int rows, Py_ssize_t more, int64_t *to) {
    if (ndim < 1 || ndim > MAX_NDIM || table->len != (head + rows * ndim) * WORD + more) return false;
    const int64_t *from = table->buf;
    memcpy(to, from, (size_t)(head * WORD));
    for (int row = 0; row < rows; row++)
        memcpy(to + head + row * MAX_NDIM, from + head + row * ndim, (size_t)(ndim * WORD));
    return true;
}

/* Whether every offset that the chunk's strides make lies in the chunk, and sizes are such that nothing overflows. */
bool job_is_sound(const Job *job) {
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

bool take_job(const Py_buffer *table, Job *job) {
    if (table->len < WORD) return false;
    const int64_t ndim = *(const int64_t *)table->buf;
    if (ndim < 1 || ndim > MAX_NDIM) return false;
    const Py_ssize_t filters = table->len - (JOB_HEAD + 4 * ndim) * WORD;
    return filters >= 0 && filters % FILTER_NBYTES == 0 && unpack(table, ndim, JOB_HEAD, 4, filters, (int64_t *)job) &&
           job_is_sound(job) && has_decoder(job) &&
           take_filters(job, (const char *)table->buf + table->len - filters, filters / FILTER_NBYTES);
}

static bool encoder_is_sound(const Encoder *encoder, const Job *job) {
    for (int64_t a = 0; a < job->ndim; a++)
        if (encoder->extent[a] < 0) return false;
    return memchr(encoder->cname, 0, MAX_CNAME) && encoder->level >= INT32_MIN && encoder->level <= INT32_MAX &&
           encoder->shuffle >= 0 && encoder->shuffle <= 2 && encoder->typesize >= 1 && encoder->typesize <= 255 &&
           encoder->blocksize >= 0 && encoder->blocksize <= INT32_MAX && encoder->frame_checksum >= 0 &&
           encoder->frame_checksum <= 1 && job->max_encoded - job->nbytes >= 64 && has_encoder(job) && frames_are_sound(job, encoder);
}

bool take_encoder(const Py_buffer *table, const Job *job, Encoder *encoder) {
    if (!unpack(table, job->ndim, 9, 1, MAX_CNAME, (int64_t *)encoder)) return false;
    memcpy(encoder->cname, (const char *)table->buf + table->len - MAX_CNAME, MAX_CNAME);
    return encoder_is_sound(encoder, job);
}

static bool take_element(const Job *job, Element *element) {
    *element = (Element){.start = job->element_start, .size = job->element_size, .out_size = job->result_size};
    if (!element->size) return !element->start && !element->out_size;
    return element->start >= 0 && element->size >= 1 && element->size <= job->itemsize &&
           element->start <= job->itemsize - element->size && element->out_size >= 1 && element->out_size <= INT32_MAX &&
           find_cast(job->cast_from, job->cast_to, element->size, element->out_size, &element->cast);
}

static bool take_boxes(Call *call, const Py_buffer *table, int64_t n) {
    call->n = n;
    call->spans = table[0].buf, call->n_copies = table[0].len / (call->job->ndim * (Py_ssize_t)sizeof(Span));
    call->lists = table[1].buf, call->n_lists = table[1].len / WORD;
    call->firsts = table[2].buf, call->slots = table[3].buf;
    call->blocks = table[4].buf, call->n_blocks = table[4].len / (2 * WORD);
    return (call->firsts ? table[2].len == (n + 1) * WORD : call->n_copies == n) &&
           (!call->slots || (table[3].len == call->n_copies * WORD && call->blocks && call->job->rows > 0));
}

static bool take_points(Call *call, const Py_buffer *table, int64_t n) {
    const Job *job = call->job;
    call->n = n;
    call->coords = table[0].buf, call->starts = table[1].buf, call->places = table[2].buf, call->order = table[3].buf;
    return table[0].len == n * job->ndim * WORD && table[1].len == (n + 1) * WORD &&
           table[3].len == job->npoints * WORD && table[2].len == table[3].len;
}

bool take_table(Call *call, PyObject *columns, Py_buffer *table, int64_t n) {
    return PyArg_ParseTuple(columns, "y*y*z*z*z*", &table[0], &table[1], &table[2], &table[3], &table[4]) &&
           take_element(call->job, &call->element) && (call->job->npoints < 0 ? take_boxes : take_points)(call, table, n);
}

bool take_objects(PyObject *sources, Py_buffer *b, bool in_memory, Objects *objects) {
    if (!PyArg_ParseTuple(sources, "y*y*y*y*", &b[0], &b[1], &b[2], &b[3])) return false;
    const int64_t n = b[2].len / (OBJECT_NUMBERS * WORD);
    const char *paths = b[3].buf;
    *objects = (Objects){b[0].buf, b[1].buf, b[2].buf, paths, n};
    int64_t n_paths = 0;
    for (Py_ssize_t i = 0; i < b[3].len; i++) n_paths += !paths[i];
    return n > 0 && b[2].len == n * OBJECT_NUMBERS * WORD && b[1].len == (n + 1) * WORD && (in_memory || n_paths == n);
}

PyObject *refuse(void) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "internal error in gzarr's compiled loop: inconsistent tables (please report)");
    return NULL;
}

void release(Py_buffer *buffers, int n) {
    for (int i = 0; i < n; i++)
        if (buffers[i].obj) PyBuffer_Release(&buffers[i]);
}

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

Item item_of(const Py_buffer *buffer) {
    if (!buffer->obj) return (Item){0};
    return (Item){buffer->buf ? buffer->buf : "", buffer->len, !buffer->readonly};
}

bool take_items(PyObject *objects, Items *items) {
    items->buffers = take_all(objects, &items->n);
    if (!items->buffers) return false;
    items->all = PyMem_Calloc((size_t)items->n + 1, sizeof(Item));
    if (!items->all) PyErr_NoMemory();
    for (Py_ssize_t i = 0; items->all && i < items->n; i++) items->all[i] = item_of(&items->buffers[i]);
    return items->all;
}

void release_items(Items *items) {
    PyMem_Free(items->all);
    if (items->buffers) release_all(items->buffers, items->n);
}

PyObject *report(const Done *done) {
    return Py_BuildValue("(LKK)", (long long)done->left, (unsigned long long)done->taken,
                         (unsigned long long)done->placed);
}
