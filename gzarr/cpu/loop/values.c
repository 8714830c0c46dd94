/* The filters of Zarr v3, `scale_offset` and `cast_value`, whose values are those of gzarr/codecs: see loop.h.
 *
 * Numbers that the Python path refuses, and the few that it rounds in a way of its own, are left to it.
 */
#include "elements.h"

#include <string.h>

/* -- scale_offset ---------------------------------------------------------------------------------------------- */

/* Parameters are doubles, which hold integers up to here. */
static const double MAX_PARAMETER = 9007199254740992.0;

#define AS_IS(x) (x)
SCALE_FLOATS(f4, float, AS_IS, float)
SCALE_FLOATS(f8, double, AS_IS, double)

/* Integers: the function is monotonic, so that all results are of the type if those of the ends are.
 * wrapping: what they are computed in. */
#define SCALE_INTEGERS(name, type, wrapping, low, high)                                      \
    static bool scale_##name(const Filter *f, const char *src, char *dst) {                  \
        const int64_t n = COUNT(f, type), offset = (int64_t)f->a, scale = (int64_t)f->b;     \
        type least = high, most = low, x;                                                    \
        for (int64_t i = 0; i < n; i++) {                                                    \
            LOAD(x, AT(src, i, type));                                                       \
            least = x < least ? x : least, most = x > most ? x : most;                       \
        }                                                                                    \
        const __int128 ends[] = {((__int128)least - offset) * scale, ((__int128)most - offset) * scale}; \
        for (int end = 0; end < 2; end++)                                                    \
            if (ends[end] < low || ends[end] > high) return false;                           \
        for (int64_t i = 0; i < n; i++) {                                                    \
            LOAD(x, AT(src, i, type));                                                       \
            x = (type)(((wrapping)x - (wrapping)offset) * (wrapping)scale);                  \
            STORE(AT(dst, i, type), x);                                                      \
        }                                                                                    \
        return true;                                                                         \
    }
/* Quotients that are integers are exact as doubles. */
#define SCALE_SMALL(name, type, low, high)                                                   \
    SCALE_INTEGERS(name, type, uint32_t, low, high)                                          \
    EACH(unscale_##name, type, type, type, OFFSET_AND_SCALE(int64_t),                        \
         const int64_t quotient = (int64_t)((double)x / (double)scale);                      \
         const int64_t sum = quotient + offset;                                              \
         odd |= (quotient * scale != (int64_t)x) | (sum < low) | (sum > high);               \
         y = (type)sum;)
#define SCALE_LARGE(name, type, low, high)                                                   \
    SCALE_INTEGERS(name, type, uint64_t, low, high)                                          \
    static bool unscale_##name(const Filter *f, const char *src, char *dst) {                \
        const int64_t n = COUNT(f, type);                                                    \
        const type offset = (type)f->a, scale = (type)f->b;                                  \
        bool odd = scale == (type)-1;                                                        \
        for (int64_t i = 0; !odd && i < n; i++) {                                            \
            type x;                                                                          \
            LOAD(x, AT(src, i, type));                                                       \
            odd = x % scale != 0 || __builtin_add_overflow(x / scale, offset, &x);           \
            STORE(AT(dst, i, type), x);                                                      \
        }                                                                                    \
        return !odd;                                                                         \
    }
SCALE_SMALL(u1, uint8_t, 0, UINT8_MAX)
SCALE_SMALL(u2, uint16_t, 0, UINT16_MAX)
SCALE_SMALL(u4, uint32_t, 0, UINT32_MAX)
SCALE_LARGE(u8, uint64_t, 0, UINT64_MAX)
SCALE_SMALL(i1, int8_t, INT8_MIN, INT8_MAX)
SCALE_SMALL(i2, int16_t, INT16_MIN, INT16_MAX)
SCALE_SMALL(i4, int32_t, INT32_MIN, INT32_MAX)
SCALE_LARGE(i8, int64_t, INT64_MIN, INT64_MAX)

