/* How encoded chunks come to devices and back. */
#ifndef GZARR_DEVICE_H
#define GZARR_DEVICE_H

#include "../../cpu/loop/loop.h"

/* How the chunks of an array are stored: as files, or in shards of `entries` chunks. As `Job`, a table. */
typedef struct {
    int64_t ndim, separator;
    int64_t entries;  /* 0 if chunks are files */
    int64_t checksum; /* whether a crc32c follows the index of a shard */
    int64_t at_start; /* whether the index comes first */
} Places;

/* What became of a chunk, instead of its size. */
enum { MISSING_CHUNK = -1, LEFT_CHUNK = -2, SLAB_ALIGNMENT = 16 };

/* The chunks that one call fetches. */
typedef struct {
    const Call *call;       /* how many they are, and, of files, their coordinates and paths */
    const Objects *objects; /* where they are in shards; NULL for files */
    char *slab;
    int64_t capacity; /* bytes that chunks may take; negative if there is no buffer */
    int64_t *cursor;  /* bytes that are taken, by all threads */
    int64_t phase;
    int64_t *offsets, *sizes; /* of every chunk: place in the buffer, -1 for none; bytes, or why not */
} Fetch;

/* Encoded chunks that are stored, each as a file, or as many as a shard has entries. */
typedef struct {
    const Places *places;
    const int64_t *coords; /* (n, ndim): of the files */
    const int64_t *addresses, *sizes; /* of the chunks, those of a shard in the order of its index; -1 for none */
    int64_t n;
    const char *path; /* what the paths of files begin with */
    int64_t path_length;
} Put;

/* How the decoded bytes of a Blosc frame are shuffled, and whether the host must decode it, which then has no streams: a
 * row of gzarr/gpu/codecs/blosc/parsing.py. */
typedef struct {
    int64_t blocksize;
    int32_t typesize;
    uint8_t shuffle, to_host;
} Frame;

/* Encoded chunks in a slab, and, of Blosc's frames, what is in them. */
enum { STREAM_KINDS = 5, STREAM_COLUMNS = 5 };
typedef struct {
    const uint8_t *slab;
    int64_t slab_nbytes;
    const int64_t *offsets, *sizes;
    int64_t n;
    int64_t nbytes; /* of a decoded chunk */
    Frame *frames;
    int64_t *bounds;  /* (STREAM_KINDS + 1,): where the streams of each kind begin */
    int64_t *streams; /* (STREAM_COLUMNS, n_streams): frame, place in the slab, bytes, place in the chunk, decoded bytes */
    int64_t n_streams;
} Frames;

/* put.c. Returns: the number of files that are left. */
int64_t put_all(const Put *put, Sink *sink, char *status);

/* frames.c. Which chunks are single frames of Zstandard that the device decodes; nbytes: of each, decoded. */
void find_plain_zstd(const Frames *frames, const int64_t *nbytes, uint8_t *plain);
/* Blosc's frames are first described and counted (`bounds` are the answer), then their streams are noted. False if there
 * are others than were counted. */
bool parse_blosc(Frames *frames);

/* fetch.c */
void fetch_all(const Fetch *fetch);

#endif
