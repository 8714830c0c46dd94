/* Reads, decodes and places many small chunks without the interpreter.
 *
 * Theory of operation. One call takes a run of the parts of a plan, which it knows by tables: for a box the spans of
 * each axis, whose product the parts are; for points, rows of the points of each chunk. For every part it finds the
 * chunk's bytes (a file of its own, or a range of a shard), decodes them and copies what is wanted into the result. A
 * missing chunk gives the fill value. Everything else that is not plain success, whatever the reason, is left alone
 * and reported: gzarr's Python path does such parts again, and it alone knows how to say what is wrong.
 *
 * Rules: memory is only touched after what says where was checked against the shapes of chunk and result; the decoders
 * are those of numcodecs, called by address (`bind`); nothing here is shared between calls but these addresses.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frame headers are read as little-endian numbers"
#endif

enum { MAX_NDIM = 32, MAX_PATH = 4096 };
enum { PLAIN, BLOSC, ZSTD, LZ4 };
enum { PLACED, LEFT };

static const uint64_t MISSING = UINT64_MAX;
static const int64_t BLOSC_HEADER = 16, LZ4_HEADER = 4, CHECKSUM = 4;

/* -- decoders -------------------------------------------------------------------------------------------------- */

static struct {
    int (*blosc_decompress_ctx)(const void *, void *, size_t, int);
    void *(*ZSTD_createDCtx)(void);
    size_t (*ZSTD_freeDCtx)(void *);
    size_t (*ZSTD_decompressDCtx)(void *, void *, size_t, const void *, size_t);
    unsigned long long (*ZSTD_getFrameContentSize)(const void *, size_t);
    size_t (*ZSTD_findFrameCompressedSize)(const void *, size_t);
    int (*LZ4_decompress_safe)(const char *, char *, int, int);
    uint32_t (*crc32c_value)(const uint8_t *, size_t);
} lib;

/* -- the job --------------------------------------------------------------------------------------------------- */

/* What all calls for one read have in common: the int64 fields of the table that Python makes, in this order. */
typedef struct {
    int64_t ndim;
    int64_t itemsize;    /* of an element */
    int64_t nbytes;      /* of a decoded chunk */
    int64_t max_encoded; /* larger files and ranges are left */
    int64_t codec;
    int64_t swap;     /* bytes of what is to be swapped, 0 for nothing */
    int64_t checksum; /* whether a crc32c follows the encoded bytes */
    int64_t separator;
    int64_t out;                    /* address of the result */
    int64_t npoints;                /* -1 for a box */
    int64_t chunk_shape[MAX_NDIM];  /* elements */
    int64_t chunk_stride[MAX_NDIM]; /* bytes */
    int64_t out_shape[MAX_NDIM];    /* of a list of points only the first is used */
    int64_t out_stride[MAX_NDIM];
} Job;

/* What one axis of a box takes of one chunk. A list is a position in `lists`, or -1: start and step say all. */
typedef struct {
    int64_t chunk, count, in_start, in_step, in_list, out_start, out_step, out_list;
} Span;

/* Where the parts of one call are, and, if they lie in a shard, where its index says that. */
typedef struct {
    int64_t first[MAX_NDIM];  /* box: of every axis, its first span in the table */
    int64_t n[MAX_NDIM];      /* box: and how many follow */
    int64_t origin[MAX_NDIM]; /* chunk coordinates of the shard's first chunk */
    int64_t entry[MAX_NDIM];  /* entries of the index from one chunk to the next */
} Window;

typedef struct {
    const Job *job;
    const Window *window;
    const Span *spans;    /* box: of all axes, one axis after the other */
    const int64_t *lists; /* box: index lists of spans */
    int64_t n_lists;
    const int64_t *rows;   /* points: coordinates of the chunks, (n_rows, ndim) */
    const int64_t *starts; /* points: where those of each chunk begin, and where the last end, (n_rows + 1,) */
    const int64_t *inside; /* points: positions in their chunks, (ndim, npoints) */
    const int64_t *order;  /* points: positions in the result, (npoints,) */
    const char *path;      /* of the shard, or what the chunks' paths begin with */
    int64_t path_length;
    const uint64_t *index; /* offset and size of each chunk of the shard; NULL if there is no shard */
    int64_t n_index;       /* entries */
    bool sharded;
    const char *fill;
} Call;

