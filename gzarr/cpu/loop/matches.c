/* Finds what repeats in shuffled bytes, for Zstandard to encode: see blosc.c.
 *
 * A search of its own because Zstandard's own takes the bytes of all planes to be of one kind. Of bytes of few bits each,
 * short matches cost more than they save: there only longer ones are looked for, which takes less time and makes less
 * bytes. Otherwise this is a lazy parse over buckets of the newest positions, as Zstandard has at its middle levels.
 * Matches are compared byte by byte before they are noted, and never reach beyond the block.
 */
#include "loop.h"

/* Entries of a bucket, the newest first: a position, and above it bits that tell what else has the same hash. */
enum { WAYS = 4, POSITION_BITS = 18, TAG_BITS = 32 - POSITION_BITS, HASH_BITS = 12 };
enum { BUCKETS_NBYTES = sizeof(uint32_t[1 << HASH_BITS][WAYS]) };
/* Shortest matches, in bytes of many bits and of few ones. Numbers are read from 8 bytes. */
enum { SHORT = 4, LONG = 8, WORD_BYTES = 8 };
/* Every so many bytes without a match, one more is skipped, up to a limit; long matches are not noted in their middle. */
enum { SKIP_BITS = 6, MAX_STEP = 16, NOTED = 64 };
/* Planes of many bits whose matches are more than this share, after so many bytes, are for Zstandard: they repeat in ways
 * that a deeper search finds. So are planes most of whose bytes are equal, if they change so often. */
enum { SAMPLE = 1 << 13, SHARE = 2, CHANGES = 20 };
static const double MOST = 0.85;
/* Bits of a byte below which they are few. */
static const double FEW = 4;
/* The entropy of a plane is taken from the first bytes of every stripe. */
enum { STRIPE = 1 << 12, TAKEN = 1 << 10 };
/* Shorter planes are not worth a search, longer ones than Zstandard's blocks have no place. */
enum { MIN_PLANE = 1 << 11, MAX_PLANE = 1 << 17 };

static const uint64_t PRIME = 0x9E3779B185EBCA87u;

typedef struct {
    const uint8_t *data;
    int64_t end; /* of what may match */
    int length;  /* of the shortest match */
    uint32_t (*buckets)[WAYS];
    uint32_t repeated; /* offset of the last match */
    ZSTD_Sequence *next;
} Search;

typedef struct {
    int64_t length;
    uint32_t offset;
} Match;

static uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static int64_t equal_bytes(const Search *s, int64_t a, int64_t b) {
    const int64_t from = b;
    for (; b + WORD_BYTES <= s->end; a += WORD_BYTES, b += WORD_BYTES) {
        const uint64_t differ = word_at(s->data + a) ^ word_at(s->data + b);
        if (differ) return b - from + __builtin_ctzll(differ) / 8;
    }
    while (b < s->end && s->data[a] == s->data[b]) a++, b++;
    return b - from;
}

static int bits_of(uint32_t number) { return 31 - __builtin_clz(number | 1); }

/* The bucket of a position, and the entry that it gets there. */
static uint32_t *bucket_of(const Search *s, int64_t at, uint32_t *entry) {
    const uint64_t hash = (word_at(s->data + at) << (64 - 8 * s->length)) * PRIME;
    *entry = (uint32_t)(hash >> (64 - HASH_BITS - TAG_BITS)) << POSITION_BITS | (uint32_t)at;
    return s->buckets[hash >> (64 - HASH_BITS)];
}

static void note(const Search *s, int64_t at) {
    uint32_t entry, *bucket = bucket_of(s, at, &entry);
    memmove(bucket + 1, bucket, (WAYS - 1) * sizeof *bucket);
    bucket[0] = entry;
}

/* The best match of a position, which is noted. at: not the first one. */
static Match look_for(const Search *s, int64_t at) {
    uint32_t entry, *bucket = bucket_of(s, at, &entry);
    Match best = {s->length - 1, 0};
    for (int i = 0; i < WAYS; i++) {
        if ((bucket[i] ^ entry) >> POSITION_BITS) continue;
        const int64_t from = bucket[i] & ((1u << POSITION_BITS) - 1);
        if (from >= at || at + best.length >= s->end || s->data[from + best.length] != s->data[at + best.length]) continue;
        const int64_t length = equal_bytes(s, from, at);
        if (length > best.length) best = (Match){length, (uint32_t)(at - from)};
    }
    memmove(bucket + 1, bucket, (WAYS - 1) * sizeof *bucket);
    bucket[0] = entry;
    return best;
}

static Match look_back(const Search *s, int64_t at) {
    const uint32_t offset = s->repeated;
    if (offset > at) return (Match){0, 0};
    return (Match){equal_bytes(s, at - offset, at), offset};
}

/* What a match saves, by and large, in quarters of a byte. */
static int64_t worth(Match match) { return 4 * match.length - bits_of(match.offset); }

static void emit(Search *s, int64_t literals, Match match) {
    *s->next++ = (ZSTD_Sequence){.offset = match.offset, .litLength = (uint32_t)literals, .matchLength = (uint32_t)match.length};
    s->repeated = match.offset;
}

