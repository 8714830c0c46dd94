/* Sorts points by the chunks that hold them, on several threads: see gzarr/cpu/compiled/points.py.
 *
 * Theory of operation. The key of a point is a number: its shard, its chunk there, and, of a large chunk, its granule.
 * Threads do three steps together. They make the keys and count the first digits of them, move every point to the bucket
 * of its digit, and sort within buckets and fill the tables. The points are cut into blocks for the first two steps, the
 * buckets into as many runs for the last one. A thread takes the next block that nobody has, and a step begins when the
 * one before is over. So threads wait for none that has not begun, and a single one does everything. The order is
 * stable: of points that are the same element the last one stays the last.
 */
#include "loop.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Bits of the first digit at most, and of those within buckets: their counters fit into the first cache. Buckets of few
 * points are sorted by insertion. */
enum { MAX_DIGIT = 13, SMALL_DIGIT = 8, MAX_INSERTED = 24 };
/* Points whose keys are made axis by axis: they stay in the first cache. */
enum { STRIP = 256 };
/* Smaller numbers can be divided by a multiplication of doubles, whose result is off by one at most. */
static const int64_t MAX_EXACT = (int64_t)1 << 50;

typedef struct {
    uint64_t key;
    uint32_t place, point; /* byte in the chunk, and number */
} Keyed;

enum { COUNT, MOVE, SORT, N_STEPS };

struct Sort {
    int64_t n, ndim, n_blocks, granule_bits, start;
    int bits, digit; /* of keys, and of their first digit */
    uint64_t of_shard[MAX_NDIM], of_chunk[MAX_NDIM];
    PointAxis axes[MAX_NDIM];
    Keyed *made, *moved;
    int64_t *counts;  /* (n_blocks, digits): of each block the points of each digit, and then where the next one goes */
    int64_t *buckets; /* (digits + 1,): where they begin, and where the last one ends */
    int64_t *n_rows;  /* (n_blocks,): of each run of buckets */
    /* What threads change together. */
    int64_t next[N_STEPS], done[N_STEPS], over[N_STEPS];
    int64_t failed;
};

/* -- keys ------------------------------------------------------------------------------------------------------ */

static int bits_of(uint64_t number) { return number ? 64 - __builtin_clzll(number) : 0; }

/* Find the parts of a key that is a sum: so many times the shard of each axis, and the chunk in it. Returns: how many
 * keys there are, 0 if they are too many. */
static uint64_t weigh(Sort *sort) {
    uint64_t total = (uint64_t)1 << sort->granule_bits;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t a = sort->ndim - 1; a >= 0; a--) {
            const PointAxis *axis = sort->axes + a;
            const int64_t n = pass ? (axis->extent - 1) / axis->shard + 1 : axis->shard / axis->chunk;
            (pass ? sort->of_shard : sort->of_chunk)[a] = total;
            if (total > ((uint64_t)1 << 62) / (uint64_t)n) return 0;
            total *= (uint64_t)n;
        }
    return total;
}

/* Whether the axes and the places in the chunks that follow from them are such that nothing overflows. */
static bool is_sound(const Sort *sort) {
    if (sort->n < 1 || sort->n > UINT32_MAX || sort->granule_bits < 0 || sort->granule_bits > 16) return false;
    if (sort->n_blocks < 1 || sort->n_blocks > sort->n || sort->start < 0 || sort->start > INT32_MAX) return false;
    int64_t last = sort->start;
    for (int64_t a = 0; a < sort->ndim; a++) {
        const PointAxis *axis = sort->axes + a;
        if (axis->extent < 1 || axis->extent > MAX_EXACT || axis->chunk < 1 || axis->chunk > INT32_MAX) return false;
        if (axis->shard < axis->chunk || axis->shard > MAX_EXACT || axis->shard % axis->chunk) return false;
        if (axis->stride < 0 || axis->stride > INT32_MAX) return false;
        last += (axis->chunk - 1) * axis->stride;
        if (last > INT32_MAX) return false;
    }
    return !sort->granule_bits || last < (int64_t)GRANULE << sort->granule_bits;
}

