/* How encoded chunks come to devices and back: see loop.h. */
#ifndef GZARR_DEVICE_H
#define GZARR_DEVICE_H

#include "loop.h"

/* Where the chunks of an array are: in files of their own, or in shards of `entries` chunks. As `Job`, a table. */
typedef struct {
    int64_t ndim, separator;
    int64_t entries;          /* 0 if chunks are files */
    int64_t checksum;         /* whether a crc32c follows the index of a shard */
    int64_t at_start;         /* whether the index comes first */
    int64_t counts[MAX_NDIM]; /* chunks of a shard */
    int64_t steps[MAX_NDIM];  /* entries of its index from one chunk to the next */
} Places;

/* What to do: read chunks into the slab; find them in their files; say which spans parts are made of. What became of a
 * chunk, instead of its size. */
enum { FETCH_CHUNKS, LOCATE_CHUNKS, COUNT_SPANS };
enum { MISSING_CHUNK = -1, LEFT_CHUNK = -2, SLAB_ALIGNMENT = 16 };

/* The chunks of a run: of every axis the first of its spans and their number; and the shard that holds them. */
typedef struct {
    int64_t first[MAX_NDIM], n[MAX_NDIM];
    ShardGrid grid;
} FetchWindow;

/* The runs that one call fetches. */
typedef struct {
    const Places *places;
    const int64_t *axes;    /* (ndim, 4): first of its chunks, their number, first of its windows, their number */
    const int64_t *chunks;  /* coordinates of the chunks of the spans of all axes, one axis after the other */
    const int64_t *windows; /* (n_windows, 3): coordinate of the shard, its first span, number of spans */
    const int64_t *runs;    /* (n_runs, 3): number of the shard, first part, number of parts */
    const int64_t *numbers; /* runs count these: the number of each part in its shard's window; NULL: all there are */
    int64_t n_chunks, n_windows, n_runs, n_numbers;
    const char *path; /* what the paths of files begin with */
    int64_t path_length;
    char *slab;
    int64_t capacity; /* bytes that chunks may take; negative if there is no slab */
    int64_t *cursor;  /* bytes that are taken, by all threads */
    int64_t phase, mode;
    int64_t *offsets, *sizes; /* of every part: place in the slab or file, -1 for none; bytes, or why not */
    int32_t *spans;           /* (parts, ndim): row of the span on each axis */
} Fetch;

/* Values that are copied into rows, decoded chunks one after the other. */
typedef struct {
    Call call;           /* its job, spans and lists */
    const int64_t *axes; /* (ndim, 4), as in Fetch */
    int64_t n_spans;
    const int32_t *part_spans; /* (n, ndim): row of the span on each axis */
    int64_t n;
    char *rows;
    int64_t rows_nbytes;
} Gathering;

/* Encoded chunks that are stored, each as a file, or as many as a shard has entries. */
typedef struct {
    const Places *places;
    const int64_t *coords; /* (n, ndim): of the files */
    const int64_t *addresses, *sizes; /* of the chunks, those of a shard in the order of its index; -1 for none */
    int64_t n;
    const char *path; /* what the paths of files begin with */
    int64_t path_length;
} Put;

/* Encoded chunks in a slab, and, of Blosc's frames, what is in them. */
enum { STREAM_KINDS = 5, STREAM_COLUMNS = 5 };
typedef struct {
    const uint8_t *slab;
    int64_t slab_nbytes;
    const int64_t *offsets, *sizes;
    int64_t n;
    int64_t nbytes; /* of a decoded chunk */
    uint8_t *codecs, *whole, *shuffles;
    int32_t *typesizes;
    int64_t *blocksizes, *cbytes;
    int64_t *bounds;  /* (STREAM_KINDS + 1,): where the streams of each kind begin */
    int64_t *streams; /* (STREAM_COLUMNS, n_streams): frame, place in the slab, bytes, place in the chunk, decoded bytes */
    int64_t n_streams;
} Frames;

/* Boxes that a device copies, one entry of each column for each part. */
enum { PART_WORDS = 44 };
typedef struct {
    int64_t n, axes;
    const int64_t *sources, *starts, *targets;                 /* addresses of chunks, 0 for none, and places in them */
    const int64_t *counts, *source_strides, *target_strides;   /* (axes, n) */
    const uint8_t *modes;                                      /* how chunks are shuffled */
    const int32_t *typesizes;
    const int64_t *blocksizes, *chunk_nbytes;
    int64_t nbytes, swap_unit; /* of an element, and of the numbers whose bytes are reversed, or 0 */
    bool is_shuffled;          /* whether any chunk is */
    uint32_t *words;           /* (n, PART_WORDS), zeros */
    int64_t *kinds;
} Parts;

/* put.c. Returns: false if a part leaves the tables, the chunk or the value; the number of files that are left. */
bool gathering_is_sound(const Gathering *gathering);
bool gather_all(const Gathering *gathering);
int64_t put_all(const Put *put, Sink *sink, char *status);
/* Put a shard together in memory. Returns: its bytes, 0 without chunks, -1 if there is no room. */
int64_t join_shard(const Places *places, const int64_t *addresses, const int64_t *sizes, char *out, int64_t room);

/* frames.c: whether all frames are plain; if not, Python must look. Blosc's are first described and counted (`bounds` are
 * the answer), then their streams are noted. */
bool zstd_is_plain(const Frames *frames);
bool parse_blosc(Frames *frames);

/* parts.c */
void describe_parts(Parts *parts);

/* fetch.c: answers are put from number `first` on, of `n_out` places. */
bool fetch_is_sound(const Fetch *fetch, int64_t first, int64_t n_out);
void fetch_all(const Fetch *fetch, int64_t first);

#endif
