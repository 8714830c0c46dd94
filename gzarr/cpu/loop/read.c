/* Reads the parts of a call: see loop.h. */
#include "loop.h"

#include <string.h>

static int do_box(const Call *call, int64_t part, Reader *reader) {
    const Job *job = call->job;
    const Element element = call->element;
    Copy copy = {
        .run = element_size(call), .src_start = element.start, .dst = (char *)(intptr_t)job->out, .cast = element.cast};
    int64_t coords[MAX_NDIM];
    reader->placed = (uint64_t)out_size(call);
    for (int64_t a = job->ndim - 1; a >= 0; a--) {
        const int64_t n = call->window->n[a];
        const Span *span = call->spans;
        if (call->part_spans)
            span += call->part_spans[reader->number * job->ndim + a];
        else
            span += call->window->first[a] + part % n, part /= n;
        coords[a] = span->chunk;
        reader->placed *= (uint64_t)span->count;
        if (!add_axis(call, span, (int)a, &copy)) return LEFT;
    }
    Stored stored;
    const Found found = find_stored(call, coords, reader, &stored);
    if (found == FOUND) {
        const bool copied = copy_stored(job, &stored, &copy, reader);
        leave_stored(call, &stored);
        return copied ? DONE : LEFT;
    }
    if (found == ODD) return LEFT;
    copy.run = out_size(call);
    simplify(&copy, true);
    copy_axes(copy.axis, copy.n, copy.dst, call->fill, copy.run, out_size(call));
    return DONE;
}

Done read_all(const Call *call, int64_t first, int64_t n, char *status, char *scratch) {
    int (*const do_one)(const Call *, int64_t, Reader *) =
        call->copies ? do_copies : call->job->npoints < 0 ? do_box : do_points;
    Reader reader = {.encoded = scratch, .decoded = scratch + call->job->max_encoded, .fd = -1};
    Done done = {0};
    if (call->version) reader.fd = open_regular(call->path, &reader.shard_size);
    bool sound = !call->version || (reader.fd >= 0 && is_version(call, reader.fd));
    for (int64_t i = 0; sound && i < n; i++) {
        reader.taken = 0, reader.number = i;
        status[i] = (char)do_one(call, first + i, &reader);
        if (status[i] == DONE)
            done.taken += reader.taken, done.placed += reader.placed;
        else
            done.left++;
    }
    if (!sound || (call->version && !is_version(call, reader.fd))) {
        memset(status, LEFT, (size_t)n);
        done = (Done){.left = n};
    }
    close_reader(&reader);
    return done;
}
