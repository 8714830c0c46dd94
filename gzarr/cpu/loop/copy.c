/* Copies between decoded chunks and arrays: boxes and points, cast on the way where that is wanted. */
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

/* Where in a chunk the first byte lies that a copy takes, and where the last ends. */
Extent extent_of(const Copy *copy) {
    Extent extent = {.begin = copy->src_start, .end = copy->src_start + copy->run};
    for (int a = 0; a < copy->n; a++) {
        const Axis *axis = &copy->axis[a];
        int64_t first = axis->in ? axis->in[0] : 0, last = axis->in ? first : axis->n - 1;
        for (int64_t i = 0; axis->in && i < axis->n; i++) {
            first = axis->in[i] < first ? axis->in[i] : first;
            last = axis->in[i] > last ? axis->in[i] : last;
        }
        const int64_t from = first * axis->src, to = last * axis->src;
        extent.begin += from < to ? from : to, extent.end += from < to ? to : from;
    }
    return extent;
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

static void cast_axes(const Axis *axis, int n, char *dst, const char *src, CastRun cast) {
    if (!n || (n == 1 && !axis->in && !axis->out)) {
        cast(dst, src, n ? axis->n : 1, n ? axis->dst : 0, n ? axis->src : 0);
        return;
    }
    for (int64_t i = 0; i < axis->n; i++) {
        const int64_t from = axis->in ? axis->in[i] : i, to = axis->out ? axis->out[i] : i;
        cast_axes(axis + 1, n - 1, dst + to * axis->dst, src + from * axis->src, cast);
    }
}

/* Cast what a copy takes. src: its first element. */
void cast_box(Copy *copy, const char *src) {
    while (copy->n > 1) { /* the last two axes are one */
        Axis *last = &copy->axis[copy->n - 1], *before = last - 1;
        if (before->in || before->out || last->in || last->out) break;
        if (before->src != last->src * last->n || before->dst != last->dst * last->n) break;
        *before = (Axis){.n = before->n * last->n, .src = last->src, .dst = last->dst};
        copy->n--;
    }
    cast_axes(copy->axis, copy->n, copy->dst, src, copy->cast);
}

#define GATHER(size)                                                                                          \
    case size:                                                                                                \
        for (int64_t p = first; p < last; p++)                                                                \
            memcpy(out + order[p] * stride, chunk + places[p], size);                                         \
        return;

/* Copy the elements of some points, whose places are in the chunk and in the result. */
void gather_points(const Call *call, int64_t first, int64_t last, const char *chunk) {
    const int64_t *places = call->places, *order = call->order, stride = call->job->out_stride[0];
    char *out = (char *)(intptr_t)call->job->out;
    const CastRun cast = call->element.cast;
    if (cast) {
        for (int64_t p = first; p < last; p++) cast(out + order[p] * stride, chunk + places[p], 1, 0, 0);
        return;
    }
    switch (element_size(call)) {
        GATHER(1)
        GATHER(2)
        GATHER(4)
        GATHER(8)
        GATHER(16)
    }
    for (int64_t p = first; p < last; p++)
        memcpy(out + order[p] * stride, chunk + places[p], (size_t)element_size(call));
}

/* Copy the points of a range of a chunk. next: the first one that may lie there; it moves on. Returns: how many. */
int64_t copy_points_of(const Call *call, int64_t begin, int64_t end, const char *data, int64_t *next, int64_t last) {
    int64_t done = 0, p = *next, from = -1;
    while (p < last && call->places[p] / GRANULE < begin / GRANULE) p++;
    *next = p;
    for (; p < last && call->places[p] / GRANULE <= (end - 1) / GRANULE; p++) {
        const bool inside = call->places[p] >= begin && call->places[p] + element_size(call) <= end;
        if (inside && from < 0) from = p;
        if (inside) continue;
        if (from >= 0) gather_points(call, from, p, data - begin), done += p - from;
        from = -1;
    }
    if (from >= 0) gather_points(call, from, p, data - begin), done += p - from;
    return done;
}

/* Gather rows of so many elements. False if a row is not there; those before it are copied. */
bool take_rows(const Taking *taking) {
    const int64_t from = taking->elements * taking->from_size, to = taking->elements * taking->to_size;
    for (int64_t i = 0; i < taking->n; i++) {
        const int64_t slot = taking->slots[i];
        if (slot < 0 || slot >= taking->n_rows) return false;
        const char *src = taking->pool + slot * from;
        char *dst = taking->out + i * to;
        if (taking->cast)
            taking->cast(dst, src, taking->elements, taking->to_size, taking->from_size);
        else
            memcpy(dst, src, (size_t)to);
    }
    return true;
}
