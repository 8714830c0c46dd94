/* Elements of the chunks that filters take and make, in memory of any alignment. */
#ifndef GZARR_ELEMENTS_H
#define GZARR_ELEMENTS_H

#include "loop.h"

#define LOAD(to, from) memcpy(&(to), from, sizeof(to))
#define STORE(to, from) memcpy(to, &(from), sizeof(from))
#define AT(base, i, type) ((base) + (i) * (int64_t)sizeof(type))
#define COUNT(filter, type) ((filter)->nbytes / (int64_t)sizeof(type))

/* The function of a filter that makes one element of type `to` of each of type `from`, of which a chunk has as many as it
 * has elements of type `counted`. start: what is declared before; step: makes y of x, and sets `odd` for what is left to
 * the Python path. */
#define EACH(name, counted, from, to, start, step)                              \
    static bool name(const Filter *f, const char *src, char *dst) {             \
        const int64_t n = COUNT(f, counted);                                    \
        int odd = 0;                                                            \
        start                                                                   \
        for (int64_t i = 0; i < n; i++) {                                       \
            from x;                                                             \
            to y;                                                               \
            LOAD(x, AT(src, i, from));                                          \
            step                                                                \
            STORE(AT(dst, i, to), y);                                           \
        }                                                                       \
        return !odd;                                                            \
    }

/* Scaled floats. One operation a statement: compilers must not join two into one that rounds once. `wide` is what numbers
 * are computed in when they are decoded. */
#define OFFSET_AND_SCALE(type)                                                  \
    const type offset = (type)f->a;                                             \
    const type scale = (type)f->b;
#define SCALED(type, round)                                                     \
    x = x - offset;                                                             \
    x = x * scale;                                                              \
    x = round(x);
#define UNSCALE(name, type, stored, wide)                                       \
    EACH(unscale_##name, type, stored, type, OFFSET_AND_SCALE(wide),            \
         wide number = (wide)x;                                                 \
         number = number / scale;                                               \
         number = number + offset;                                              \
         y = (type)number;)
#define SCALE_FLOATS(name, type, round, stored)                                 \
    EACH(scale_##name, type, type, stored, OFFSET_AND_SCALE(type), SCALED(type, round) y = (stored)x;) \
    UNSCALE(name, type, stored, stored)

#endif