static int64_t divide(int64_t number, int64_t by, double inverse) {
    const int64_t quotient = (int64_t)((double)number * inverse), rest = number - quotient * by;
    return quotient + (rest >= by) - (rest < 0);
}

/* Copy coordinates along an axis: others may change them, so what is looked at is not read again. False if one leaves the
 * array. */
static bool take_coordinates(const int64_t *coords, int64_t n, int64_t extent, int64_t *to) {
    uint64_t outside = 0;
    for (int64_t i = 0; i < n; i++) {
        to[i] = coords[i];
        outside |= (uint64_t)to[i] >= (uint64_t)extent;
    }
    return !outside;
}

/* Add what one axis says of some points, STRIP at most, to their keys and places. False if one leaves the array. */
static bool add_coordinates(const Sort *sort, int64_t a, const int64_t *from, int64_t n, Keyed *to) {
    const PointAxis axis = sort->axes[a];
    const int64_t per_shard = axis.shard / axis.chunk;
    const uint64_t of_shard = sort->of_shard[a], of_chunk = sort->of_chunk[a];
    const double inverse = 1.0 / (double)axis.chunk, inverse_of_shard = 1.0 / (double)per_shard;
    int64_t coords[STRIP];
    if (!take_coordinates(from, n, axis.extent, coords)) return false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t chunk = divide(coords[i], axis.chunk, inverse);
        to[i].place += (uint32_t)((coords[i] - chunk * axis.chunk) * axis.stride);
        if (per_shard == 1) {
            to[i].key += (uint64_t)chunk * of_shard;
            continue;
        }
        const int64_t shard = divide(chunk, per_shard, inverse_of_shard);
        to[i].key += (uint64_t)shard * of_shard + (uint64_t)(chunk - shard * per_shard) * of_chunk;
    }
    return true;
}

/* -- steps ----------------------------------------------------------------------------------------------------- */

static int64_t bound(const Sort *sort, int64_t block) {
    return sort->n / sort->n_blocks * block + sort->n % sort->n_blocks * block / sort->n_blocks;
}

static int64_t digit_of(const Sort *sort, uint64_t key) { return (int64_t)(key >> (sort->bits - sort->digit)); }

static void count_block(Sort *sort, const Points *points, int64_t block) {
    const int64_t last = bound(sort, block + 1);
    int64_t *counts = sort->counts + (block << sort->digit);
    memset(counts, 0, sizeof(int64_t) << sort->digit);
    for (int64_t first = bound(sort, block), n; first < last; first += n) {
        n = last - first < STRIP ? last - first : STRIP;
        Keyed *made = sort->made + first;
        for (int64_t i = 0; i < n; i++)
            made[i] = (Keyed){.place = (uint32_t)sort->start, .point = (uint32_t)(first + i)};
        for (int64_t a = 0; a < sort->ndim; a++)
            if (!add_coordinates(sort, a, points->coords[a] + first, n, made)) {
                __atomic_store_n(&sort->failed, 1, __ATOMIC_RELAXED);
                return;
            }
        for (int64_t i = 0; i < n; i++) {
            if (sort->granule_bits) made[i].key += made[i].place / GRANULE;
            counts[digit_of(sort, made[i].key)]++;
        }
    }
}

/* Say where the points of every digit of every block go. */
static void add_counts(Sort *sort) {
    const int64_t digits = (int64_t)1 << sort->digit;
    int64_t at = 0;
    for (int64_t digit = 0; digit < digits; digit++) {
        sort->buckets[digit] = at;
        for (int64_t block = 0; block < sort->n_blocks; block++) {
            int64_t *count = sort->counts + block * digits + digit;
            const int64_t n = *count;
            *count = at, at += n;
        }
    }
    sort->buckets[digits] = at;
}