/* Find the matches from `begin` to the search's end. */
static bool search(Search *s, int64_t begin) {
    int64_t matched = 0;
    const int64_t last = s->end - WORD_BYTES;
    int64_t at = begin ? begin : 1, anchor = begin;
    while (at < last) {
        Match match = look_for(s, at);
        int64_t start = at;
        const Match again = look_back(s, at + 1);
        if (again.length >= SHORT && (!match.offset || again.length * 4 - 1 > worth(match) + 4)) match = again, start = at + 1;
        if (!match.offset) {
            const int64_t step = ((at - anchor) >> SKIP_BITS) + 1;
            at += step < MAX_STEP ? step : MAX_STEP;
            continue;
        }
        for (int tries = 0; tries < 1 && start + tries + 1 < last && match.length < NOTED; tries++) {
            const int64_t later = start + 1 + tries;
            Match other = look_back(s, later);
            if (other.length >= SHORT && other.length * 4 - 1 > worth(match) + 4 + 3 * tries) {
                match = other, start = later, tries = -1;
                continue;
            }
            other = look_for(s, later);
            if (other.offset && worth(other) > worth(match) + 4 + 3 * tries) match = other, start = later, tries = -1;
        }
        while (start > anchor && start > match.offset && s->data[start - 1] == s->data[start - 1 - match.offset])
            start--, match.length++;
        emit(s, start - anchor, match);
        anchor = start + match.length;
        matched += match.length;
        if (s->length == SHORT && anchor - begin >= SAMPLE && matched * SHARE > anchor - begin) return false;
        for (int64_t i = at + 1; i < anchor && i < last; i++) {
            if (i == at + NOTED && anchor - i > NOTED) i = anchor - NOTED / 2;
            note(s, i);
        }
        at = anchor;
    }
    *s->next++ = (ZSTD_Sequence){.litLength = (uint32_t)(s->end - anchor)};
    return s->length == LONG || matched * SHARE <= s->end - begin;
}

/* Note a plane that is equal to an earlier one, as of values whose parts are. False if it is not. */
static bool repeats_plane(Search *s, int64_t begin, int64_t plane) {
    for (int64_t other = begin - plane; other >= 0; other -= plane) {
        if (memcmp(s->data + other, s->data + begin, (size_t)plane)) continue;
        emit(s, 0, (Match){plane, (uint32_t)(begin - other)});
        *s->next++ = (ZSTD_Sequence){0};
        return true;
    }
    return false;
}

/* The entropy of bytes, in bits each, a little too much: equal on every machine. most: the share of the most frequent. */
static double entropy(const uint8_t *data, int64_t n, double *most) {
    uint32_t counts[4][256] = {0}, top = 0;
    int64_t total = 0;
    double bits = 0;
    for (int64_t begin = 0; begin < n; begin += STRIPE) {
        const int64_t some = n - begin < TAKEN ? n - begin : TAKEN;
        for (int64_t i = 0; i < some; i++) counts[i & 3][data[begin + i]]++;
        total += some;
    }
    for (int v = 0; v < 256; v++) {
        const uint32_t count = counts[0][v] + counts[1][v] + counts[2][v] + counts[3][v];
        if (!count) continue;
        top = count > top ? count : top;
        const uint64_t share = ((uint64_t)total << 16) / count;
        const int whole = 63 - __builtin_clzll(share); /* the logarithm, by straight pieces */
        bits += count * (whole - 16 + (double)(share - ((uint64_t)1 << whole)) / (double)((uint64_t)1 << whole));
    }
    *most = (double)top / (double)total;
    return bits / (double)total;
}

/* How often a byte differs from the one before. */
static int64_t count_changes(const uint8_t *data, int64_t n) {
    int64_t changes = 0;
    for (int64_t i = 1; i < n; i++) changes += data[i] != data[i - 1];
    return changes;
}

int64_t sequences_room(int64_t nbytes) {
    /* of at least SHORT bytes each, and the ends of planes */
    return BUCKETS_NBYTES + (int64_t)sizeof(ZSTD_Sequence) * (nbytes / SHORT + nbytes / MIN_PLANE + 1);
}

/* Find the sequences of a block of `nbytes` bytes, planes of `plane` bytes. room: sequences_room(nbytes) bytes, aligned as
 * numbers are. Returns: their number, with the ends of Zstandard's blocks, one for each plane; 0 if it is to search. */
int64_t find_sequences(const char *block, int64_t nbytes, int64_t plane, char *room, ZSTD_Sequence **sequences) {
    if (plane < MIN_PLANE || plane > MAX_PLANE || nbytes > 1 << POSITION_BITS || nbytes % plane) return 0;
    *sequences = (ZSTD_Sequence *)(room + BUCKETS_NBYTES);
    Search s = {.data = (const uint8_t *)block, .next = *sequences, .buckets = (void *)room, .repeated = 1};
    int length = 0;
    for (int64_t begin = 0; begin < nbytes; begin = s.end) {
        s.end = begin + plane;
        if (repeats_plane(&s, begin, plane)) continue;
        double most;
        s.length = entropy(s.data + begin, plane, &most) < FEW ? LONG : SHORT;
        if (most > MOST && count_changes(s.data + begin, plane) > plane / CHANGES) return 0;
        if (s.length != length) memset(room, 0, BUCKETS_NBYTES); /* positions are where other lengths were read */
        length = s.length;
        if (!search(&s, begin)) return 0;
    }
    return s.next - *sequences;
}
