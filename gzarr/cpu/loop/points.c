/* Points: sorts them by the chunks that hold them, and gathers them out of decoded chunks.
 *
 * Points of one chunk stand together, and within a large chunk those of one granule, so that few of its blocks are in
 * cache at a time. The order is stable: of points that are the same element the last one stays the last.
 */
#include "loop.h"

#include <stdlib.h>
#include <string.h>

/* Bits of a key that one pass sorts by at most: the counters fit into the first cache. */
enum { MAX_DIGIT = 13 };
/* Smaller numbers can be divided by a multiplication of doubles, whose result is off by one at most. */
static const int64_t MAX_EXACT = (int64_t)1 << 50;

/* -- sorting --------------------------------------------------------------------------------------------------- */

static int64_t divide(int64_t number, int64_t by, double inverse) {
    const int64_t quotient = (int64_t)((double)number * inverse), rest = number - quotient * by;
    return quotient + (rest >= by) - (rest < 0);
}

static int bits_of(uint64_t number) { return number ? 64 - __builtin_clzll(number) : 0; }

/* Find the parts of a key that is a sum: so many times the shard of each axis, and the chunk in it. Returns: how many
 * keys there are, 0 if they are too many. */
static uint64_t weigh(const Points *points, uint64_t *shards, uint64_t *chunks) {
    uint64_t total = (uint64_t)1 << points->granule_bits;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t a = points->ndim - 1; a >= 0; a--) {
            const PointAxis *axis = points->axes + a;
            const int64_t n = pass ? (axis->extent - 1) / axis->shard + 1 : axis->shard / axis->chunk;
            (pass ? shards : chunks)[a] = total;
            if (total > ((uint64_t)1 << 62) / (uint64_t)n) return 0;
            total *= (uint64_t)n;
        }
    return total;
}

/* Add what one axis says of every point to its key and to its place in the chunk. False if one leaves the array. */
static bool add_coordinates(const Points *points, int64_t a, uint64_t of_shard, uint64_t of_chunk, uint64_t *keys,
                            int64_t *places) {
    const PointAxis axis = points->axes[a];
    const int64_t *coords = points->coords[a], per_shard = axis.shard / axis.chunk;
    const double inverse = 1.0 / (double)axis.chunk, inverse_of_shard = 1.0 / (double)per_shard;
    bool sound = true;
    for (int64_t i = 0; i < points->n; i++) sound &= coords[i] >= 0 && coords[i] < axis.extent;
    for (int64_t i = 0; sound && i < points->n; i++) {
        const int64_t chunk = divide(coords[i], axis.chunk, inverse);
        const int64_t shard = per_shard == 1 ? chunk : divide(chunk, per_shard, inverse_of_shard);
        keys[i] += (uint64_t)shard * of_shard + (uint64_t)(chunk - shard * per_shard) * of_chunk;
        places[i] += (coords[i] - chunk * axis.chunk) * axis.stride;
    }
    return sound;
}

/* Sort points by some bits of their keys. from: in which order they are; NULL for that of their numbers. */
static void sort_digit(const uint64_t *keys, const int64_t *from, int64_t *to, int64_t n, int shift, int bits) {
    int64_t counts[1 << MAX_DIGIT] = {0};
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < n; i++) counts[keys[i] >> shift & mask]++;
    for (int64_t digit = 0, start = 0, count; digit <= (int64_t)mask; digit++, start += count) {
        count = counts[digit];
        counts[digit] = start;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t point = from ? from[i] : i;
        to[counts[keys[point] >> shift & mask]++] = point;
    }
}

/* Sort points by keys of so many bits. other: room for another order. */
static void sort_keys(const Points *points, const uint64_t *keys, int bits, int64_t *other) {
    const int passes = bits ? (bits + MAX_DIGIT - 1) / MAX_DIGIT : 1, digit = (bits + passes - 1) / passes;
    int64_t *from = NULL;
    for (int pass = 0; pass < passes; pass++) {
        int64_t *to = (passes - pass) % 2 ? points->order : other;
        sort_digit(keys, from, to, points->n, pass * digit, digit);
        from = to;
    }
}

