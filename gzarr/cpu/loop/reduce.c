/* Reduces windows of a block to one element each (gzarr/cpu/windows.py is the same in NumPy).
 *
 * The innermost axis makes rows of windows. What a window has on the other axes are its own rows, in C order, which is
 * the order that floats are added in. Where an axis ends within a window, the window has what is there. */
#include "half.h"
#include "loop.h"

#include <math.h>
#include <stdlib.h>

/* A row of windows: window j has `factor` elements from number j * factor on of each of its rows. Steps in bytes. */
typedef struct {
    const char **rows;
    int64_t n_rows;
    int64_t n, factor, step;
    char *out;
    int64_t out_step;
    int kind;
} Row;

typedef void (*Reducer)(const Row *row, void *scratch);

enum { UNSIGNED_KIND, SIGNED_KIND, FLOAT_KIND, N_KINDS };
enum { MEAN, MODE, MIN, MAX, MEDIAN, N_METHODS };
enum { AT_ONCE = 512, KEYS_AT_ONCE = 64 }; /* windows whose sums, or elements, are in cache */
/* Below a trailing axis of so many elements, such as the colours of a pixel, windows beside each other make a row. */
enum { MIN_RUN = 16 };
/* Larger windows are left to NumPy: sums of integers might overflow; runs are counted in elements of 8 bits, too, and
 * a network that sorts many keys is slow. */
static const int64_t max_count = 1 << 15, max_sorted = 128;

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define T uint8_t
#define BITS 8
#define WIDE uint32_t
#define SIGNED_WIDE int32_t
#define PAIR uint16_t
#define INFINITE 0x7F
#include "windows.h"

#define T uint16_t
#define BITS 16
#define WIDE uint32_t
#define SIGNED_WIDE int32_t
#define PAIR uint32_t
#define INFINITE 0x7C00
#define REAL float
#define REAL_OF float_of
#define BITS_OF half_of
#include "windows.h"

#define T uint32_t
#define BITS 32
#define WIDE uint64_t
#define SIGNED_WIDE int64_t
#define PAIR uint64_t
#define INFINITE 0x7F800000
#define REAL float
#define REAL_OF float_of_bits
#define BITS_OF bits_of_float
#include "windows.h"

#define T uint64_t
#define BITS 64
#ifdef __SIZEOF_INT128__
#define WIDE unsigned __int128
#endif
#define INFINITE 0x7FF0000000000000
#define REAL double
#define REAL_OF double_of_bits
#define BITS_OF bits_of_double
#include "windows.h"

#ifndef __SIZEOF_INT128__
#define mean_64 NULL
#endif

/* -- means of floats ------------------------------------------------------------------------------------------- */

#define AS_IS(x) (x)

/* Sums begin with 0, so that those of negative zeros are positive. */
#define MEAN_OF_FLOATS(name, stored, wide, read, make)                                                              \
    static inline void name##_add(const Row *row, int64_t first, int64_t n, int64_t n_rows, int64_t factor, int64_t step, \
                                  wide *sums) {                                                                     \
        stored value;                                                                                               \
        for (int64_t j = 0; j < n; j++) sums[j] = 0;                                                                \
        for (int64_t r = 0; r < n_rows; r++)                                                                        \
            for (int64_t i = 0; i < factor; i++) {                                                                  \
                const char *from = row->rows[r] + (first * factor + i) * step;                                      \
                for (int64_t j = 0; j < n; j++) {                                                                   \
                    memcpy(&value, from + j * factor * step, sizeof value);                                         \
                    sums[j] += read(value);                                                                         \
                }                                                                                                   \
            }                                                                                                       \
    }                                                                                                               \
    static inline void name##_pairs(const Row *row, int n_rows) {                                                   \
        const char *rows[4];                                                                                        \
        char *out = row->out;                                                                                       \
        for (int r = 0; r < n_rows; r++) rows[r] = row->rows[r];                                                    \
        for (int64_t j = 0; j < row->n; j++) {                                                                      \
            wide sum = 0;                                                                                           \
            for (int r = 0; r < n_rows; r++) {                                                                      \
                stored pair[2];                                                                                     \
                memcpy(pair, rows[r] + j * (int64_t)sizeof pair, sizeof pair);                                      \
                sum += read(pair[0]);                                                                               \
                sum += read(pair[1]);                                                                               \
            }                                                                                                       \
            const stored result = make(sum / (wide)(2 * n_rows));                                                   \
            memcpy(out + j * (int64_t)sizeof result, &result, sizeof result);                                       \
        }                                                                                                           \
    }                                                                                                               \
    static void name(const Row *row, void *scratch) {                                                               \
        wide sums[AT_ONCE];                                                                                         \
        const bool plain = row->step == sizeof(stored);                                                             \
        if (plain && row->factor == 2 && row->out_step == sizeof(stored)) {                                         \
            switch (row->n_rows) {                                                                                  \
            case 1: name##_pairs(row, 1); return;                                                                   \
            case 2: name##_pairs(row, 2); return;                                                                   \
            case 4: name##_pairs(row, 4); return;                                                                   \
            }                                                                                                       \
        }                                                                                                           \
        const wide count = (wide)(row->n_rows * row->factor);                                                       \
        for (int64_t first = 0; first < row->n; first += AT_ONCE) {                                                 \
            const int64_t n = row->n - first < AT_ONCE ? row->n - first : AT_ONCE;                                  \
            if (plain && row->factor == 1) {                                                                        \
                name##_add(row, first, n, row->n_rows, 1, sizeof(stored), sums);                                    \
            } else {                                                                                                \
                name##_add(row, first, n, row->n_rows, row->factor, row->step, sums);                               \
            }                                                                                                       \
            for (int64_t j = 0; j < n; j++) {                                                                       \
                const stored result = make(sums[j] / count);                                                        \
                memcpy(row->out + (first + j) * row->out_step, &result, sizeof result);                             \
            }                                                                                                       \
        }                                                                                                           \
    }

