/* Reduces rows of windows of unsigned integers of BITS bits: reduce.c includes this once for each size.
 *
 * Signed integers become unsigned ones by a flip of the sign, which changes neither their order nor, but for that flip,
 * their mean, nor which of two integers is even. Floats are put in order as integers too: the sign is flipped, or all
 * bits of a negative one; both zeros become one, and all NaNs the largest key, which no other number has. */
#define JOIN(name, bits) name##_##bits
#define NAMED(name, bits) JOIN(name, bits)
#define F(name) NAMED(name, BITS)
#define SIGN ((T)1 << (BITS - 1))
#define NO_NUMBER ((T)~(T)0)
#define FLIP(row) ((row)->kind == SIGNED_KIND ? SIGN : (T)0)
#define IS_FLOAT(row) (BITS > 8 && (row)->kind == FLOAT_KIND)

static inline T F(load)(const char *at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void F(store)(char *at, T value) { memcpy(at, &value, sizeof value); }

/* flip: the sign of signed integers, 0 for others; of all bits if the order is reversed. */
static inline T F(key)(T bits, T flip, bool is_float) {
    if (!is_float) return bits ^ flip;
    const T magnitude = bits & (T)~SIGN;
    if (magnitude > (T)INFINITE) return NO_NUMBER;
    return (bits & SIGN ? (magnitude ? (T)~bits : SIGN) : bits | SIGN) ^ flip;
}

static inline T F(value)(T key, T flip, bool is_float) {
    key ^= flip;
    return !is_float ? key : key & SIGN ? key ^ SIGN : (T)~key;
}

/* -- mean ------------------------------------------------------------------------------------------------------ */

#ifdef WIDE
/* The mean of sums of so many elements, rounded half to even. */
static inline T F(rounded)(WIDE sum, int64_t count) {
    if (count & (count - 1)) {
#if BITS == 64
        const uint64_t n = (uint64_t)count;
        const WIDE quotient = sum / n, twice = 2 * (sum % n);
        return (T)(quotient + (twice > n || (twice == n && (quotient & 1))));
#else
        /* Both are below 2^48, so that no quotient is rounded to a tie, or across one; the sum rounds half to even. */
        return (T)(SIGNED_WIDE)((double)(SIGNED_WIDE)sum / (double)count + 0x1p52 - 0x1p52);
#endif
    }
    const int shift = __builtin_ctzll((unsigned long long)count);
    return shift ? (T)((sum + ((WIDE)count / 2 - 1) + ((sum >> shift) & 1)) >> shift) : (T)sum;
}

static inline void F(add_rows)(const Row *row, int64_t first, int64_t n, int64_t step, int64_t factor, T flip,
                               WIDE *sums) {
    for (int64_t j = 0; j < n; j++) sums[j] = 0;
    for (int64_t r = 0; r < row->n_rows; r++)
        for (int64_t i = 0; i < factor; i++) {
            const char *from = row->rows[r] + (first * factor + i) * step;
            for (int64_t j = 0; j < n; j++) sums[j] += (T)(F(load)(from + j * factor * step) ^ flip);
        }
}

static inline void F(round_all)(const WIDE *sums, int64_t n, int64_t count, T flip, char *out, int64_t out_step) {
    for (int64_t j = 0; j < n; j++) F(store)(out + j * out_step, F(rounded)(sums[j], count) ^ flip);
}

#ifdef PAIR
/* Windows of two elements in each of a known number of rows: the sum of a pair needs no elements taken apart. */
static inline void F(mean_pairs)(const Row *row, int n_rows, T flip) {
    const char *rows[4];
    char *out = row->out;
    const PAIR flips = (PAIR)flip << BITS | flip, mask = (T)~(T)0;
    const int shift = n_rows == 4 ? 3 : n_rows;
    for (int r = 0; r < n_rows; r++) rows[r] = row->rows[r];
    for (int64_t j = 0; j < row->n; j++) {
        PAIR sum = 0;
        for (int r = 0; r < n_rows; r++) {
            PAIR pair;
            memcpy(&pair, rows[r] + j * (int64_t)sizeof pair, sizeof pair);
            pair ^= flips;
            sum += (PAIR)(pair & mask);
            sum += (PAIR)(pair >> BITS);
        }
        sum = (PAIR)(sum + (PAIR)(n_rows - 1) + (PAIR)((PAIR)(sum >> shift) & 1)) >> shift;
        F(store)(out + j * (int64_t)sizeof(T), (T)sum ^ flip);
    }
}
#endif

static void F(mean)(const Row *row, void *scratch) {
    const T flip = FLIP(row);
    const bool plain = row->step == sizeof(T);
#ifdef PAIR
    if (plain && row->factor == 2 && row->out_step == sizeof(T)) {
        switch (row->n_rows) {
        case 1: F(mean_pairs)(row, 1, flip); return;
        case 2: F(mean_pairs)(row, 2, flip); return;
        case 4: F(mean_pairs)(row, 4, flip); return;
        }
    }
#endif
    WIDE sums[AT_ONCE];
    const int64_t count = row->n_rows * row->factor;
    for (int64_t first = 0; first < row->n; first += AT_ONCE) {
        const int64_t n = row->n - first < AT_ONCE ? row->n - first : AT_ONCE;
        char *out = row->out + first * row->out_step;
        if (plain && row->factor == 1) {
            F(add_rows)(row, first, n, sizeof(T), 1, flip, sums);
        } else {
            F(add_rows)(row, first, n, row->step, row->factor, flip, sums);
        }
        if (row->out_step == sizeof(T)) {
            F(round_all)(sums, n, count, flip, out, sizeof(T));
        } else {
            F(round_all)(sums, n, count, flip, out, row->out_step);
        }
    }
}
#endif

/* -- minimum and maximum --------------------------------------------------------------------------------------- */

static inline void F(smallest)(const Row *row, int64_t first, int64_t n, int64_t step, int64_t factor, T flip,
                               bool is_float, T *best) {
    for (int64_t j = 0; j < n; j++) best[j] = NO_NUMBER;
    for (int64_t r = 0; r < row->n_rows; r++)
        for (int64_t i = 0; i < factor; i++) {
            const char *from = row->rows[r] + (first * factor + i) * step;
            for (int64_t j = 0; j < n; j++) {
                const T key = F(key)(F(load)(from + j * factor * step), flip, is_float);
                best[j] = key < best[j] ? key : best[j];
            }
        }
}

static inline void F(extremes)(const Row *row, T flip, bool is_float) {
    T best[AT_ONCE];
    const bool plain = row->step == sizeof(T);
    for (int64_t first = 0; first < row->n; first += AT_ONCE) {
        const int64_t n = row->n - first < AT_ONCE ? row->n - first : AT_ONCE;
        if (plain && row->factor == 2) {
            F(smallest)(row, first, n, sizeof(T), 2, flip, is_float, best);
        } else if (plain && row->factor == 1) {
            F(smallest)(row, first, n, sizeof(T), 1, flip, is_float, best);
        } else {
            F(smallest)(row, first, n, row->step, row->factor, flip, is_float, best);
        }
        for (int64_t j = 0; j < n; j++)
            F(store)(row->out + (first + j) * row->out_step, F(value)(best[j], flip, is_float));
    }
}

static void F(min)(const Row *row, void *scratch) {
    if (IS_FLOAT(row)) {
        F(extremes)(row, 0, true);
    } else {
        F(extremes)(row, FLIP(row), false);
    }
}

static void F(max)(const Row *row, void *scratch) {
    if (IS_FLOAT(row)) {
        F(extremes)(row, NO_NUMBER, true);
    } else {
        F(extremes)(row, FLIP(row) ^ NO_NUMBER, false);
    }
}

/* -- mode and median ------------------------------------------------------------------------------------------- */

/* Put the smaller keys of two elements of windows first. */
static inline void F(exchange)(T *low, T *high) {
    for (int64_t j = 0; j < KEYS_AT_ONCE; j++) {
        const T a = low[j], b = high[j];
        low[j] = a < b ? a : b;
        high[j] = a < b ? b : a;
    }
}

/* Batcher's merge exchange (Knuth, The Art of Computer Programming, 5.2.2, algorithm M) of many windows at once. */
static void F(sort)(T *keys, int64_t n) {
    int64_t top = 1;
    while (2 * top < n) top *= 2;
    for (int64_t p = n > 1 ? top : 0; p; p /= 2)
        for (int64_t q = top, r = 0, d = p; d; d = q > p ? q - p : 0, q /= 2, r = p)
            for (int64_t i = 0; i < n - d; i++)
                if ((i & p) == r) F(exchange)(keys + i * KEYS_AT_ONCE, keys + (i + d) * KEYS_AT_ONCE);
}

/* The most frequent of sorted keys, the first one of several; those of NaNs are frequent only where all are. */
static inline void F(most_frequent)(const T *keys, int64_t n, bool is_float, T *best) {
    T run[KEYS_AT_ONCE], most[KEYS_AT_ONCE];
    for (int64_t j = 0; j < KEYS_AT_ONCE; j++) {
        best[j] = keys[j];
        run[j] = most[j] = 1;
    }
    for (int64_t i = 1; i < n; i++) {
        const T *before = keys + (i - 1) * KEYS_AT_ONCE, *here = keys + i * KEYS_AT_ONCE;
        for (int64_t j = 0; j < KEYS_AT_ONCE; j++) {
            const T same = here[j] == before[j] && !(is_float && here[j] == NO_NUMBER) ? NO_NUMBER : 0;
            run[j] = (T)((run[j] & same) + 1);
            best[j] = run[j] > most[j] ? here[j] : best[j];
            most[j] = run[j] > most[j] ? run[j] : most[j];
        }
    }
}

/* The key of the mean of two numbers, of which the first is not larger; that of integers is rounded half to even. */
static inline T F(between)(T low, T high, bool is_float) {
    if (low == high) return low;
#ifdef REAL
    if (is_float) {
        const REAL a = REAL_OF(F(value)(low, 0, true)), b = REAL_OF(F(value)(high, 0, true)), sum = a + b;
        return F(key)(BITS_OF(isinf(sum) ? a / 2 + b / 2 : sum / 2), 0, true);
    }
#endif
    const T apart = (T)(high - low), below = (T)(low + apart / 2);
    return (T)(below + (apart & below & 1));
}

static inline void F(middle)(const T *keys, int64_t n, bool is_float, T *best) {
    for (int64_t j = 0; j < KEYS_AT_ONCE; j++) {
        int64_t numbers = n;
        if (is_float)
            while (numbers > 1 && keys[(numbers - 1) * KEYS_AT_ONCE + j] == NO_NUMBER) numbers--;
        best[j] = F(between)(keys[(numbers - 1) / 2 * KEYS_AT_ONCE + j], keys[numbers / 2 * KEYS_AT_ONCE + j], is_float);
    }
}

/* Take one key of each window, in planes: the first elements of all windows, the second ones, and so on. Returns whether
 * all windows have one key only. */
static inline bool F(take_keys)(const Row *row, int64_t first, int64_t n, int64_t step, int64_t factor, T flip,
                                bool is_float, T *keys) {
    T differ = 0;
    T *plane = keys;
    for (int64_t r = 0; r < row->n_rows; r++)
        for (int64_t i = 0; i < factor; i++, plane += KEYS_AT_ONCE) {
            const char *from = row->rows[r] + (first * factor + i) * step;
            for (int64_t j = 0; j < n; j++) {
                plane[j] = F(key)(F(load)(from + j * factor * step), flip, is_float);
                differ |= plane[j] ^ keys[j];
            }
        }
    return !differ;
}

static inline void F(choose)(const Row *row, T flip, bool is_float, bool median, T *keys) {
    T best[KEYS_AT_ONCE];
    const int64_t count = row->n_rows * row->factor;
    memset(keys, 0, (size_t)(count * KEYS_AT_ONCE) * sizeof(T));
    for (int64_t first = 0; first < row->n; first += KEYS_AT_ONCE) {
        const int64_t n = row->n - first < KEYS_AT_ONCE ? row->n - first : KEYS_AT_ONCE;
        const bool pairs = row->step == sizeof(T) && row->factor == 2;
        const T *chosen = best;
        if (pairs ? F(take_keys)(row, first, n, sizeof(T), 2, flip, is_float, keys)
                  : F(take_keys)(row, first, n, row->step, row->factor, flip, is_float, keys)) {
            chosen = keys;
        } else {
            F(sort)(keys, count);
            if (median) {
                F(middle)(keys, count, is_float, best);
            } else {
                F(most_frequent)(keys, count, is_float, best);
            }
        }
        for (int64_t j = 0; j < n; j++)
            F(store)(row->out + (first + j) * row->out_step, F(value)(chosen[j], flip, is_float));
    }
}

static void F(mode)(const Row *row, void *scratch) {
    if (IS_FLOAT(row)) {
        F(choose)(row, 0, true, false, scratch);
    } else {
        F(choose)(row, FLIP(row), false, false, scratch);
    }
}

static void F(median)(const Row *row, void *scratch) {
    if (IS_FLOAT(row)) {
        F(choose)(row, 0, true, true, scratch);
    } else {
        F(choose)(row, FLIP(row), false, true, scratch);
    }
}

#undef JOIN
#undef NAMED
#undef F
#undef SIGN
#undef NO_NUMBER
#undef IS_FLOAT
#undef FLIP
#undef T
#undef BITS
#undef WIDE
#undef SIGNED_WIDE
#undef PAIR
#undef INFINITE
#undef REAL
#undef REAL_OF
#undef BITS_OF
