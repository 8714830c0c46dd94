/* Elements of the chunks that filters take and make, in memory of any alignment. */
#ifndef GZARR_ELEMENTS_H
#define GZARR_ELEMENTS_H

#include "loop.h"

#define LOAD(to, from) memcpy(&(to), from, sizeof(to))
#define STORE(to, from) memcpy(to, &(from), sizeof(from))
#define AT(base, i, type) ((base) + (i) * (int64_t)sizeof(type))
#define COUNT(filter, type) ((filter)->nbytes / (int64_t)sizeof(type))

#endif