static void move_block(Sort *sort, int64_t block) {
    const int64_t last = bound(sort, block + 1);
    int64_t *next = sort->counts + (block << sort->digit);
    for (int64_t i = bound(sort, block); i < last; i++)
        sort->moved[next[digit_of(sort, sort->made[i].key)]++] = sort->made[i];
}

static void insert_each(Keyed *points, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const Keyed point = points[i];
        int64_t at = i;
        for (; at > 0 && points[at - 1].key > point.key; at--) points[at] = points[at - 1];
        points[at] = point;
    }
}

/* Sort by one digit of the keys. */
static void sort_digit(const Keyed *from, Keyed *to, int64_t n, int shift, int bits) {
    int64_t counts[1 << SMALL_DIGIT];
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(counts, 0, sizeof(int64_t) << bits);
    for (int64_t i = 0; i < n; i++) counts[from[i].key >> shift & mask]++;
    for (int64_t digit = 0, start = 0, count; digit <= (int64_t)mask; digit++, start += count) {
        count = counts[digit];
        counts[digit] = start;
    }
    for (int64_t i = 0; i < n; i++) to[counts[from[i].key >> shift & mask]++] = from[i];
}

/* Sort a bucket by what is left of its keys. Returns: where it is then. */
static const Keyed *sort_bucket(const Sort *sort, int64_t first, int64_t n) {
    Keyed *from = sort->moved + first, *to = sort->made + first;
    const int bits = sort->bits - sort->digit;
    if (n <= MAX_INSERTED && bits) insert_each(from, n);
    if (n <= MAX_INSERTED) return from;
    for (int shift = 0; shift < bits; shift += SMALL_DIGIT) {
        sort_digit(from, to, n, shift, bits - shift < SMALL_DIGIT ? bits - shift : SMALL_DIGIT);
        Keyed *other = from;
        from = to, to = other;
    }
    return from;
}

