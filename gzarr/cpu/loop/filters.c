/* The filters of numcodecs, whose values these are bit for bit: see loop.h.
 *
 * A chunk with filters is decoded to the bytes that its last filter made, and those go from one buffer to another through
 * the filters, last one first. Writing does the same in reverse. Numbers are in the byte order of the machine between
 * the filters. What NumPy would warn of, numbers that do not fit their type, is left to the Python path.
 */
#include "elements.h"

static bool swap_all(const Filter *f, const char *src, char *dst) {
    memcpy(dst, src, (size_t)f->nbytes);
    swap_bytes(dst, f->nbytes, type_size(f->type));
    return true;
}

/* -- shuffle --------------------------------------------------------------------------------------------------- */

static bool shuffle_all(const Filter *f, const char *src, char *dst) {
    shuffle_bytes((int64_t)f->a, f->nbytes, src, dst);
    return true;
}

static bool unshuffle_all(const Filter *f, const char *src, char *dst) {
    const int64_t size = (int64_t)f->a, n = f->nbytes / size;
    const char *planes[MAX_PLANES] = {NULL};
    for (int64_t k = 0; k < size; k++) planes[k] = src + k * n;
    unshuffle_bytes(size, 0, n, planes, dst);
    return true;
}

/* -- delta ----------------------------------------------------------------------------------------------------- */

/* Whether the first number is one of the type that differences are cast to afterwards: NumPy refuses others, while it
 * lets differences wrap. */
static bool first_fits(const Filter *f, const char *src) {
    double first;
    if (!f->cast_to) return true;
    f->cast_to((char *)&first, src, 1, sizeof first, type_size(f->type));
    return first >= f->a && first < f->b;
}

#define DELTA(name, type)                                                        \
    static bool delta_##name(const Filter *f, const char *src, char *dst) {      \
        const int64_t n = COUNT(f, type);                                        \
        type here, last;                                                         \
        if (!first_fits(f, src)) return false;                                   \
        LOAD(last, src);                                                         \
        STORE(dst, last);                                                        \
        for (int64_t i = 1; i < n; i++) {                                        \
            LOAD(here, AT(src, i, type));                                        \
            LOAD(last, AT(src, i - 1, type));                                    \
            here = (type)(here - last);                                          \
            STORE(AT(dst, i, type), here);                                       \
        }                                                                        \
        return true;                                                             \
    }                                                                            \
    static bool sum_##name(const Filter *f, const char *src, char *dst) {        \
        const int64_t n = COUNT(f, type);                                        \
        type sum, here;                                                          \
        LOAD(sum, src);                                                          \
        STORE(dst, sum);                                                         \
        for (int64_t i = 1; i < n; i++) {                                        \
            LOAD(here, AT(src, i, type));                                        \
            sum = (type)(sum + here);                                            \
            STORE(AT(dst, i, type), sum);                                        \
        }                                                                        \
        return true;                                                             \
    }
DELTA(1, uint8_t)
DELTA(2, uint16_t)
DELTA(4, uint32_t)
DELTA(8, uint64_t)
DELTA(f4, float)
DELTA(f8, double)

/* -- casts ----------------------------------------------------------------------------------------------------- */

static bool cast_to(const Filter *f, const char *src, char *dst) {
    const int64_t from = type_size(f->type), to = type_size(f->stored_type);
    f->cast_to(dst, src, f->nbytes / from, to, from);
    return true;
}

static bool cast_from(const Filter *f, const char *src, char *dst) {
    const int64_t to = type_size(f->type), from = type_size(f->stored_type);
    f->cast_from(dst, src, f->nbytes / to, to, from);
    return true;
}

/* A type to cast integers to: the bits are those of the signed one of the same size, and only that is in the table. */
static int64_t signed_twin(int64_t from, int64_t to) {
    return from >= U1 && from <= I8 && to >= U1 && to <= U8 ? to + (I1 - U1) : to;
}

