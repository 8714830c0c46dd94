/* Shuffles the bytes of elements, as Blosc does: first the first byte of every element, then the second; and back.
 *
 * Two vectors are split into their even and their odd bytes. That, done as often as the size of an element can be
 * halved, shuffles as many vectors as an element has bytes. Compilers make packs of it for x86 and unzips for ARM;
 * of the same backwards unpacks and zips.
 */
#include "loop.h"

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_VECTORS 1
#endif
#endif

static void shuffle_some(int64_t size, int64_t from, int64_t n, const char *src, char *dst) {
    for (int64_t k = 0; k < size; k++)
        for (int64_t i = from; i < n; i++) dst[k * n + i] = src[i * size + k];
}

static void unshuffle_some(int64_t size, int64_t from, int64_t n, const char *const *planes, char *dst) {
    for (int64_t i = from; i < n; i++)
        for (int64_t k = 0; k < size; k++) dst[i * size + k] = planes[k][i];
}

#ifdef HAS_VECTORS

enum { WIDTH = 16 };
typedef uint8_t Vector __attribute__((vector_size(WIDTH)));

#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define UNEVEN(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

#define LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Shuffle elements of SIZE bytes, 2^k, and back. */
#define SHUFFLE(SIZE)                                                                              \
    static void shuffle_##SIZE(int64_t n, const char *src, char *dst) {             \
        int64_t i = 0;                                                                             \
        for (; i + WIDTH <= n; i += WIDTH) {                                                       \
            Vector now[SIZE], next[SIZE];                                                          \
            memcpy(now, src + i * SIZE, sizeof now);                                               \
            for (int half = 1; half < SIZE; half *= 2) {                                           \
                for (int j = 0; j < SIZE / 2; j++) {                                               \
                    next[j] = EVEN(now[2 * j], now[2 * j + 1]);                                    \
                    next[j + SIZE / 2] = UNEVEN(now[2 * j], now[2 * j + 1]);                     \
                }                                                                                  \
                for (int j = 0; j < SIZE; j++) now[j] = next[j];                                   \
            }                                                                                      \
            for (int j = 0; j < SIZE; j++) memcpy(dst + j * n + i, &now[j], WIDTH); \
        }                                                                                          \
        shuffle_some(SIZE, i, n, src, dst);                                                        \
    }                                                                                              \
    static void unshuffle_##SIZE(int64_t first, int64_t last, const char *const *planes, char *dst) { \
        int64_t i = first;                                                                         \
        const char *plane[SIZE];                                                                   \
        memcpy(plane, planes, sizeof plane);                                                       \
        for (; i + WIDTH <= last; i += WIDTH) {                                                    \
            Vector now[SIZE], next[SIZE];                                                          \
            for (int j = 0; j < SIZE; j++) memcpy(&now[j], plane[j] + i, WIDTH);                   \
            for (int half = 1; half < SIZE; half *= 2) {                                           \
                for (int j = 0; j < SIZE / 2; j++) {                                               \
                    next[2 * j] = LOW(now[j], now[j + SIZE / 2]);                                  \
                    next[2 * j + 1] = HIGH(now[j], now[j + SIZE / 2]);                             \
                }                                                                                  \
                for (int j = 0; j < SIZE; j++) now[j] = next[j];                                   \
            }                                                                                      \
            for (int j = 0; j < SIZE; j++) memcpy(dst + i * SIZE + j * WIDTH, &now[j], WIDTH);     \
        }                                                                                          \
        unshuffle_some(SIZE, i, last, planes, dst);                                                \
    }

SHUFFLE(2)
SHUFFLE(4)
SHUFFLE(8)
SHUFFLE(16)

#define BY_SIZE(name, ...)                              \
    switch (size) {                                     \
        case 2: return name##_2(__VA_ARGS__);           \
        case 4: return name##_4(__VA_ARGS__);           \
        case 8: return name##_8(__VA_ARGS__);           \
        case 16: return name##_16(__VA_ARGS__);         \
    }
#else
#define BY_SIZE(name, ...)
#endif

/* Shuffle `nbytes` bytes of elements of `size`; what is no whole element stays at the end. */
void shuffle_bytes(int64_t size, int64_t nbytes, const char *src, char *dst) {
    const int64_t n = nbytes / size;
    memcpy(dst + n * size, src + n * size, (size_t)(nbytes - n * size));
    BY_SIZE(shuffle, n, src, dst)
    shuffle_some(size, 0, n, src, dst);
}

/* Put elements `first` to before `last` together, of `size` bytes, the k-th of which lie in planes[k]. */
void unshuffle_bytes(int64_t size, int64_t first, int64_t last, const char *const *planes, char *dst) {
    BY_SIZE(unshuffle, first, last, planes, dst)
    unshuffle_some(size, first, last, planes, dst);
}