MEAN_OF_FLOATS(mean_f2, half, float, float_of, half_of)
MEAN_OF_FLOATS(mean_f4, float, float, AS_IS, AS_IS)
MEAN_OF_FLOATS(mean_f8, double, double, AS_IS, AS_IS)

/* -- all windows of a block ------------------------------------------------------------------------------------ */

static Reducer find_reducer(int64_t size, int kind, int64_t method) {
    static const Reducer means_of_floats[4] = {NULL, mean_f2, mean_f4, mean_f8};
    static const Reducer reducers[N_METHODS][4] = {
        {mean_8, mean_16, mean_32, mean_64},
        {mode_8, mode_16, mode_32, mode_64},
        {min_8, min_16, min_32, min_64},
        {max_8, max_16, max_32, max_64},
        {median_8, median_16, median_32, median_64},
    };
    if (method < 0 || method >= N_METHODS || kind < 0 || kind >= N_KINDS) return NULL;
    if (size != 1 && size != 2 && size != 4 && size != 8) return NULL;
    const int log_size = __builtin_ctz((unsigned)size);
    return kind == FLOAT_KIND && method == MEAN ? means_of_floats[log_size] : reducers[method][log_size];
}

/* The axis along which windows make rows. */
static int find_inner(const Windows *windows) {
    int last = windows->ndim - 1, reduced = last;
    while (reduced > 0 && windows->axis[reduced].factor == 1) reduced--;
    return windows->axis[last].length < MIN_RUN && windows->axis[reduced].factor > 1 ? reduced : last;
}

/* Note the rows of the windows at a place on the other axes; they begin at the first element of the row of windows. */
static int64_t list_rows(const WindowAxis *axis, int n, const int64_t *at, const char *block, const char **rows) {
    int64_t n_rows = 1;
    rows[0] = block;
    for (int a = 0; a < n; a++) {
        const int64_t from = at[a] * axis[a].factor, rest = axis[a].length - from;
        const int64_t count = rest < axis[a].factor ? rest : axis[a].factor;
        /* From the last row on, as those before it are still needed. */
        for (int64_t r = n_rows; r-- > 0;) {
            const char *start = rows[r] + from * axis[a].step;
            for (int64_t i = 0; i < count; i++) rows[r * count + i] = start + i * axis[a].step;
        }
        n_rows *= count;
    }
    return n_rows;
}

static void reduce_row(Reducer reduce, Row *row, const WindowAxis *inner, void *scratch) {
    row->n = inner->length / inner->factor;
    row->factor = inner->factor;
    if (row->n) reduce(row, scratch);
    const int64_t done = row->n * inner->factor, rest = inner->length - done;
    if (!rest) return;
    for (int64_t r = 0; r < row->n_rows; r++) row->rows[r] += done * inner->step;
    row->out += row->n * inner->out_step;
    row->n = 1;
    row->factor = rest;
    reduce(row, scratch);
}

/* Reduce all windows. There are at least one axis and one element. False if NumPy has to. */
bool reduce_windows(const Windows *windows) {
    const Reducer reduce = find_reducer(windows->itemsize, windows->kind, windows->method);
    if (!reduce) return false;
    WindowAxis others[MAX_NDIM];
    int64_t at[MAX_NDIM] = {0}, count = 1, n_rows = 1;
    int n = 0;
    const int inner = find_inner(windows);
    for (int a = 0; a < windows->ndim; a++) {
        const int64_t factor = windows->axis[a].factor;
        if (factor > max_count || (count *= factor) > max_count) return false;
        if (a == inner) continue;
        n_rows *= factor;
        others[n++] = windows->axis[a];
    }
    const bool sorts = windows->method == MODE || windows->method == MEDIAN;
    if (sorts && count > max_sorted) return false;
    /* Rows of a window, then the elements of many. */
    const int64_t keys = sorts ? count * KEYS_AT_ONCE * windows->itemsize : 0;
    char *scratch = malloc((size_t)(n_rows * (int64_t)sizeof(char *) + keys));
    if (!scratch) return false;
    Row row = {.rows = (const char **)scratch,
               .step = windows->axis[inner].step,
               .out_step = windows->axis[inner].out_step,
               .kind = windows->kind};
    for (;;) {
        row.n_rows = list_rows(others, n, at, windows->block, row.rows);
        row.out = windows->out;
        for (int a = 0; a < n; a++) row.out += at[a] * others[a].out_step;
        reduce_row(reduce, &row, &windows->axis[inner], scratch + n_rows * (int64_t)sizeof(char *));
        int a = n - 1;
        while (a >= 0 && (at[a] + 1) * others[a].factor >= others[a].length) at[a--] = 0;
        if (a < 0) break;
        at[a]++;
    }
    free(scratch);
    return true;
}