/* One axis of a copy: `n` steps of so many bytes, or by lists. */
typedef struct {
    int64_t n, src, dst;
    const int64_t *in, *out;
} Axis;

typedef struct {
    Axis axis[MAX_NDIM];
    int n;
    int64_t run;       /* bytes copied at once */
    int64_t src_start; /* bytes */
    char *dst;
} Copy;

/* What a call uses from part to part. */
typedef struct {
    char *encoded, *decoded; /* max_encoded and nbytes bytes of the caller's scratch memory */
    void *zstd;
    int fd; /* of the shard */
    int64_t fd_size;
    uint64_t taken, placed; /* bytes read of this part's chunk, bytes of the result that it is */
    char path[MAX_PATH];
} State;

/* What a call has done. */
typedef struct {
    int64_t left;           /* parts */
    uint64_t taken, placed; /* bytes, of the other parts */
} Done;

/* -- copying --------------------------------------------------------------------------------------------------- */

/* Whether `count` steps from `start` stay within `length`. Nothing overflows: lengths are far below 2^62. */
static bool steps_fit(int64_t start, int64_t step, int64_t count, int64_t length) {
    if (count < 1 || start < 0 || start >= length || step < 1) return false;
    return count == 1 || step <= (length - 1 - start) / (count - 1);
}

static bool list_fits(const Call *call, int64_t at, int64_t count, int64_t length) {
    if (count < 1 || at > call->n_lists || count > call->n_lists - at) return false;
    for (int64_t i = at; i < at + count; i++)
        if (call->lists[i] < 0 || call->lists[i] >= length) return false;
    return true;
}

/* Add the axis of a span to a copy. False if it leaves the chunk or the result. */
static bool add_axis(const Call *call, const Span *span, int a, Copy *copy) {
    const Job *job = call->job;
    Axis axis = {.n = span->count, .src = job->chunk_stride[a], .dst = job->out_stride[a]};
    if (span->in_list >= 0) {
        if (!list_fits(call, span->in_list, span->count, job->chunk_shape[a])) return false;
        axis.in = call->lists + span->in_list;
    } else {
        if (!steps_fit(span->in_start, span->in_step, span->count, job->chunk_shape[a])) return false;
        copy->src_start += axis.src * span->in_start;
        if (span->count > 1) axis.src *= span->in_step;
    }
    if (span->out_list >= 0) {
        if (!list_fits(call, span->out_list, span->count, job->out_shape[a])) return false;
        axis.out = call->lists + span->out_list;
    } else {
        if (!steps_fit(span->out_start, span->out_step, span->count, job->out_shape[a])) return false;
        copy->dst += axis.dst * span->out_start;
        if (span->count > 1) axis.dst *= span->out_step;
    }
    if (span->count > 1 || axis.in || axis.out) copy->axis[copy->n++] = axis;
    return true;
}

static int64_t width(const Axis *axis) { return axis->dst < 0 ? -axis->dst : axis->dst; }

/* Put the axes in the order of the result's memory and merge those that are one: fewer, longer copies.
 * fill: the source is one element for all. */
static void simplify(Copy *copy, bool fill) {
    for (int i = 0; fill && i < copy->n; i++) copy->axis[i].src = 0;
    for (int i = 1; i < copy->n; i++)
        for (int j = i; j > 0 && width(&copy->axis[j - 1]) < width(&copy->axis[j]); j--) {
            Axis axis = copy->axis[j];
            copy->axis[j] = copy->axis[j - 1];
            copy->axis[j - 1] = axis;
        }
    while (copy->n) {
        const Axis *last = &copy->axis[copy->n - 1];
        if (last->in || last->out || last->dst != copy->run || (!fill && last->src != copy->run)) break;
        copy->run *= last->n;
        copy->n--;
    }
}

/* Copy `n` bytes, of which the source has `have`: it is repeated. */
static void put(char *dst, const char *src, int64_t n, int64_t have) {
    memcpy(dst, src, (size_t)have);
    for (int64_t done = have; done < n;) {
        const int64_t more = n - done < done ? n - done : done;
        memcpy(dst + done, dst, (size_t)more);
        done += more;
    }
}

