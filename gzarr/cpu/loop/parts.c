/* Describes boxes for the fast copies of a device: gzarr/gpu/kernels/parts.py does the same in Python, and says what the
 * words of a descriptor are.
 */
#include "device.h"

enum { LEVELS = 3, UNIT = 16, BYTES_SHUFFLED = 1, BITS_SHUFFLED = 2 };
static const int64_t LIMIT = (int64_t)1 << 31;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t low_bit(int64_t number) { return (int64_t)((uint64_t)number & -(uint64_t)number); }
static int64_t log_2(int64_t number) { return number < 2 ? 0 : 63 - __builtin_clzll((uint64_t)number); }

/* The axes of a part after joining. Sums and products wrap: those of parts that are taken are small. */
typedef struct {
    uint64_t run;
    int64_t n;
    uint64_t counts[LEVELS + 1], source[LEVELS + 1], target[LEVELS + 1];
} Joined;

static void join_axes(const Parts *parts, int64_t i, Joined *joined) {
    *joined = (Joined){.run = (uint64_t)parts->nbytes, .counts = {1, 1, 1, 1}};
    for (int64_t axis = parts->axes - 1; axis >= 0; axis--) {
        const int64_t at = axis * parts->n + i;
        const uint64_t count = (uint64_t)parts->counts[at];
        const uint64_t source = (uint64_t)parts->source_strides[at], target = (uint64_t)parts->target_strides[at];
        if (count == 1) continue;
        if (!joined->n && source == joined->run && target == joined->run) {
            joined->run *= count;
            continue;
        }
        const int64_t top = least(most(joined->n, 1) - 1, LEVELS), next = least(joined->n, LEVELS);
        const uint64_t reach = joined->counts[top];
        if (joined->n && source == reach * joined->source[top] && target == reach * joined->target[top]) {
            joined->counts[top] *= count;
            continue;
        }
        joined->counts[next] = count;
        joined->source[next] = source;
        joined->target[next] = target;
        joined->n++;
    }
}

static void divide_by(uint64_t number, uint32_t *magic) {
    const int64_t shift = log_2((int64_t)number);
    magic[0] = (uint32_t)(shift < 32 ? (((uint64_t)1 << (32 + shift)) - 1) / number : 0);
    magic[1] = (uint32_t)shift;
}

/* Describe a part. Returns: how it is shuffled, -1 if no fast kernel copies it. */
static int64_t describe(const Parts *parts, int64_t i, uint32_t *words) {
    Joined joined;
    join_axes(parts, i, &joined);
    const int64_t address = parts->sources[i], start = parts->starts[i], to = parts->targets[i];
    const bool missing = !address;
    if (missing) memset(joined.source, 0, sizeof joined.source);
    const int64_t typesize = most(parts->typesizes[i], 1), size = most(parts->chunk_nbytes[i], 1);
    const int64_t block = least(most(parts->blocksizes[i], 1), size), last = (size - 1) / block, rest = size - last * block;
    int mode = missing ? 0 : parts->modes[i];
    if (mode == BYTES_SHUFFLED && typesize == 1) mode = 0;
    if (mode == BITS_SHUFFLED && !last && size / typesize % 8) mode = 0;

    uint64_t from = (missing ? 0 : (uint64_t)start) | joined.run, into = (uint64_t)to | joined.run | UNIT, total = 1;
    uint64_t steps = 256;
    uint64_t spans[2] = {joined.run, joined.run}, below[2] = {0, 0};
    bool fits = joined.n <= LEVELS;
    for (int k = 0; k <= LEVELS; k++) {
        const int64_t source = (int64_t)joined.source[k], target = (int64_t)joined.target[k];
        const uint64_t more = joined.counts[k] - 1;
        from |= joined.source[k];
        into |= joined.target[k];
        steps |= joined.target[k];
        total *= joined.counts[k];
        fits = fits && !(joined.counts[k] > 1 && !target);
        spans[0] += (source < 0 ? -joined.source[k] : joined.source[k]) * more;
        spans[1] += (target < 0 ? -joined.target[k] : joined.target[k]) * more;
        if (source < 0) below[0] -= joined.source[k] * more;
        if (target < 0) below[1] -= joined.target[k] * more;
    }
    int64_t width = low_bit((int64_t)(into | from | (uint64_t)address)), items = width;
    if (mode) {
        const int64_t within = low_bit((int64_t)(from | (uint64_t)block | (uint64_t)rest | 256)) / typesize;
        const int64_t room = low_bit((int64_t)into), given = parts->typesizes[i];
        items = 0;
        if (mode == BYTES_SHUFFLED)
            items = least(least(within, least(room / typesize, low_bit(address | UNIT))), UNIT / least(typesize, UNIT));
        else if (block / typesize % 8 == 0 && rest / typesize % 8 == 0)
            for (int64_t some = 1; some <= 8; some = some == 1 ? 4 : 2 * some)
                if (within >= some && room >= least(some * typesize, UNIT) && low_bit((int64_t)steps) >= some * typesize)
                    items = some;
        if (given & (given - 1) || given > (mode == BITS_SHUFFLED ? 8 : 16)) items = 0;
        width = items * typesize;
    }
    fits = fits && width >= most(parts->swap_unit, 1) && (!missing || (width >= parts->nbytes && UNIT % parts->nbytes == 0));
    width = most(width, 1);
    total *= joined.run / (uint64_t)width;
    fits = fits && total < (uint64_t)LIMIT && spans[0] / (uint64_t)width < (uint64_t)LIMIT &&
           spans[1] / (uint64_t)width < (uint64_t)LIMIT;

    if (mode) below[0] = 0;
    const uint64_t places[2] = {(uint64_t)address + (mode || missing ? 0 : (uint64_t)start) - below[0], (uint64_t)to - below[1]};
    memcpy(words, places, sizeof places);
    words[4] = (uint32_t)(log_2(items) + (mode ? 8 * log_2(parts->typesizes[i]) : 0));
    words[5] = (uint32_t)total;
    words[6] = (uint32_t)joined.n;
    words[7] = (uint32_t)(joined.run / (uint64_t)width);
    divide_by((uint64_t)most((int64_t)(joined.run / (uint64_t)width), 1), words + 8);
    words[10] = !missing;
    if (parts->is_shuffled) {
        words[11] = (uint32_t)start;
        words[12] = (uint32_t)block;
        divide_by((uint64_t)block, words + 13);
        words[15] = (uint32_t)(block / typesize);
        words[16] = (uint32_t)last;
        words[17] = (uint32_t)(rest / typesize);
    }
    words[18] = (uint32_t)(below[0] / (uint64_t)width);
    words[19] = (uint32_t)(below[1] / (uint64_t)width);
    for (int k = 0; k < least(joined.n, LEVELS); k++) {
        uint32_t *level = words + 20 + 8 * k;
        level[0] = (uint32_t)((int64_t)joined.source[k] / width);
        level[1] = (uint32_t)((int64_t)joined.target[k] / width);
        level[2] = (uint32_t)joined.counts[k];
        divide_by(joined.counts[k] ? joined.counts[k] : 1, level + 4);
    }
    return fits ? mode : -1;
}

void describe_parts(Parts *parts) {
    for (int64_t i = 0; i < parts->n && !parts->is_shuffled; i++) parts->is_shuffled = parts->modes[i];
    for (int64_t i = 0; i < parts->n; i++) parts->kinds[i] = describe(parts, i, parts->words + i * PART_WORDS);
}