/* Fill the tables once the order is known. Returns: number of rows. */
static int64_t note_points(const Points *points, const uint64_t *keys, const int64_t *places) {
    int64_t n_rows = 0;
    uint64_t before = 0;
    for (int64_t i = 0; i < points->n; i++) {
        const int64_t point = points->order[i];
        const uint64_t chunk = keys[point] >> points->granule_bits;
        points->places[i] = places[point];
        if (i && chunk == before) continue;
        before = chunk;
        for (int64_t a = 0; a < points->ndim; a++)
            points->rows[n_rows * points->ndim + a] = points->coords[a][point] / points->axes[a].chunk;
        points->starts[n_rows++] = i;
    }
    points->starts[n_rows] = points->n;
    return n_rows;
}

/* Sort points. Returns: number of chunks that hold some, -1 if there is no memory, -2 if the points leave the array or
 * have too many keys. */
int64_t sort_points(const Points *points) {
    uint64_t of_shard[MAX_NDIM], of_chunk[MAX_NDIM];
    const uint64_t n_keys = weigh(points, of_shard, of_chunk);
    const size_t n = (size_t)points->n;
    if (!n_keys || n > SIZE_MAX / (4 * sizeof(int64_t))) return -2;
    uint64_t *keys = malloc(3 * n * sizeof(uint64_t));
    if (!keys) return -1;
    int64_t *places = (int64_t *)(keys + n), n_rows = -2;
    memset(keys, 0, 2 * n * sizeof(uint64_t));
    bool sound = true;
    for (int64_t a = 0; sound && a < points->ndim; a++)
        sound = add_coordinates(points, a, of_shard[a], of_chunk[a], keys, places);
    if (sound) {
        for (int64_t i = 0; i < points->n && points->granule_bits; i++) keys[i] += (uint64_t)(places[i] / GRANULE);
        sort_keys(points, keys, bits_of(n_keys - 1), places + n);
        n_rows = note_points(points, keys, places);
    }
    free(keys);
    return n_rows;
}

/* Whether the axes and the places in the chunks that follow from them are such that nothing overflows. */
bool points_are_sound(const Points *points) {
    if (points->n < 1 || points->granule_bits < 0 || points->granule_bits > 16) return false;
    int64_t last = 0;
    for (int64_t a = 0; a < points->ndim; a++) {
        const PointAxis *axis = points->axes + a;
        if (axis->extent < 1 || axis->extent > MAX_EXACT || axis->chunk < 1 || axis->chunk > INT32_MAX) return false;
        if (axis->shard < axis->chunk || axis->shard > MAX_EXACT || axis->shard % axis->chunk) return false;
        if (axis->stride < 0 || axis->stride > INT32_MAX) return false;
        last += (axis->chunk - 1) * axis->stride;
        if (last > INT32_MAX) return false;
    }
    return !points->granule_bits || last < (int64_t)GRANULE << points->granule_bits;
}

/* -- gathering ------------------------------------------------------------------------------------------------- */

#define GATHER(size)                                                                                          \
    case size:                                                                                                \
        for (int64_t p = first; p < last; p++)                                                                \
            memcpy(out + order[p] * stride, chunk + places[p], size);                                         \
        return;

/* Copy the elements of some points, whose places are in the chunk and in the result. */
static void gather_points(const Call *call, int64_t first, int64_t last, const char *chunk) {
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

static void fill_points(const Call *call, int64_t first, int64_t last) {
    char *out = (char *)(intptr_t)call->job->out;
    for (int64_t p = first; p < last; p++)
        memcpy(out + call->order[p] * call->job->out_stride[0], call->fill, (size_t)out_size(call));
}

int do_points(const Call *call, int64_t row, Reader *reader) {
    const Job *job = call->job;
    int64_t first, last, end;
    if (!find_points(call, row, &first, &last, &end)) return LEFT;
    reader->placed = (uint64_t)(last - first) * (uint64_t)out_size(call);
    Stored stored;
    const Found found = find_stored(call, call->rows + row * job->ndim, reader, &stored);
    if (found == ODD) return LEFT;
    if (found == ABSENT) {
        fill_points(call, first, last);
        return DONE;
    }
    char *chunk = NULL;
    bool done = reads_blockwise(job, &stored) && copy_blocks_of_points(call, &stored, first, last, reader);
    if (!done) {
        done = load_stored(job, &stored, NULL, end, reader, &chunk);
        if (done) gather_points(call, first, last, chunk);
    }
    leave_stored(call, &stored);
    return done ? DONE : LEFT;
}