#define STRIDED(size)                                                                                       \
    case size:                                                                                              \
        for (int64_t i = 0; i < axis->n; i++) memcpy(dst + i * axis->dst, src + i * axis->src, size); \
        return;

/* have: bytes of the source that there are of each run. */
static void copy_axes(const Axis *axis, int n, char *dst, const char *src, int64_t run, int64_t have) {
    if (!n) {
        put(dst, src, run, have);
        return;
    }
    if (n == 1 && run == have && !axis->in && !axis->out) {
        switch (run) {
            STRIDED(1)
            STRIDED(2)
            STRIDED(4)
            STRIDED(8)
            STRIDED(16)
        }
    }
    for (int64_t i = 0; i < axis->n; i++) {
        const int64_t from = axis->in ? axis->in[i] : i, to = axis->out ? axis->out[i] : i;
        copy_axes(axis + 1, n - 1, dst + to * axis->dst, src + from * axis->src, run, have);
    }
}

/* The elements of one chunk's points. False if one leaves the chunk or the result; those before it are copied. */
static bool copy_points(const Call *call, int64_t first, int64_t last, const char *chunk) {
    const Job *job = call->job;
    const int64_t *inside = call->inside, *order = call->order;
    char *out = (char *)(intptr_t)job->out;
    for (int64_t p = first; p < last; p++) {
        int64_t at = 0;
        if (order[p] < 0 || order[p] >= job->out_shape[0]) return false;
        for (int64_t a = 0; a < job->ndim; a++) {
            const int64_t i = inside[a * job->npoints + p];
            if (i < 0 || i >= job->chunk_shape[a]) return false;
            at += i * job->chunk_stride[a];
        }
        memcpy(out + order[p] * job->out_stride[0], chunk ? chunk + at : call->fill, (size_t)job->itemsize);
    }
    return true;
}

/* -- where the bytes are --------------------------------------------------------------------------------------- */

typedef enum { FOUND, ABSENT, ODD } Found;

static bool read_exactly(int fd, char *to, int64_t n, int64_t at) {
    while (n) {
        const ssize_t got = pread(fd, to, (size_t)(n < (1 << 28) ? n : 1 << 28), (off_t)at);
        if (got <= 0) return false; /* it ended early, failed, or a signal wants attention */
        to += got, at += got, n -= got;
    }
    return true;
}

/* Open a regular file. Returns: its descriptor; -1 if there is none, -2 if it is to be left. */
static int open_regular(const char *path, int64_t *size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? -1 : -2;
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        close(fd);
        return -2;
    }
    *size = info.st_size;
    return fd;
}

static bool make_path(const Call *call, const int64_t *coords, char *path) {
    const int64_t ndim = call->job->ndim;
    if (call->path_length + 21 * ndim >= MAX_PATH) return false;
    char *at = path + call->path_length;
    memcpy(path, call->path, (size_t)call->path_length);
    for (int64_t a = 0; a < ndim; a++) {
        char digits[20];
        int n = 0;
        if (coords[a] < 0) return false;
        for (uint64_t c = (uint64_t)coords[a]; n == 0 || c; c /= 10) digits[n++] = (char)('0' + c % 10);
        if (a) *at++ = (char)call->job->separator;
        while (n) *at++ = digits[--n];
    }
    *at = 0;
    return true;
}

/* Read what is stored of a chunk, into `into` if that is given, else into the encoded buffer. */
static Found take(const Job *job, int fd, int64_t start, int64_t size, char *into, State *state, char **data) {
    const bool fits = job->codec == PLAIN ? size == job->nbytes + CHECKSUM * job->checksum : size <= job->max_encoded;
    if (!fits) return ODD;
    *data = into ? into : state->encoded;
    state->taken = (uint64_t)size;
    return read_exactly(fd, *data, size, start) ? FOUND : ODD;
}

static Found fetch_file(const Call *call, const int64_t *coords, char *into, State *state, char **data, int64_t *size) {
    if (!make_path(call, coords, state->path)) return ODD;
    const int fd = open_regular(state->path, size);
    if (fd < 0) return fd == -1 ? ABSENT : ODD;
    const Found found = take(call->job, fd, 0, *size, into, state, data);
    close(fd);
    return found;
}