static bool find_casts(Filter *f) {
    const int64_t type = f->type, stored = f->stored_type, size = type_size(type), stored_size = type_size(stored);
    f->encode = cast_to, f->decode = cast_from;
    return find_cast(type, signed_twin(type, stored), size, stored_size, &f->cast_to) && f->cast_to &&
           find_cast(stored, signed_twin(stored, type), stored_size, size, &f->cast_from) && f->cast_from;
}

/* -- scale and offset ------------------------------------------------------------------------------------------ */

/* To the nearest integer, to the even one of two. Adding and subtracting what is so large that it has no fraction rounds;
 * unlike rint that is done by vectors of any machine. NaN stays. */
static inline float round_float(float x) {
    const float large = __builtin_copysignf(8388608.0f, x);
    float rounded = x + large;
    rounded -= large;
    return __builtin_fabsf(x) < 8388608.0f ? __builtin_copysignf(rounded, x) : x;
}

static inline double round_double(double x) {
    const double large = __builtin_copysign(4503599627370496.0, x);
    double rounded = x + large;
    rounded -= large;
    return __builtin_fabs(x) < 4503599627370496.0 ? __builtin_copysign(rounded, x) : x;
}

/* through: what numbers are converted by, for vectors. */
#define SCALE(name, type, round, stored, wide, through, low, end)                            \
    EACH(scale_##name, type, type, stored, OFFSET_AND_SCALE(type),                           \
         SCALED(type, round)                                                                 \
         const int fits = x >= (type)low && x < (type)end;                                   \
         odd |= !fits;                                                                       \
         y = (stored)(through)(fits ? x : 0);)                                               \
    UNSCALE(name, type, stored, wide)

