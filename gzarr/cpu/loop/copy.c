/* Copies between chunks and arrays, and the places of chunks. */
#include "loop.h"

#include <string.h>

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
bool add_axis(const Call *call, const Span *span, int a, Copy *copy) {
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
void simplify(Copy *copy, bool fill) {
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

/* Where in the source the last byte ends that a copy takes. */
int64_t end_of(const Copy *copy) {
    int64_t end = copy->src_start + copy->run;
    for (int a = 0; a < copy->n; a++) {
        const Axis *axis = &copy->axis[a];
        int64_t last = axis->in ? 0 : axis->n - 1;
        for (int64_t i = 0; axis->in && i < axis->n; i++) last = axis->in[i] > last ? axis->in[i] : last;
        end += last * axis->src;
    }
    return end;
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
void copy_axes(const Axis *axis, int n, char *dst, const char *src, int64_t run, int64_t have) {
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

/* Reverse the bytes of every unit. */
void swap_bytes(char *data, int64_t nbytes, int64_t unit) {
    for (int64_t i = 0; i + unit <= nbytes; i += unit)
        for (int64_t low = i, high = i + unit - 1; low < high; low++, high--) {
            const char byte = data[low];
            data[low] = data[high];
            data[high] = byte;
        }
}

/* The path of a chunk's file, a string in MAX_PATH bytes. False if it is too long. */
bool make_path(const Call *call, const int64_t *coords, char *path) {
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

/* Which entry of a shard's index is a chunk's. False if none is. */
bool find_entry(const Call *call, const int64_t *coords, uint64_t *at) {
    const Window *window = call->window;
    *at = 0;
    for (int64_t a = 0; a < call->job->ndim; a++)
        *at += ((uint64_t)coords[a] - (uint64_t)window->origin[a]) * (uint64_t)window->entry[a];
    return *at < (uint64_t)call->n_index;
}

/* Where a chunk of a shard of so many bytes is. at: a number below n_index. ODD if it is not within the shard. */
Found look_up(const Call *call, uint64_t at, int64_t shard_size, uint64_t *start, int64_t *size) {
    uint64_t entry[2]; /* a copy, as an index may lie anywhere in a shard */
    memcpy(entry, (const char *)call->index + at * sizeof entry, sizeof entry);
    *start = entry[0];
    if (*start == MISSING) return ABSENT;
    if (*start > (uint64_t)shard_size || entry[1] > (uint64_t)shard_size - *start) return ODD;
    *size = (int64_t)entry[1];
    return FOUND;
}