static Found fetch_entry(const Call *call, const int64_t *coords, char *into, State *state, char **data, int64_t *size) {
    if (!call->index) return ABSENT;
    const Window *window = call->window;
    uint64_t at = 0;
    for (int64_t a = 0; a < call->job->ndim; a++)
        at += ((uint64_t)coords[a] - (uint64_t)window->origin[a]) * (uint64_t)window->entry[a];
    if (at >= (uint64_t)call->n_index) return ODD;
    const uint64_t start = call->index[2 * at], length = call->index[2 * at + 1];
    if (start == MISSING) return ABSENT;
    if (state->fd == -1) state->fd = open_regular(call->path, &state->fd_size);
    if (state->fd < 0) return ODD;
    if (start > (uint64_t)state->fd_size || length > (uint64_t)state->fd_size - start) return ODD;
    *size = (int64_t)length;
    return take(call->job, state->fd, (int64_t)start, *size, into, state, data);
}

/* -- decoding -------------------------------------------------------------------------------------------------- */

static uint32_t number(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Whether a frame claims the chunk's size, or none, as of encoders that stream, and is the only one. */
static bool frame_is_plain(const char *data, size_t size, int64_t nbytes) {
    const unsigned long long claimed = lib.ZSTD_getFrameContentSize(data, size), unknown = -1;
    if (claimed != unknown) return claimed == (unsigned long long)nbytes;
    return lib.ZSTD_findFrameCompressedSize(data, size) == size;
}

/* Decode a chunk to exactly its size. False for anything that the Python path should look at. */
static bool decode(const Job *job, const char *data, int64_t size, char *to, State *state) {
    switch (job->codec) {
        case BLOSC:
            if (size < BLOSC_HEADER || number(data + 4) != job->nbytes || number(data + 12) != size) return false;
            return lib.blosc_decompress_ctx(data, to, (size_t)job->nbytes, 1) == job->nbytes;
        case ZSTD:
            if (!frame_is_plain(data, (size_t)size, job->nbytes)) return false;
            if (!state->zstd && !(state->zstd = lib.ZSTD_createDCtx())) return false;
            /* an error is a size that no chunk has */
            return lib.ZSTD_decompressDCtx(state->zstd, to, (size_t)job->nbytes, data, (size_t)size) ==
                   (size_t)job->nbytes;
        case LZ4:
            if (size < LZ4_HEADER || number(data) != job->nbytes) return false;
            return lib.LZ4_decompress_safe(data + LZ4_HEADER, to, (int)(size - LZ4_HEADER), (int)job->nbytes) ==
                   job->nbytes;
    }
    return false;
}

static void swap_bytes(char *data, int64_t nbytes, int64_t unit) {
    for (int64_t i = 0; i + unit <= nbytes; i += unit)
        for (int64_t low = i, high = i + unit - 1; low < high; low++, high--) {
            const char byte = data[low];
            data[low] = data[high];
            data[high] = byte;
        }
}

/* -- one part -------------------------------------------------------------------------------------------------- */

/* Fetch and decode a chunk. into: where it fills one run of the result, or NULL. Returns where it is in *chunk. */
static Found load(const Call *call, const int64_t *coords, char *into, State *state, char **chunk) {
    const Job *job = call->job;
    const bool plain = job->codec == PLAIN;
    int64_t size = 0;
    char *data = NULL, *direct = plain && !job->checksum ? into : NULL;
    const Found found = (call->sharded ? fetch_entry : fetch_file)(call, coords, direct, state, &data, &size);
    if (found != FOUND) return found;
    if (job->checksum) {
        size -= CHECKSUM;
        if (size < 0 || number(data + size) != lib.crc32c_value((const uint8_t *)data, (size_t)size)) return ODD;
    }
    *chunk = data;
    if (!plain) {
        *chunk = into ? into : state->decoded;
        if (!decode(job, data, size, *chunk, state)) return ODD;
    }
    if (job->swap) swap_bytes(*chunk, job->nbytes, job->swap);
    return FOUND;
}

static int do_box(const Call *call, int64_t part, State *state) {
    const Job *job = call->job;
    Copy copy = {.run = job->itemsize, .dst = (char *)(intptr_t)job->out};
    int64_t coords[MAX_NDIM];
    state->placed = (uint64_t)job->itemsize;
    for (int64_t a = job->ndim - 1; a >= 0; a--) {
        const int64_t n = call->window->n[a];
        const Span *span = call->spans + call->window->first[a] + part % n;
        part /= n;
        coords[a] = span->chunk;
        state->placed *= (uint64_t)span->count;
        if (!add_axis(call, span, (int)a, &copy)) return LEFT;
    }
    Copy whole = copy;
    simplify(&whole, false);
    const bool fills = !whole.n && whole.run == job->nbytes;
    char *chunk = NULL;
    switch (load(call, coords, fills ? whole.dst : NULL, state, &chunk)) {
        case FOUND:
            if (chunk != whole.dst)
                copy_axes(whole.axis, whole.n, whole.dst, chunk + whole.src_start, whole.run, whole.run);
            return PLACED;
        case ABSENT:
            simplify(&copy, true);
            copy_axes(copy.axis, copy.n, copy.dst, call->fill, copy.run, job->itemsize);
            return PLACED;
        default:
            return LEFT;
    }
}

static int do_points(const Call *call, int64_t row, State *state) {
    const Job *job = call->job;
    const int64_t first = call->starts[row], last = call->starts[row + 1];
    if (first < 0 || last < first || last > job->npoints) return LEFT;
    char *chunk = NULL;
    state->placed = (uint64_t)(last - first) * (uint64_t)job->itemsize;
    const Found found = load(call, call->rows + row * job->ndim, NULL, state, &chunk);
    if (found == ODD) return LEFT;
    return copy_points(call, first, last, found == ABSENT ? NULL : chunk) ? PLACED : LEFT;
}

static Done do_all(const Call *call, int64_t first, int64_t n, char *status, char *scratch) {
    int (*const do_one)(const Call *, int64_t, State *) = call->job->npoints < 0 ? do_box : do_points;
    State state = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    for (int64_t i = 0; i < n; i++) {
        state.taken = 0;
        status[i] = (char)do_one(call, first + i, &state);
        if (status[i] == PLACED)
            done.taken += state.taken, done.placed += state.placed;
        else
            done.left++;
    }
    if (state.fd >= 0) close(state.fd);
    if (state.zstd) lib.ZSTD_freeDCtx(state.zstd);
    return done;
}

/* -- the door -------------------------------------------------------------------------------------------------- */

static bool has_decoder(const Job *job) {
    if (job->checksum && !lib.crc32c_value) return false;
    switch (job->codec) {
        case PLAIN:
            return true;
        case BLOSC:
            return lib.blosc_decompress_ctx != NULL;
        case ZSTD:
            return lib.ZSTD_createDCtx && lib.ZSTD_freeDCtx && lib.ZSTD_decompressDCtx &&
                   lib.ZSTD_getFrameContentSize && lib.ZSTD_findFrameCompressedSize;
        case LZ4:
            return lib.LZ4_decompress_safe != NULL;
    }
    return false;
}

/* Whether every offset that the chunk's strides make lies in the chunk, and sizes are such that nothing overflows. */
static bool job_is_sound(const Job *job) {
    if (job->ndim < 1 || job->ndim > MAX_NDIM || job->itemsize < 1 || job->nbytes < 1 || job->nbytes > INT32_MAX / 2)
        return false;
    int64_t last = job->itemsize;
    for (int64_t a = 0; a < job->ndim; a++) {
        if (job->chunk_shape[a] < 1 || job->chunk_shape[a] > job->nbytes) return false;
        if (job->chunk_stride[a] < 0 || job->chunk_stride[a] > job->nbytes) return false;
        last += (job->chunk_shape[a] - 1) * job->chunk_stride[a];
        if (last > job->nbytes) return false;
    }
    return job->max_encoded >= job->nbytes + CHECKSUM && job->max_encoded <= INT32_MAX && job->swap >= 0 &&
           job->swap <= job->itemsize && has_decoder(job);
}

static bool box_is_sound(const Call *call, int64_t n_spans, int64_t first, int64_t n) {
    int64_t parts = 1;
    for (int64_t a = 0; a < call->job->ndim; a++) {
        const int64_t from = call->window->first[a], count = call->window->n[a];
        if (from < 0 || count < 1 || count > n_spans || from > n_spans - count) return false;
        if (parts > INT64_MAX / count) return false;
        parts *= count;
    }
    return first >= 0 && first <= parts && n <= parts - first;
}

/* read(job, window, table0, table1, table2, table3, path, index, fill, first, scratch, status) */
static PyObject *loop_read(PyObject *module, PyObject *args) {
    Py_buffer job, window, table[4], path, index, fill, scratch, status;
    long long first;
    Done done = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*z*y*Lw*w*", &job, &window, &table[0], &table[1], &table[2], &table[3],
                          &path, &index, &fill, &first, &scratch, &status))
        return NULL;
    const Job *j = job.buf;
    const Py_ssize_t word = sizeof(int64_t);
    bool sound = job.len == sizeof(Job) && window.len == sizeof(Window) && job_is_sound(j) &&
                 fill.len == j->itemsize && scratch.len >= j->max_encoded + j->nbytes;
    Call call = {
        .job = j,
        .window = window.buf,
        .path = path.buf,
        .path_length = path.len,
        .index = index.buf && index.len ? index.buf : NULL,
        .n_index = index.len / (2 * word),
        .sharded = index.buf != NULL,
        .fill = fill.buf,
    };
    if (sound && j->npoints < 0) {
        call.spans = table[0].buf;
        call.lists = table[1].buf;
        call.n_lists = table[1].len / word;
        sound = box_is_sound(&call, table[0].len / (Py_ssize_t)sizeof(Span), first, status.len);
    } else if (sound) {
        call.rows = table[0].buf;
        call.starts = table[1].buf;
        call.inside = table[2].buf;
        call.order = table[3].buf;
        const int64_t n_rows = table[0].len / (word * j->ndim);
        sound = table[1].len == (n_rows + 1) * word && table[3].len == j->npoints * word &&
                table[2].len == j->npoints * j->ndim * word && first >= 0 && first <= n_rows &&
                status.len <= n_rows - first;
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = do_all(&call, first, status.len, status.buf, scratch.buf);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 4; i++) PyBuffer_Release(&table[i]);
    PyBuffer_Release(&job);
    PyBuffer_Release(&window);
    PyBuffer_Release(&path);
    if (index.obj) PyBuffer_Release(&index);
    PyBuffer_Release(&fill);
    PyBuffer_Release(&scratch);
    PyBuffer_Release(&status);
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "the tables of a read do not fit each other");
        return NULL;
    }
    return Py_BuildValue("(LKK)", (long long)done.left, (unsigned long long)done.taken,
                         (unsigned long long)done.placed);
}

