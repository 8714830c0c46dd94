/* Reads and writes chunks without the interpreter: what the files of the loop share.
 *
 * Theory of operation. One call takes a batch of chunks as a table: what boxes are copied of each chunk, and where they go
 * (gzarr/indexing/tables.py); or, for points, rows of the points of each chunk (sort.c, points.c). Basic selections of a few
 * chunks need no plan: basic.c makes the table from what stands between the brackets.
 *
 * Reading (read.c) finds the bytes of every chunk (stored.c): a file of its own, a range of a shard, or memory.
 * It decodes them (decode.c, blosc_decode.c, zstd.c, deflate.c, checksums.c), large chunks block by block (blocks.c), undoes the filters (filters.c,
 * values.c, shuffle.c), and copies what is wanted into the result (copy.c), where numbers may be cast (cast.c, half.h). A
 * missing chunk gives the fill value.
 *
 * Writing (write.c) lays every part over the old contents of its chunk, unless the part covers the chunk, and encodes
 * that (encode.c). Blosc's frames are made block by block (blosc.c, shuffle.c). The result replaces the chunk's file, which
 * is locked meanwhile (locks.c), is returned for a store in memory, or becomes part of a shard, which is built in memory in
 * the order of its index: new chunks, and between them those of the old shard, as they are. The store takes it, or it
 * replaces its file (shard.c).
 *
 * For devices, fetch.c brings encoded chunks into memory, frames.c takes their frames apart, parts.c describes boxes to
 * the kernels, and put.c stores what was encoded elsewhere. Besides, reduce.c and windows.h downsample blocks of arrays,
 * and items.c makes and lays out strings of variable length.
 *
 * Python calls module.c, chunks.c, device.c and items.c; tables.c takes and checks their arguments.
 *
 * Whatever is not plain success is left and reported: gzarr's Python path does such parts again, and it alone knows how to
 * say what is wrong.
 *
 * Rules: no calls form a circle among these files. Memory is only touched after what says where was checked against the
 * shapes of chunk and array; the codecs are those of numcodecs and libdeflate, called by address (`bind`); calls share
 * nothing but these addresses, the table of locks, and spare contexts of Zstandard.
 */
#ifndef GZARR_LOOP_H
#define GZARR_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frame headers are read as little-endian numbers"
#endif

enum { MAX_NDIM = 32, MAX_PATH = 4096, MAX_CNAME = 16 };
enum { PLAIN, BLOSC, ZSTD, LZ4, GZIP, ZLIB };
enum { NO_CHECKSUM, CRC32C, FLETCHER32 };
/* What became of a part: done, left to the Python path, or (of one that is written) equal to the fill value, so that
 * its chunk is to be deleted. */
enum { DONE, LEFT, EMPTY };

