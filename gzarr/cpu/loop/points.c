/* Reads points, and lays them over chunks.
 *
 * Points of one chunk stand together, and within a large chunk those of one granule (sort.c), so that few of its blocks
 * are in cache at a time.
 */
#include "loop.h"

#include <string.h>

/* Put the values of some points, which fit, into a chunk; of several for one element the last one stays. */
void scatter_points(const Call *call, int64_t first, int64_t last, char *chunk) {
    const char *value = (const char *)(intptr_t)call->job->out;
    const size_t size = (size_t)element_size(call);
    for (int64_t p = first; p < last; p++)
        memcpy(chunk + call->places[p], value + call->order[p] * call->job->out_stride[0], size);
}

/* Whether all points of a chunk lie in it and in the result. end: where the last byte ends that they are. */
static bool points_fit(const Call *call, int64_t first, int64_t last, int64_t *end) {
    const Job *job = call->job;
    bool fit = true;
    int64_t furthest = 0;
    for (int64_t p = first; p < last; p++) {
        const int64_t at = call->places[p];
        fit &= at >= 0 && at <= job->nbytes - element_size(call) && call->order[p] >= 0 && call->order[p] < job->out_shape[0];
        furthest = at > furthest ? at : furthest;
    }
    *end = furthest + element_size(call);
    return fit;
}

/* Find the points of a row. end: as in `points_fit`. False if they are not in the tables, the chunk or the array. */
bool find_points(const Call *call, int64_t row, int64_t *first, int64_t *last, int64_t *end) {
    *first = call->starts[row], *last = call->starts[row + 1];
    return *first >= 0 && *last > *first && *last <= call->job->npoints && points_fit(call, *first, *last, end);
}

static void fill_points(const Call *call, int64_t first, int64_t last) {
    char *out = (char *)(intptr_t)call->job->out;
    for (int64_t p = first; p < last; p++)
        memcpy(out + call->order[p] * call->job->out_stride[0], call->fill, (size_t)out_size(call));
}

int read_points(const Call *call, int64_t row, Reader *reader) {
    const Job *job = call->job;
    int64_t first, last, end;
    if (!find_points(call, row, &first, &last, &end)) return LEFT;
    reader->placed = (uint64_t)(last - first) * (uint64_t)out_size(call);
    Stored stored;
    const Found found = find_stored(call, call->coords + row * job->ndim, reader, &stored);
    if (found == ODD) return LEFT;
    if (found == ABSENT) {
        fill_points(call, first, last);
        return DONE;
    }
    char *chunk = NULL;
    bool done = reads_blockwise(job, &stored) && copy_blocks_of_points(call, &stored, first, last, reader);
    if (!done) {
        done = load_stored(job, &stored, NULL, (Extent){0, end}, reader, &chunk);
        if (done) gather_points(call, first, last, chunk);
    }
    leave_stored(call, &stored);
    return done ? DONE : LEFT;
}