/* bind(addresses): of the functions of `lib`, in its order; 0 for one that is not there. */
static PyObject *loop_bind(PyObject *module, PyObject *args) {
    unsigned long long at[8];
    if (!PyArg_ParseTuple(args, "(KKKKKKKK)", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6], &at[7]))
        return NULL;
    lib.blosc_decompress_ctx = (int (*)(const void *, void *, size_t, int))(uintptr_t)at[0];
    lib.ZSTD_createDCtx = (void *(*)(void))(uintptr_t)at[1];
    lib.ZSTD_freeDCtx = (size_t(*)(void *))(uintptr_t)at[2];
    lib.ZSTD_decompressDCtx = (size_t(*)(void *, void *, size_t, const void *, size_t))(uintptr_t)at[3];
    lib.ZSTD_getFrameContentSize = (unsigned long long (*)(const void *, size_t))(uintptr_t)at[4];
    lib.ZSTD_findFrameCompressedSize = (size_t(*)(const void *, size_t))(uintptr_t)at[5];
    lib.LZ4_decompress_safe = (int (*)(const char *, char *, int, int))(uintptr_t)at[6];
    lib.crc32c_value = (uint32_t(*)(const uint8_t *, size_t))(uintptr_t)at[7];
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", loop_bind, METH_VARARGS, "Take the addresses of the decoders."},
    {"read", loop_read, METH_VARARGS, "Read parts of a plan. Returns how many of them were left, bytes read, bytes placed."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_loop",
    .m_doc = "Reads, decodes and places many small chunks without the interpreter.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loop(void) { return PyModuleDef_Init(&definition); }