/* A number as it lies in a file. */
static inline uint32_t number(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#define MISSING UINT64_MAX
enum { LZ4_HEADER = 4, CHECKSUM = 4 };
/* What an encoded chunk may have besides its bytes, at least, where a table says nothing else. */
enum { MAX_OVERHEAD = 64 };
/* Runs of so many bytes are read or written where they lie, so many at once. */
enum { MIN_FILE_RUN = 1024, MAX_RUNS = 256 };

/* -- codecs ---------------------------------------------------------------------------------------------------- */

/* Functions of the libraries; NULL for what is not there. The order is that of compiled/library.py. */
struct Library {
    int (*blosc_decompress_ctx)(const void *, void *, size_t, int);
    void *(*ZSTD_createDCtx)(void);
    size_t (*ZSTD_freeDCtx)(void *);
    size_t (*ZSTD_decompressDCtx)(void *, void *, size_t, const void *, size_t);
    unsigned long long (*ZSTD_getFrameContentSize)(const void *, size_t);
    size_t (*ZSTD_findFrameCompressedSize)(const void *, size_t);
    int (*LZ4_decompress_safe)(const char *, char *, int, int);
    uint32_t (*crc32c_value)(const uint8_t *, size_t);
    int (*blosc_compress_ctx)(int, int, size_t, size_t, const void *, void *, size_t, const char *, size_t, int);
    void *(*ZSTD_createCCtx)(void);
    size_t (*ZSTD_freeCCtx)(void *);
    size_t (*ZSTD_CCtx_setParameter)(void *, int, int);
    size_t (*ZSTD_compress2)(void *, void *, size_t, const void *, size_t);
    unsigned (*ZSTD_isError)(size_t);
    int (*LZ4_compress_fast)(const char *, char *, int, int, int);
    size_t (*ZSTD_decompressBegin)(void *);
    size_t (*ZSTD_nextSrcSizeToDecompress)(void *);
    size_t (*ZSTD_decompressContinue)(void *, void *, size_t, const void *, size_t);
    void *(*libdeflate_alloc_decompressor)(void);
    void (*libdeflate_free_decompressor)(void *);
    int (*libdeflate_gzip_decompress_ex)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
    int (*libdeflate_zlib_decompress_ex)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
    void *(*libdeflate_alloc_compressor)(int);
    void (*libdeflate_free_compressor)(void *);
    size_t (*libdeflate_gzip_compress)(void *, const void *, size_t, void *, size_t);
    size_t (*libdeflate_zlib_compress)(void *, const void *, size_t, void *, size_t);
    uint64_t *written; /* by inode, a number for each file that this process writes (gzarr/storage/local_files.py) */
    size_t n_written;
};

extern struct Library lib;

/* -- filters --------------------------------------------------------------------------------------------------- */

/* Casts `n` elements; steps in bytes. */
typedef void (*CastRun)(char *dst, const char *src, int64_t n, int64_t dst_step, int64_t src_step);
/* Types of numbers. */
enum { B1, U1, U2, U4, U8, I1, I2, I4, I8, F2, F4, F8, N_NUMBERS };

/* In the order of gzarr/cpu/compiled/filters.py. */
enum {
    SWAP_BYTES, SHUFFLE_BYTES, TAKE_DELTA, CAST_TYPE, SCALE_OFFSET, QUANTIZE_DIGITS, ROUND_MANTISSA, PACK_BITS, SCALE_VALUES,
    CAST_VALUES
};
enum { MAX_FILTERS = 8, FILTER_NBYTES = 56 };

/* A filter of chunks of one size. Python's tables hold the numbers before the functions, FILTER_NBYTES of them. */
typedef struct Filter Filter;
typedef bool (*FilterRun)(const Filter *filter, const char *src, char *dst);
struct Filter {
    int64_t kind;
    int64_t type, stored_type;     /* of elements before it is encoded, and then */
    int64_t nbytes, stored_nbytes; /* of a chunk */
    double a, b; /* bytes of what is shuffled; range of the first number; offset and scale; scale; bits that
                  * are dropped; what happens to numbers out of range, and how they are rounded */
    FilterRun encode, decode; /* to other memory. NULL for decoding that does nothing */
    CastRun cast_to, cast_from;
};

/* -- the job --------------------------------------------------------------------------------------------------- */

/* What all calls for one read or write have in common. Python's tables hold the int64 fields of these structs in this
 * order, of an array only as many as there are axes. */
typedef struct {
    int64_t ndim;
    int64_t itemsize;    /* of an element */
    int64_t nbytes;      /* of a decoded chunk */
    int64_t max_encoded; /* larger files and ranges are left */
    int64_t codec;
    int64_t swap;     /* bytes of what is to be swapped, 0 for nothing */
    int64_t checksum; /* what follows the encoded bytes */
    int64_t separator;
    int64_t out;                    /* address of the result, or of the value; of the first slot, if there are several */
    int64_t npoints;                /* -1 for boxes */
    int64_t rows;                   /* of a block of slots */
    int64_t element_start, element_size, result_size, cast_from, cast_to; /* as in Element; zeros for all of it as it is */
    int64_t chunk_shape[MAX_NDIM];  /* elements */
    int64_t chunk_stride[MAX_NDIM]; /* bytes */
    int64_t out_shape[MAX_NDIM];    /* of a list of points only the first is used; of a slot, if there are several */
    int64_t out_stride[MAX_NDIM];
    int64_t n_filters, widest; /* filters, and the most bytes of a chunk between them */
    bool unfilters; /* whether any of them does something when a chunk is decoded */
    Filter filters[MAX_FILTERS]; /* in the order of encoding; they follow the other numbers of the table */
} Job;

/* Bytes that an encoded chunk may have. What is behind them is for filters. */
static inline int64_t room_of(const Job *job) {
    return job->max_encoded - (job->n_filters ? 2 * job->widest - job->nbytes : 0);
}

/* What one axis of a copy takes of a chunk, in the columns of gzarr/indexing/spans.py. A list is a position in `lists`, or
 * -1: start and step say all. */
typedef struct {
    int64_t chunk, count, in_start, in_step, in_list, out_start, out_step, out_list;
    int64_t full; /* whether that is every element of the chunk that lies in the array */
} Span;

/* What is taken of every element, all of it or a field, and what becomes of that. Zeros: all of it, as it is. */
typedef struct {
    int64_t start, size; /* bytes */
    int64_t out_size;    /* bytes of an element of the result */
    CastRun cast;        /* NULL if they are copied as they are */
} Element;

/* Where the chunks of a call are stored (gzarr/layout/chunk_layout.py, Places), those of one object together. */
enum { OBJECT_STATE, OBJECT_VERSION, OBJECT_NUMBERS = OBJECT_VERSION + 5 };
enum { OBJECT_LEFT = -1, OBJECT_UNCHECKED, OBJECT_CHECKED, OBJECT_MISSING };
typedef struct {
    const void *places;     /* (n, 2): offset and bytes of each chunk, as `look_up` reads them */
    const int64_t *bounds;  /* (n_objects + 1,): the first chunk of each object, and how many there are */
    const int64_t *numbers; /* (n_objects, OBJECT_NUMBERS): what is known of each, and the version that the places are of */
    const char *paths;      /* of objects that are files, strings one after the other */
    int64_t n_objects;
} Objects;

/* A chunk as it is stored, in memory. */
typedef struct {
    const char *bytes; /* NULL if it is missing */
    int64_t size;
    bool may_change; /* others may write to this memory meanwhile: it is copied before anything looks at it */
} Item;

typedef struct {
    const Job *job;
    int64_t n;         /* chunks */
    const Span *spans; /* of every copy, one for each axis, (n_copies, ndim) */
    int64_t n_copies;
    const int64_t *firsts; /* (n + 1,): where the copies of each chunk begin, and where the last end; NULL for one of each */
    const int64_t *slots;  /* (n_copies,): where they go: rows of blocks, one block after the other; NULL for Job.out */
    const int64_t *blocks; /* slots: (n_blocks, 2), address, bytes from one row to the next */
    int64_t n_blocks;
    const int64_t *lists;   /* index lists of spans */
    int64_t n_lists;
    const int64_t *coords; /* points: of the chunks, (n, ndim) */
    const int64_t *starts; /* points: where those of each chunk begin, and where the last end, (n + 1,) */
    const int64_t *places; /* points: their bytes in their chunks, (npoints,) */
    const int64_t *order;  /* points: positions in the result, (npoints,) */
    const Item *items;     /* the chunks, if they are in memory; NULL if not */
    const int64_t *version;  /* of the shard that the index is of (gzarr.storage.local_files.FileVersion); NULL for any */
    const char *path; /* of the shard, or what the chunks' paths begin with */
    int64_t path_length;
    const void *index; /* offset and size of chunks of the shard, as `look_up` reads them from anywhere in memory;
                        * NULL if there is no shard, or, of one that is written, if it is covered whole */
    int64_t n_index;        /* entries */
    const int64_t *entries; /* of the chunks in it, (n,); NULL if it has those of the call, in their order */
    const char *bytes; /* of the shard, if they are in memory: it is then not opened */
    int64_t n_bytes;
    bool bytes_may_change; /* as in Item */
    bool sharded;
    const char *fill; /* an element of the result, or, if it is written, of the chunk */
    Element element; /* of the job */
} Call;

static inline int64_t element_size(const Call *call) { return call->element.size ? call->element.size : call->job->itemsize; }
static inline int64_t out_size(const Call *call) {
    return call->element.size ? call->element.out_size : call->job->itemsize;
}

/* One axis of a copy: `n` steps of so many bytes, or by lists. */
typedef struct {
    int64_t n, src, dst;
    const int64_t *in, *out;
} Axis;

typedef struct {
    Axis axis[MAX_NDIM];
    int n;
    int64_t run;       /* bytes copied at once */
    int64_t src_start; /* bytes */
    char *dst;
    CastRun cast; /* of elements, which runs then are; NULL for none */
} Copy;

/* What is taken of a chunk: `copy` with its axes in the order of the chunk's memory. The elements of axes `a` and later
 * lie between bytes low[a] and high[a], counted from where the axes before them point to. */
typedef struct {
    Copy copy;
    int64_t low[MAX_NDIM + 1], high[MAX_NDIM + 1];
} Box;

/* Bytes of a decoded chunk, from `begin` to before `end`. */
typedef struct {
    int64_t begin, end;
} Extent;

/* Which of the `nbytes` bytes from `begin` on an extent has, counted from there. */
static inline Extent within(Extent extent, int64_t begin, int64_t nbytes) {
    const int64_t low = extent.begin - begin, high = extent.end - begin;
    return (Extent){.begin = low > 0 ? low : 0, .end = high < nbytes ? high : nbytes};
}

/* Memory that calls use one after the other. */
typedef struct {
    size_t nbytes;
    char bytes[];
} Scratch;

/* What a call reads with, from part to part. */
typedef struct {
    char *encoded, *decoded; /* max_encoded and nbytes bytes of the caller's scratch memory */
    Scratch *block; /* a block of a Blosc frame before its bytes are put together; NULL until it is needed */
    void *zstd, *inflater;
    int fd; /* of the shard; -1 before it is opened */
    int64_t shard_size;
    int64_t number; /* of the part in the call */
    uint64_t taken, placed; /* bytes read of this part's chunk, bytes of the result that it is */
    char path[MAX_PATH];
} Reader;

typedef enum { FOUND, ABSENT, ODD } Found;

/* Where the bytes of a chunk are: a range of an open file, or of memory. */
typedef struct {
    const char *bytes; /* the chunk, or the shard; NULL for a file */
    bool may_change;
    int fd;
    int64_t start, size;
} Stored;

/* What a call has done. */
typedef struct {
    int64_t left;           /* parts */
    uint64_t taken, placed; /* bytes, of the other parts: those it began with, and those it made of them */
} Done;

/* How a write encodes its chunks; behind the numbers of the table stands the name, MAX_CNAME bytes. */
typedef struct {
    int64_t keep_empty; /* whether chunks equal to the fill value are stored */
    int64_t level;      /* of LZ4 its acceleration */
    int64_t shuffle, typesize, blocksize;
    int64_t frame_checksum;   /* whether a Zstandard frame ends with a checksum */
    int64_t keeps_beyond;     /* whether chunks keep what is stored beyond the array */
    int64_t frame; /* the first four bytes of Blosc's frames if the loop makes them, as a number; 0 if c-blosc does */
    int64_t block; /* bytes of their blocks */
    int64_t extent[MAX_NDIM]; /* of the array, in elements */
    char cname[MAX_CNAME];
} Encoder;

/* Where a write puts what it has encoded. */
typedef struct {
    const Encoder *encoder;
    const char *temporary; /* files: what is put before their names for temporary ones */
    int64_t temporary_length;
    uint64_t number; /* files: what is put there next */
    char *shard;      /* a shard, or chunks for a store (Call.items): its bytes, `position` of `capacity` made */
    uint64_t *index;  /* chunks: an entry for each part. A shard: its index, of as many entries as Call.index, `next` of them done */
    int64_t position, capacity, next;
    int64_t until; /* a shard: up to which entry the old chunks behind the parts are copied */
} Sink;

/* How the index of a shard is stored. */
typedef struct {
    int64_t entries;
    bool checksum; /* whether a crc32c follows it */
    bool at_start; /* whether it comes before the chunks */
} IndexFormat;

/* A directory that a call holds open from file to file: names in it are found sooner than whole paths. */
typedef struct {
    int fd; /* -1 if none is held */
    int place;
    size_t length;
    char path[MAX_PATH]; /* with a slash at its end */
} Folder;

/* The lock of a file: its temporary file, open and locked. */
typedef struct {
    int fd; /* -1 if it is not held */
    int place;
    ino_t inode;
    dev_t device;
    Folder *folder;   /* NULL in a call that writes one file */
    const char *name; /* of the file, within the path that the lock was taken by */
    char temporary[MAX_PATH];
} Lock;

/* What a write uses from part to part. */
typedef struct {
    Reader reader; /* of old contents; what is new is made in the same scratch memory */
    void *zstd, *deflater;
    char *blocks; /* frame_room bytes of the caller's scratch memory */
    Lock lock; /* of the file of a part */
    char path[MAX_PATH];
} State;

/* Points that are sorted by shard, chunk, and granule of the chunk. */
enum { GRANULE = 1 << 15 };
typedef struct {
    int64_t extent, shard, chunk; /* elements; without shards they are the chunks */
    int64_t stride;               /* bytes in a chunk */
} PointAxis;

typedef struct {
    const int64_t *coords[MAX_NDIM]; /* of every axis, (n,) */
    int64_t *order, *places;         /* (n,) */
    int64_t *starts, *rows;          /* (n + 1,), (n, ndim), of which there is a row for every chunk with points */
} Points;
typedef struct Sort Sort;

/* Rows of a pool that are gathered. */
typedef struct {
    const char *pool;
    char *out;
    const int64_t *slots; /* (n,) */
    int64_t n, n_rows, elements; /* rows that are taken, rows of the pool, elements of each */
    int64_t from_size, to_size;
    CastRun cast;
} Taking;

/* A block whose windows are reduced to one element each. Steps in bytes. */
typedef struct {
    int64_t length, factor, step, out_step;
} WindowAxis;

typedef struct {
    int ndim, kind; /* of numbers: unsigned integers, signed ones, floats */
    int64_t itemsize, method;
    const char *block;
    char *out;
    WindowAxis axis[MAX_NDIM];
} Windows;

/* locks.c: take a lock, if nobody else holds it (prefix: of the temporary file's name); let it go by putting the
 * temporary file into the place of the file, or by removing the file (if that fails, the lock is still held), or by
 * removing the temporary file alone. */
bool watch_forks(void);
bool take_lock(char *path, const char *prefix, int64_t length, Lock *lock);
bool rename_lock(Lock *lock);
bool remove_locked(Lock *lock);
void end_lock(Lock *lock);
void leave_folder(Folder *folder);

/* copy.c */
bool add_axis(const Call *call, const Span *span, int a, Copy *copy);
void simplify(Copy *copy, bool fill);
Extent extent_of(const Copy *copy);
void copy_axes(const Axis *axis, int n, char *dst, const char *src, int64_t run, int64_t have);
void swap_bytes(char *data, int64_t nbytes, int64_t unit);
void cast_box(Copy *copy, const char *src);
bool take_rows(const Taking *taking);
void gather_points(const Call *call, int64_t first, int64_t last, const char *chunk);
int64_t copy_points_of(const Call *call, int64_t begin, int64_t end, const char *data, int64_t *next, int64_t last);

/* blocks.c */
extern const int64_t MIN_BLOCKWISE;
bool copy_blocks(const Job *job, const Stored *stored, const Copy *copy, const Copy *whole, Reader *reader);
bool lay_out_box(const Copy *copy, Box *box);
void gather_range(const Box *box, int64_t begin, int64_t end, char *to);
bool copy_blocks_of_points(const Call *call, const Stored *stored, int64_t first, int64_t last, Reader *reader);

/* sort.c */
Sort *new_sort(const PointAxis *axes, int64_t ndim, const int64_t numbers[4], bool *sound);
int64_t points_of_sort(const Sort *sort);
int64_t axes_of_sort(const Sort *sort);
int64_t sort_points(Sort *sort, const Points *points);
void free_sort(Sort *sort);

/* points.c */
int read_points(const Call *call, int64_t row, Reader *reader);
bool find_points(const Call *call, int64_t row, int64_t *first, int64_t *last, int64_t *end);
void scatter_points(const Call *call, int64_t first, int64_t last, char *chunk);

/* blosc_decode.c */
bool knows_frame(const char *head);
bool decode_block(const char *head, const char *data, int64_t n, int64_t size, Extent wanted, char *to, Reader *reader);
bool decode_frame(const char *data, int64_t size, Extent wanted, char *to, Reader *reader);

/* blosc.c, shuffle.c */
enum { MAX_PLANES = 255 };
bool frames_are_sound(const Job *job, const Encoder *encoder);
int64_t frame_room(const Encoder *encoder);
int64_t make_frame(const Job *job, const Encoder *encoder, const char *data, const Box *box, char *to, int fd, State *state);
void shuffle_bytes(int64_t size, int64_t nbytes, const char *src, char *dst);
void unshuffle_bytes(int64_t size, int64_t first, int64_t last, const char *const *planes, char *dst);

/* stored.c */
bool read_exactly(int fd, char *to, int64_t n, int64_t at);
bool write_at(int fd, const char *data, int64_t n, int64_t at);
bool write_exactly(int fd, const char *data, int64_t n);
bool make_path(const Call *call, const int64_t *coords, char *path);
Found look_up(const void *index, int64_t at, int64_t shard_size, uint64_t *start, int64_t *size);
Found look_up_chunk(const Call *call, int64_t number, int64_t shard_size, uint64_t *start, int64_t *size);
bool is_lost(const char *path);
int open_regular(const char *path, int64_t *size);
bool is_version(const Call *call, int fd);
Found find_stored(const Call *call, const int64_t *coords, Reader *reader, Stored *stored);
void leave_stored(const Call *call, const Stored *stored);
bool read_stored(const Stored *stored, char *to, int64_t n, int64_t at);

/* checksums.c */
bool has_checksum(const Job *job);
uint32_t checksum_of(const Job *job, const char *data, int64_t n);

/* decode.c */
bool load_stored(const Job *job, const Stored *stored, char *into, Extent wanted, Reader *reader, char **chunk);
Found load_chunk(const Call *call, const int64_t *coords, char *into, Reader *reader, char **chunk);
bool reads_blockwise(const Job *job, const Stored *stored);
bool copy_stored(const Job *job, const Stored *stored, const Copy *copy, Reader *reader);
void close_reader(Reader *reader);
bool has_decoder(const Job *job);

/* encode.c */
int64_t encode(const Job *job, const Encoder *e, const char *data, char *to, State *state);
bool has_encoder(const Job *job);

/* zstd.c: decode `n` bytes to `size`, or at least the first that are wanted. */
bool decode_zstd(const char *data, int64_t n, char *to, int64_t size, int64_t wanted, Reader *reader);
void end_zstd_decoder(void *context);
bool has_zstd_decoder(void);
/* Compress; level and checksum are those of the first time. Returns: bytes made; 0 if they are more than `room`. */
enum { MAX_ZSTD_LEVEL = 22 }; /* and what is above */
int64_t compress_zstd(int64_t level, bool checksum, const char *data, int64_t n, char *to, int64_t room, State *state);
bool has_zstd_encoder(void);

/* read.c, write.c: what became of each chunk of the call is put into `status`. items: the bytes of objects, NULL for files. */
Done read_all(const Call *call, char *status, char *scratch);
Done read_objects(Call *call, const Objects *objects, const Item *items, char *status, char *scratch);
bool objects_are_sound(const Objects *objects, int64_t n);
/* Bytes of scratch memory that a write takes. */
int64_t write_room(const Job *job, const Encoder *encoder);
Done write_all(const Call *call, Sink *sink, char *status, char *scratch);
/* The same with a state whose reader, of an old shard, may be open; of a shard its lock stays. */
Done write_chunks(const Call *call, Sink *sink, char *status, char *scratch, State *state);
void end_write(State *state);

bool plan_gather(const Call *call, const Span *spans, Copy *copy);
bool lock_file(const Sink *sink, State *state);
bool publish(Sink *sink, State *state);
bool replace_file(Sink *sink, const char *data, int64_t size, const Copy *runs, State *state);
bool delete_file(const Sink *sink, State *state);

/* shard.c: write chunks of a shard that is a file, whose path is that of the call. Returns: DONE, LEFT, or EMPTY if it has
 * no chunks now. */
int write_shard(Call *call, Sink *sink, const IndexFormat *format, char *status);

/* scratch.c: memory of at least so many bytes, NULL if there is none. */
enum { MAX_SPARE_NBYTES = 1 << 24 }; /* more is not kept */
Scratch *take_scratch(size_t nbytes);
void give_scratch_back(Scratch *scratch);

/* deflate.c */
bool inflate_chunk(const Job *job, const char *data, int64_t size, char *to, Reader *reader);
int64_t deflate_chunk(const Job *job, int64_t level, const char *data, char *to, int64_t room, State *state);
bool has_inflater(const Job *job);
bool has_deflater(const Job *job);

/* values.c */
bool find_value_filter(Filter *filter);

/* filters.c */
bool take_filters(Job *job, const char *table, int64_t n);
Job job_of_stored(const Job *job);
char *room_of_stored(const Job *job, const Reader *reader);
bool unfilter_chunk(const Job *job, char *data, char *into, Reader *reader, char **chunk);
const char *filter_chunk(const Job *job, const char *data, Reader *reader);

/* cast.c */
int64_t type_size(int64_t type);
bool find_cast(int64_t from, int64_t to, int64_t from_size, int64_t to_size, CastRun *cast);

/* reduce.c */
bool reduce_windows(const Windows *windows);

#endif