#define TYPES(kind)                                                                                       \
    {NULL, kind##_u1, kind##_u2, kind##_u4, kind##_u8, kind##_i1, kind##_i2, kind##_i4, kind##_i8, NULL, \
     kind##_f4, kind##_f8}
static const FilterRun scales[N_NUMBERS] = TYPES(scale), unscales[N_NUMBERS] = TYPES(unscale);

/* -- cast_value ------------------------------------------------------------------------------------------------ */

/* In the order of gzarr/codecs/rounding.py. */
enum { NEAREST_EVEN, TOWARDS_ZERO, TOWARDS_POSITIVE, TOWARDS_NEGATIVE, NEAREST_AWAY, N_ROUNDINGS };
enum { REFUSE, CLAMP, WRAP, N_OUT_OF_RANGE };
/* Numbers that are cast at a time, by way of the widest type of their kind. */
enum { STRIP = 256 };

static const int64_t lows[] = {[I1] = INT8_MIN, [I2] = INT16_MIN, [I4] = INT32_MIN, [I8] = INT64_MIN};
static const uint64_t highs[] = {[U1] = UINT8_MAX, [U2] = UINT16_MAX, [U4] = UINT32_MAX, [U8] = UINT64_MAX,
                                 [I1] = INT8_MAX,  [I2] = INT16_MAX,  [I4] = INT32_MAX,  [I8] = INT64_MAX};

static bool is_float(int64_t type) { return type == F4 || type == F8; }

/* Cast as C does. Integers wrap: the bits are those of the signed type of the same size, and only that is in the table. */
static void convert(int64_t from, int64_t to, const char *src, char *dst, int64_t n) {
    CastRun cast;
    const int64_t twin = from >= I1 && from <= I8 && to >= U1 && to <= U8 ? to + (I1 - U1) : to;
    if (from == twin)
        memcpy(dst, src, (size_t)(n * type_size(from)));
    else if (find_cast(from, twin, type_size(from), type_size(twin), &cast))
        cast(dst, src, n, type_size(twin), type_size(from));
}

/* Integers of 8 bytes to what a type of integers holds. */
static bool fit_integers(int64_t from, int64_t to, int how, int64_t *numbers, int64_t n) {
    const int64_t low = lows[to];
    const uint64_t high = highs[to];
    for (int64_t i = 0; how != WRAP && i < n; i++) {
        const bool below = from != U8 && numbers[i] < low;
        const bool above = (from == U8 || numbers[i] >= 0) && (uint64_t)numbers[i] > high;
        if (!below && !above) continue;
        if (how == REFUSE) return false;
        numbers[i] = below ? low : (int64_t)high;
    }
    return true;
}

/* As doubles, which all of them must be. */
static bool floats_of_integers(int64_t from, const int64_t *numbers, double *to, int64_t n) {
    const int64_t most = (int64_t)1 << 53;
    bool exact = true;
    for (int64_t i = 0; i < n; i++) {
        exact &= numbers[i] < most && numbers[i] > -most && (from != U8 || numbers[i] >= 0);
        to[i] = (double)numbers[i];
    }
    return exact;
}

/* Of numbers that are less than 2^63. */
static double round_number(double x, int rounding) {
    if (!(__builtin_fabs(x) < 4503599627370496.0)) return x; /* it is an integer */
    const double whole = (double)(int64_t)x, rest = x - whole;
    switch (rounding) {
        case NEAREST_EVEN: {
            const double large = __builtin_copysign(4503599627370496.0, x);
            double rounded = x + large;
            rounded -= large;
            return rounded;
        }
        case TOWARDS_POSITIVE:
            return whole + (rest > 0);
        case TOWARDS_NEGATIVE:
            return whole - (rest < 0);
        case NEAREST_AWAY:
            return __builtin_fabs(rest) >= 0.5 ? whole + __builtin_copysign(1.0, x) : whole;
    }
    return whole;
}

static bool integers_of_floats(int64_t to, int how, int rounding, const double *numbers, int64_t *made, int64_t n) {
    const double low = (double)lows[to], end = 2.0 * (double)(highs[to] / 2 + 1);
    for (int64_t i = 0; i < n; i++) {
        const double x = round_number(numbers[i], rounding);
        if (x >= low && x < end) {
            made[i] = to == U8 ? (int64_t)(uint64_t)x : (int64_t)x;
            continue;
        }
        if (how != CLAMP || !__builtin_isfinite(x)) return false;
        made[i] = x < low ? lows[to] : (int64_t)highs[to];
    }
    return true;
}

/* Doubles as narrower floats. False if one becomes infinite and must not. */
static bool narrow_floats(int how, const double *numbers, char *dst, int64_t n) {
    bool fits = true;
    for (int64_t i = 0; i < n; i++) {
        const float made = (float)numbers[i];
        fits &= !__builtin_isinf(made) || __builtin_isinf(numbers[i]);
        STORE(AT(dst, i, float), made);
    }
    return fits || how == CLAMP;
}

/* Cast up to STRIP numbers by value. */
static bool cast_strip(int64_t from, int64_t to, const Filter *f, const char *src, char *dst, int64_t n) {
    const int how = (int)f->a, rounding = (int)f->b;
    int64_t integers[STRIP];
    double floats[STRIP];
    if (is_float(from)) {
        convert(from, F8, src, (char *)floats, n);
    } else {
        convert(from, from == U8 ? U8 : I8, src, (char *)integers, n);
        if (is_float(to) && !floats_of_integers(from, integers, floats, n)) return false;
    }
    if (to == F4) return narrow_floats(how, floats, dst, n);
    if (to == F8) {
        memcpy(dst, floats, (size_t)n * sizeof(double));
        return true;
    }
    const bool fits = is_float(from) ? integers_of_floats(to, how, rounding, floats, integers, n)
                                     : fit_integers(from, to, how, integers, n);
    if (fits) convert(I8, to, (const char *)integers, dst, n);
    return fits;
}

/* Whether a type has all numbers of another one. */
static bool is_wider(int64_t from, int64_t to) {
    if (type_size(to) <= type_size(from)) return false;
    return is_float(to) || (!is_float(from) && (from <= U8 || to >= I1));
}

static bool cast_all(int64_t from, int64_t to, const Filter *f, const char *src, char *dst) {
    const int64_t from_size = type_size(from), to_size = type_size(to), count = f->nbytes / type_size(f->type);
    if (is_wider(from, to)) {
        convert(from, to, src, dst, count);
        return true;
    }
    for (int64_t i = 0; i < count; i += STRIP) {
        const int64_t n = count - i < STRIP ? count - i : STRIP;
        if (!cast_strip(from, to, f, src + i * from_size, dst + i * to_size, n)) return false;
    }
    return true;
}

static bool cast_to_stored(const Filter *f, const char *src, char *dst) { return cast_all(f->type, f->stored_type, f, src, dst); }

static bool cast_from_stored(const Filter *f, const char *src, char *dst) {
    return cast_all(f->stored_type, f->type, f, src, dst);
}

/* -- which ----------------------------------------------------------------------------------------------------- */

static bool is_parameter(double value) {
    return __builtin_fabs(value) <= MAX_PARAMETER && value == (double)(int64_t)value;
}

/* Find what a filter by value does. False if there is none with these parameters. */
bool find_value_filter(Filter *f) {
    const int64_t type = f->type, stored = f->stored_type;
    if (type == B1 || type == F2 || stored == B1 || stored == F2) return false;
    if (f->kind == SCALE_VALUES) {
        f->encode = scales[type], f->decode = unscales[type];
        if (is_float(type)) return type == stored;
        if (!is_parameter(f->a) || !is_parameter(f->b)) return false;
        const double low = (double)lows[type], high = (double)highs[type];
        return type == stored && f->b != 0 && f->a >= low && f->a <= high && f->b >= low && f->b <= high;
    }
    f->encode = cast_to_stored, f->decode = cast_from_stored;
    return f->a >= 0 && f->a < N_OUT_OF_RANGE && f->b >= 0 && f->b < N_ROUNDINGS;
}