#define TWO_TO_31 2147483648.0
#define TWO_TO_32 4294967296.0
#define TWO_TO_63 9223372036854775808.0
#define TWO_TO_64 18446744073709551616.0
#define SCALES(name, type, round)                                                            \
    SCALE(name##_u1, type, round, uint8_t, double, int32_t, 0, 256)                          \
    SCALE(name##_u2, type, round, uint16_t, double, int32_t, 0, 65536)                       \
    SCALE(name##_u4, type, round, uint32_t, double, int64_t, 0, TWO_TO_32)                   \
    SCALE(name##_u8, type, round, uint64_t, double, uint64_t, 0, TWO_TO_64)                  \
    SCALE(name##_i1, type, round, int8_t, double, int32_t, -128, 128)                        \
    SCALE(name##_i2, type, round, int16_t, double, int32_t, -32768, 32768)                   \
    SCALE(name##_i4, type, round, int32_t, double, int32_t, -TWO_TO_31, TWO_TO_31)           \
    SCALE(name##_i8, type, round, int64_t, double, int64_t, -TWO_TO_63, TWO_TO_63)           \
    SCALE_FLOATS(name##_f4, type, round, float)                                              \
    SCALE_FLOATS(name##_f8, type, round, double)
SCALES(f4, float, round_float)
SCALES(f8, double, round_double)

#define RUNS(kind, name)                                                                                      \
    {NULL,              kind##_##name##_u1, kind##_##name##_u2, kind##_##name##_u4,      \
     kind##_##name##_u8, kind##_##name##_i1, kind##_##name##_i2, kind##_##name##_i4, kind##_##name##_i8,      \
     NULL,               kind##_##name##_f4, kind##_##name##_f8}
static const FilterRun scales[2][N_NUMBERS] = {RUNS(scale, f4), RUNS(scale, f8)};
static const FilterRun unscales[2][N_NUMBERS] = {RUNS(unscale, f4), RUNS(unscale, f8)};

/* -- fewer bits ------------------------------------------------------------------------------------------------ */

#define QUANTIZE(name, type, round)                                                          \
    EACH(quantize_##name, type, type, type, const type scale = (type)f->a;,                  \
         x = scale * x;                                                                      \
         x = round(x);                                                                       \
         y = x / scale;)
QUANTIZE(f4, float, round_float)
QUANTIZE(f8, double, round_double)

#define ROUND_BITS(name, type)                                                               \
    EACH(round_##name, type, type, type,                                                     \
         const int drop = (int)f->a;                                                         \
         const type half = (type)(((type)1 << (drop - 1)) - 1);                              \
         const type mask = (type)(~(uint64_t)0 << drop);,                                    \
         x = (type)(x + (type)((x >> drop & 1) + half));                                     \
         y = (type)(x & mask);)
ROUND_BITS(f2, uint16_t)
ROUND_BITS(f4, uint32_t)
ROUND_BITS(f8, uint64_t)

/* -- bits ------------------------------------------------------------------------------------------------------ */

/* Eight booleans in a word, the first in its lowest byte, and their byte, the first in its highest bit: the product puts
 * bit 8k of the word at bit 63 - k. */
static const uint64_t ONES = 0x0101010101010101, SPREAD = 0x8040201008040201, BITS = 0x0102040810204080;
static const uint64_t SEVENS = 0x7f7f7f7f7f7f7f7f;

/* Of each byte one if it is not zero. */
static uint64_t as_booleans(uint64_t word) {
    return (((word & SEVENS) + SEVENS) | word) >> 7 & ONES;
}

static int64_t padding_of(int64_t n) { return (8 - n % 8) % 8; }

static bool pack_bits(const Filter *f, const char *src, char *dst) {
    const int64_t whole = f->nbytes & ~7;
    uint64_t word;
    *dst++ = (char)padding_of(f->nbytes);
    for (int64_t i = 0; i < whole; i += 8) {
        memcpy(&word, src + i, 8);
        *dst++ = (char)(as_booleans(word) * SPREAD >> 56);
    }
    if (whole < f->nbytes) {
        word = 0;
        memcpy(&word, src + whole, (size_t)(f->nbytes - whole));
        *dst = (char)(as_booleans(word) * SPREAD >> 56);
    }
    return true;
}

static bool unpack_bits(const Filter *f, const char *src, char *dst) {
    if (*src++ != padding_of(f->nbytes)) return false;
    const int64_t whole = f->nbytes & ~7;
    uint64_t word;
    for (int64_t i = 0; i < whole; i += 8) {
        word = as_booleans((uint8_t)*src++ * ONES & BITS);
        memcpy(dst + i, &word, 8);
    }
    if (whole < f->nbytes) {
        word = as_booleans((uint8_t)*src * ONES & BITS);
        memcpy(dst + whole, &word, (size_t)(f->nbytes - whole));
    }
    return true;
}

/* -- which ----------------------------------------------------------------------------------------------------- */

static bool find_delta(Filter *f) {
    static const FilterRun encode[] = {[1] = delta_1, [2] = delta_2, [4] = delta_4, [8] = delta_8};
    static const FilterRun decode[] = {[1] = sum_1, [2] = sum_2, [4] = sum_4, [8] = sum_8};
    const int64_t type = f->type;
    if (type != f->stored_type || type == F2) return false;
    if (f->a < f->b && !(find_cast(type, F8, type_size(type), sizeof(double), &f->cast_to) && f->cast_to)) return false;
    f->encode = type == F4 ? delta_f4 : type == F8 ? delta_f8 : encode[type_size(type)];
    f->decode = type == F4 ? sum_f4 : type == F8 ? sum_f8 : decode[type_size(type)];
    return true;
}

/* Find what a filter does. False if there is no such filter. */
static bool find_filter(Filter *f) {
    static const int64_t mantissas[] = {10, 23, 52};
    const int64_t type = f->type, size = type_size(type), stored_size = type_size(f->stored_type);
    if (!size || !stored_size) return false;
    /* Those of another size than all others. */
    if (f->kind == PACK_BITS) {
        f->encode = pack_bits, f->decode = unpack_bits;
        return f->stored_nbytes == 1 + f->nbytes / 8 + (f->nbytes % 8 != 0);
    }
    if (f->nbytes % size || f->nbytes / size * stored_size != f->stored_nbytes) return false;
    switch (f->kind) {
        case SWAP_BYTES:
            f->encode = f->decode = swap_all;
            return size == stored_size;
        case SHUFFLE_BYTES:
            f->encode = shuffle_all, f->decode = unshuffle_all;
            return size == stored_size && f->a >= 1 && f->a <= MAX_PLANES && f->nbytes % (int64_t)f->a == 0;
        case TAKE_DELTA:
            return find_delta(f);
        case CAST_TYPE:
            return find_casts(f);
        case SCALE_OFFSET:
            if (type != F4 && type != F8) return false;
            f->encode = scales[type - F4][f->stored_type];
            f->decode = unscales[type - F4][f->stored_type];
            return f->encode;
        case QUANTIZE_DIGITS:
            f->encode = type == F4 ? quantize_f4 : quantize_f8;
            return type == f->stored_type && (type == F4 || type == F8);
        case ROUND_MANTISSA:
            if (type != f->stored_type || type < F2) return false;
            f->encode = type == F2 ? round_f2 : type == F4 ? round_f4 : round_f8;
            return f->a >= 1 && f->a <= (double)mantissas[type - F2];
        case SCALE_VALUES:
        case CAST_VALUES:
            return find_value_filter(f);
    }
    return false;
}

/* Give a job its filters. False if they do not fit each other or the chunk. */
bool take_filters(Job *job, const char *table, int64_t n) {
    int64_t nbytes = job->nbytes;
    if (n > MAX_FILTERS) return false;
    job->n_filters = n, job->widest = nbytes;
    for (int64_t i = 0; i < n; i++, table += FILTER_NBYTES) {
        Filter *f = &job->filters[i];
        *f = (Filter){0};
        memcpy(f, table, FILTER_NBYTES);
        if (f->nbytes != nbytes || f->stored_nbytes < 1 || f->stored_nbytes > job->max_encoded || !find_filter(f)) return false;
        nbytes = f->stored_nbytes;
        job->widest = nbytes > job->widest ? nbytes : job->widest;
        job->unfilters = job->unfilters || f->decode;
    }
    return !n || room_of(job) >= job->widest + MAX_OVERHEAD;
}

/* -- chunks ---------------------------------------------------------------------------------------------------- */

Job job_of_stored(const Job *job) {
    Job stored = *job;
    stored.nbytes = job->filters[job->n_filters - 1].stored_nbytes;
    stored.max_encoded = room_of(job);
    stored.n_filters = stored.swap = 0;
    stored.unfilters = false;
    return stored;
}

/* Room for the widest chunk, twice: beside that of encoded chunks, and where decoded ones are. */
static char *spare_of(const Job *job, const Reader *reader) { return reader->encoded + room_of(job); }
char *room_of_stored(const Job *job, const Reader *reader) { return reader->decoded - (job->widest - job->nbytes); }

/* What a chunk was before its filters. data: in the memory of `reader`. into: as in `load_stored`. */
bool unfilter_chunk(const Job *job, char *data, char *into, Reader *reader, char **chunk) {
    char *const spare = spare_of(job, reader), *const other = room_of_stored(job, reader);
    int64_t last = 0;
    while (!job->filters[last].decode) last++;
    for (int64_t i = job->n_filters - 1; i >= last; i--) {
        const Filter *f = &job->filters[i];
        if (!f->decode) continue;
        /* `into` may be where decoded chunks are. */
        const bool direct = i == last && into && (data != other || into != reader->decoded);
        char *to = direct ? into : data == spare ? other : spare;
        if (!f->decode(f, data, to)) return false;
        data = to;
    }
    if (into && data != into) data = memmove(into, data, (size_t)job->nbytes);
    if (job->swap) swap_bytes(data, job->nbytes, job->swap);
    *chunk = data;
    return true;
}

/* What the filters make of a chunk. Returns: where it is; NULL for anything that the Python path should look at. */
const char *filter_chunk(const Job *job, const char *data, Reader *reader) {
    char *const spare = spare_of(job, reader), *const other = room_of_stored(job, reader);
    for (int64_t i = 0; i < job->n_filters; i++) {
        const Filter *f = &job->filters[i];
        char *to = data == spare ? other : spare;
        if (!f->encode(f, data, to)) return NULL;
        data = to;
    }
    return data;
}
