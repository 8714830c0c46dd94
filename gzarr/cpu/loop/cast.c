/* Casts of numbers: those of NumPy's rule "same_kind" but for float64 to float16, which it does not round as C does. */
#include "half.h"
#include "loop.h"

#define AS_IS(x) (x)
#define AS_BOOL(x) ((x) != 0)

/* Steps in bytes. Elements that follow each other have a loop that compilers can vectorize. */
#define CAST(name, from, to, read, make)                                                                       \
    static void name(char *dst, const char *src, int64_t n, int64_t dst_step, int64_t src_step) {              \
        from value;                                                                                            \
        to result;                                                                                             \
        if (dst_step == sizeof(to) && src_step == sizeof(from)) {                                              \
            for (int64_t i = 0; i < n; i++) {                                                                  \
                memcpy(&value, src + i * (int64_t)sizeof(from), sizeof(from));                                 \
                result = (to)make(read(value));                                                                \
                memcpy(dst + i * (int64_t)sizeof(to), &result, sizeof(to));                                    \
            }                                                                                                  \
            return;                                                                                            \
        }                                                                                                      \
        for (int64_t i = 0; i < n; i++, src += src_step, dst += dst_step) {                                    \
            memcpy(&value, src, sizeof(from));                                                                 \
            result = (to)make(read(value));                                                                    \
            memcpy(dst, &result, sizeof(to));                                                                  \
        }                                                                                                      \
    }

#define TO_FLOATS(name, from, read)                       \
    CAST(name##_to_f2, from, half, read, half_of)         \
    CAST(name##_to_f4, from, float, read, AS_IS)          \
    CAST(name##_to_f8, from, double, read, AS_IS)
#define TO_SIGNED(name, from, read)                       \
    CAST(name##_to_i1, from, int8_t, read, AS_IS)         \
    CAST(name##_to_i2, from, int16_t, read, AS_IS)        \
    CAST(name##_to_i4, from, int32_t, read, AS_IS)        \
    CAST(name##_to_i8, from, int64_t, read, AS_IS)        \
    TO_FLOATS(name, from, read)
#define TO_UNSIGNED(name, from, read)                     \
    CAST(name##_to_u1, from, uint8_t, read, AS_IS)        \
    CAST(name##_to_u2, from, uint16_t, read, AS_IS)       \
    CAST(name##_to_u4, from, uint32_t, read, AS_IS)       \
    CAST(name##_to_u8, from, uint64_t, read, AS_IS)       \
    TO_SIGNED(name, from, read)

TO_UNSIGNED(b1, uint8_t, AS_BOOL)
TO_UNSIGNED(u1, uint8_t, AS_IS)
TO_UNSIGNED(u2, uint16_t, AS_IS)
TO_UNSIGNED(u4, uint32_t, AS_IS)
TO_UNSIGNED(u8, uint64_t, AS_IS)
TO_SIGNED(i1, int8_t, AS_IS)
TO_SIGNED(i2, int16_t, AS_IS)
TO_SIGNED(i4, int32_t, AS_IS)
TO_SIGNED(i8, int64_t, AS_IS)
CAST(f2_to_f4, half, float, float_of, AS_IS)
CAST(f2_to_f8, half, double, double_of, AS_IS)
CAST(f4_to_f2, float, half, AS_IS, half_of)
CAST(f4_to_f8, float, double, AS_IS, AS_IS)
CAST(f8_to_f4, double, float, AS_IS, AS_IS)

#define FLOATS(name) name##_to_f2, name##_to_f4, name##_to_f8
#define SIGNED(name) name##_to_i1, name##_to_i2, name##_to_i4, name##_to_i8, FLOATS(name)
#define UNSIGNED(name) name##_to_u1, name##_to_u2, name##_to_u4, name##_to_u8, SIGNED(name)

/* In the order of gzarr/cpu/compiled/casts.py. */
static const int sizes[N_NUMBERS] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
static const CastRun casts[N_NUMBERS][N_NUMBERS] = {
    {NULL, UNSIGNED(b1)},
    {NULL, UNSIGNED(u1)},
    {NULL, UNSIGNED(u2)},
    {NULL, UNSIGNED(u4)},
    {NULL, UNSIGNED(u8)},
    {NULL, NULL, NULL, NULL, NULL, SIGNED(i1)},
    {NULL, NULL, NULL, NULL, NULL, SIGNED(i2)},
    {NULL, NULL, NULL, NULL, NULL, SIGNED(i4)},
    {NULL, NULL, NULL, NULL, NULL, SIGNED(i8)},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f2_to_f4, f2_to_f8},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f4_to_f2, NULL, f4_to_f8},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f8_to_f4, NULL},
};

/* Bytes of a number of a type; 0 if there is no such type. */
int64_t type_size(int64_t type) { return type >= 0 && type < N_NUMBERS ? sizes[type] : 0; }

/* Find a cast by the numbers of its types, -1 and -1 for none. False if there is no such cast, or of other sizes. */
bool find_cast(int64_t from, int64_t to, int64_t from_size, int64_t to_size, CastRun *cast) {
    *cast = NULL;
    if (from == -1 && to == -1) return from_size == to_size;
    if (from < 0 || from >= N_NUMBERS || to < 0 || to >= N_NUMBERS) return false;
    *cast = casts[from][to];
    return *cast && sizes[from] == from_size && sizes[to] == to_size;
}