/* The first bucket that begins at a point or behind it. */
static int64_t find_bucket(const Sort *sort, int64_t point) {
    int64_t low = 0, high = (int64_t)1 << sort->digit;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (sort->buckets[middle] < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sort a run of buckets and fill the tables, of which the rows stand from that of the run's first point on. A chunk may
 * begin in the run before. */
static void sort_run(Sort *sort, const Points *points, int64_t run) {
    const int64_t end = find_bucket(sort, bound(sort, run + 1));
    int64_t bucket = find_bucket(sort, bound(sort, run));
    const int64_t first = sort->buckets[bucket];
    int64_t n_rows = 0;
    uint64_t before = UINT64_MAX;
    for (; bucket < end; bucket++) {
        const int64_t from = sort->buckets[bucket], n = sort->buckets[bucket + 1] - from;
        const Keyed *sorted = sort_bucket(sort, from, n);
        for (int64_t i = 0; i < n; i++) {
            const Keyed *point = sorted + i;
            points->places[from + i] = point->place;
            points->order[from + i] = point->point;
            if (point->key >> sort->granule_bits == before) continue;
            before = point->key >> sort->granule_bits;
            int64_t *row = points->rows + (first + n_rows) * sort->ndim;
            for (int64_t a = 0; a < sort->ndim; a++) row[a] = points->coords[a][point->point] / sort->axes[a].chunk;
            points->starts[first + n_rows++] = from + i;
        }
    }
    sort->n_rows[run] = n_rows;
}

/* Join the rows of all runs. Returns: how many there are. */
static int64_t join_rows(const Sort *sort, const Points *points) {
    const int64_t ndim = sort->ndim;
    int64_t n_rows = 0;
    for (int64_t run = 0; run < sort->n_blocks; run++) {
        int64_t from = sort->buckets[find_bucket(sort, bound(sort, run))], n = sort->n_rows[run];
        if (!n) continue;
        if (n_rows && !memcmp(points->rows + (n_rows - 1) * ndim, points->rows + from * ndim, (size_t)ndim * sizeof(int64_t)))
            from++, n--;
        memmove(points->rows + n_rows * ndim, points->rows + from * ndim, (size_t)(n * ndim) * sizeof(int64_t));
        memmove(points->starts + n_rows, points->starts + from, (size_t)n * sizeof(int64_t));
        n_rows += n;
    }
    points->starts[n_rows] = sort->n;
    return n_rows;
}

/* -- threads --------------------------------------------------------------------------------------------------- */

static void do_block(Sort *sort, const Points *points, int step, int64_t block) {
    if (__atomic_load_n(&sort->failed, __ATOMIC_RELAXED)) return;
    if (step == COUNT) count_block(sort, points, block);
    if (step == MOVE) move_block(sort, block);
    if (step == SORT) sort_run(sort, points, block);
}

/* What one thread does when all blocks of a step are done. */
static void end_step(Sort *sort, const Points *points, int step) {
    const bool failed = __atomic_load_n(&sort->failed, __ATOMIC_RELAXED);
    if (step == COUNT && !failed) add_counts(sort);
    __atomic_store_n(&sort->over[step], step == SORT && !failed ? join_rows(sort, points) : 1, __ATOMIC_RELEASE);
}

/* Sort points together with the other threads that call this. Returns: number of chunks that hold some, -2 if the points
 * leave the array. */
int64_t sort_points(Sort *sort, const Points *points) {
    for (int step = 0; step < N_STEPS; step++) {
        int64_t block;
        while ((block = __atomic_fetch_add(&sort->next[step], 1, __ATOMIC_RELAXED)) < sort->n_blocks) {
            do_block(sort, points, step, block);
            if (__atomic_add_fetch(&sort->done[step], 1, __ATOMIC_ACQ_REL) == sort->n_blocks) end_step(sort, points, step);
        }
        while (!__atomic_load_n(&sort->over[step], __ATOMIC_ACQUIRE)) sched_yield();
    }
    return sort->failed ? -2 : sort->over[SORT];
}

/* Begin to sort `n` points in so many blocks. start: see gzarr/cpu/compiled/points.py. Returns: NULL if there is no memory;
 * `sound` is false if axes do not fit each other or there are too many keys. */
Sort *new_sort(const PointAxis *axes, int64_t ndim, const int64_t numbers[4], bool *sound) {
    Sort *sort = calloc(1, sizeof *sort);
    if (!sort) return NULL;
    sort->n = numbers[0], sort->n_blocks = numbers[1], sort->granule_bits = numbers[2], sort->start = numbers[3];
    sort->ndim = ndim;
    memcpy(sort->axes, axes, (size_t)ndim * sizeof *axes);
    uint64_t n_keys = is_sound(sort) ? weigh(sort) : 0;
    *sound = n_keys != 0;
    if (!*sound) return sort;
    sort->bits = bits_of(n_keys - 1);
    /* One thread adds the counts of all blocks: these are to be fewer than the points. */
    const int most = bits_of((uint64_t)(sort->n / sort->n_blocks / 4));
    sort->digit = sort->bits < most ? sort->bits : most;
    sort->digit = sort->digit < MAX_DIGIT ? sort->digit : MAX_DIGIT;
    const int64_t digits = (int64_t)1 << sort->digit;
    const size_t n_counts = (size_t)(sort->n_blocks * digits + digits + 1 + sort->n_blocks);
    sort->made = malloc(2 * (size_t)sort->n * sizeof(Keyed) + n_counts * sizeof(int64_t));
    if (!sort->made) {
        free(sort);
        return NULL;
    }
    sort->moved = sort->made + sort->n;
    sort->counts = (int64_t *)(sort->moved + sort->n);
    sort->buckets = sort->counts + sort->n_blocks * digits;
    sort->n_rows = sort->buckets + digits + 1;
    return sort;
}

int64_t points_of_sort(const Sort *sort) { return sort->n; }
int64_t axes_of_sort(const Sort *sort) { return sort->ndim; }

void free_sort(Sort *sort) {
    free(sort->made);
    free(sort);
}
