/* Reads large chunks block by block: see loop.h.
 *
 * A Blosc frame is a header, a table of where its blocks start, and the blocks, each compressed by itself. Blocks of
 * which a part takes nothing are neither read nor decoded. The others are read and decoded a few at a time, as a frame
 * of their own, and what is wanted is copied from them while they are in cache. Bytes that are stored as they are, in a
 * frame or without one, are cut into blocks of our own.
 * Source: Blosc 1 frame format (c-blosc, README_CHUNK_FORMAT.rst; offsets count from the start of the frame).
 */
#include "blosc.h"

/* Frames of more blocks are read whole: these make a head of one page. */
enum { MAX_BLOCKS = 1020, HEAD = HEADER + START * MAX_BLOCKS };
/* Bytes decoded at once, or a block if that is longer: with what blosc needs besides they stay in a cache of 1 MB. */
enum { GROUP = 1 << 18 };
/* Blocks of bytes that are stored as they are, at least. */
enum { PLAIN_BLOCK = 1 << 15 };
/* Smaller chunks stay in cache whole (compiled/source.py draws the same line). */
const int64_t MIN_BLOCKWISE = 1 << 18;

typedef struct {
    const Stored *stored;
    char head[HEAD]; /* the frame's first `have` bytes: header, table and perhaps some of its blocks */
    int64_t have;
    int64_t n, size; /* blocks; decoded bytes of each but the last */
    int64_t nbytes;  /* of all */
    int64_t plain;   /* where bytes begin that are stored as they are; -1 for compressed blocks */
    bool wanted[MAX_BLOCKS];
} Frame;

/* Decoded bytes `begin` to `end` of a chunk. */
typedef struct {
    int64_t begin, end;
    const char *data;
    char *made; /* instead of `data`: what is copied is made of the value */
} Range;

/* Lay out a copy. False if its chunk has axes without extent. */
bool lay_out_box(const Copy *copy, Box *box) {
    box->copy = *copy;
    Axis *axis = box->copy.axis;
    for (int i = 0; i < copy->n; i++) {
        const Axis moved = axis[i];
        if (moved.src < 1) return false;
        int j = i;
        for (; j > 0 && axis[j - 1].src < moved.src; j--) axis[j] = axis[j - 1];
        axis[j] = moved;
    }
    box->low[copy->n] = 0, box->high[copy->n] = copy->run;
    for (int a = copy->n - 1; a >= 0; a--) {
        int64_t first = 0, last = axis[a].n - 1;
        if (axis[a].in) {
            first = last = axis[a].in[0];
            for (int64_t i = 1; i < axis[a].n; i++) {
                const int64_t at = axis[a].in[i];
                first = at < first ? at : first, last = at > last ? at : last;
            }
        }
        box->low[a] = box->low[a + 1] + first * axis[a].src;
        box->high[a] = box->high[a + 1] + last * axis[a].src;
    }
    return true;
}

/* -- what is wanted -------------------------------------------------------------------------------------------- */

/* Mark the blocks that hold some of the axes `a` and later. at: where the axes before them point to in the chunk. */
static void mark(const Box *box, int a, int64_t at, Frame *frame) {
    const int64_t first = (at + box->low[a]) / frame->size, last = (at + box->high[a] - 1) / frame->size;
    if (first == last || a == box->copy.n) {
        memset(frame->wanted + first, true, (size_t)(last - first + 1));
        return;
    }
    const Axis *axis = &box->copy.axis[a];
    int64_t i = 0;
    if (!axis->in && axis->src <= frame->size) { /* a step begins in every block, up to that where the last begins */
        i = axis->n - 1;
        const int64_t end = (at + box->low[a + 1] + i * axis->src) / frame->size + 1;
        memset(frame->wanted + first, true, (size_t)(end - first));
    }
    for (; i < axis->n; i++) mark(box, a + 1, at + (axis->in ? axis->in[i] : i) * axis->src, frame);
}

/* -- copies from some blocks ----------------------------------------------------------------------------------- */

/* Let a copy go the other way. */
static void turn(Copy *copy) {
    for (int i = 0; i < copy->n; i++) {
        const Axis axis = copy->axis[i];
        copy->axis[i] = (Axis){.n = axis.n, .src = axis.dst, .dst = axis.src, .in = axis.out, .out = axis.in};
    }
}

/* Copy `n` steps of an axis, from the i-th on, which lie in the range. */
static void copy_steps(const Box *box, int a, int64_t i, int64_t n, int64_t at, char *dst, const Range *range) {
    Copy some;
    some.n = box->copy.n - a, some.run = box->copy.run;
    memcpy(some.axis, box->copy.axis + a, (size_t)some.n * sizeof(Axis));
    Axis *axis = &some.axis[0];
    axis->n = n;
    if (axis->in)
        axis->in += i;
    else
        at += i * axis->src;
    if (axis->out)
        axis->out += i;
    else
        dst += i * axis->dst;
    if ((some.cast = box->copy.cast)) {
        some.dst = dst;
        cast_box(&some, range->data + (at - range->begin));
        return;
    }
    if (range->made) turn(&some);
    simplify(&some, false);
    if (range->made)
        copy_axes(some.axis, some.n, range->made + (at - range->begin), dst, some.run, some.run);
    else
        copy_axes(some.axis, some.n, dst, range->data + (at - range->begin), some.run, some.run);
}

/* How many steps of an axis lie in the range, from the i-th on. */
static int64_t steps_inside(const Box *box, int a, int64_t i, int64_t at, const Range *range) {
    const Axis *axis = &box->copy.axis[a];
    const int64_t first = range->begin - at - box->low[a + 1], last = range->end - at - box->high[a + 1];
    if (!axis->in) {
        if (i * axis->src < first || last < i * axis->src) return 0;
        const int64_t n = last / axis->src - i + 1;
        return n < axis->n - i ? n : axis->n - i;
    }
    int64_t end = i;
    while (end < axis->n && axis->in[end] * axis->src >= first && axis->in[end] * axis->src <= last) end++;
    return end - i;
}

/* Copy what of the axes `a` and later lies in the range. at: where the axes before them point to in the chunk. */
static void copy_range(const Box *box, int a, int64_t at, char *dst, const Range *range) {
    if (at + box->low[a] >= range->end || at + box->high[a] <= range->begin) return;
    if (a == box->copy.n && box->copy.cast) { /* blocks hold whole elements */
        box->copy.cast(dst, range->data + (at - range->begin), 1, 0, 0);
        return;
    }
    if (a == box->copy.n) {
        const int64_t from = at > range->begin ? at : range->begin;
        const int64_t to = at + box->copy.run < range->end ? at + box->copy.run : range->end;
        if (range->made)
            memcpy(range->made + (from - range->begin), dst + (from - at), (size_t)(to - from));
        else
            memcpy(dst + (from - at), range->data + (from - range->begin), (size_t)(to - from));
        return;
    }
    const Axis *axis = &box->copy.axis[a];
    const int64_t before = range->begin - at - box->high[a + 1];
    for (int64_t i = axis->in || before < 0 ? 0 : before / axis->src + 1; i < axis->n;) {
        const int64_t from = at + (axis->in ? axis->in[i] : i) * axis->src, n = steps_inside(box, a, i, at, range);
        if (!axis->in && from + box->low[a + 1] >= range->end) return;
        if (n)
            copy_steps(box, a, i, n, at, dst, range);
        else
            copy_range(box, a + 1, from, dst + (axis->out ? axis->out[i] : i) * axis->dst, range);
        i += n ? n : 1;
    }
}

/* Copy bytes of a chunk from the value that a box points to. */
void gather_range(const Box *box, int64_t begin, int64_t end, char *to) {
    const Range range = {.begin = begin, .end = end, .made = to};
    copy_range(box, 0, box->copy.src_start, box->copy.dst, &range);
}

/* -- blocks ---------------------------------------------------------------------------------------------------- */

/* Where a block begins in the frame, and, of the one after the last, where that ends. */
static int64_t start_of(const Frame *frame, int64_t b) {
    if (b == frame->n) return frame->stored->size;
    return frame->plain < 0 ? number(frame->head + HEADER + START * b) : frame->plain + b * frame->size;
}

/* Cut bytes that are stored as they are, behind a header or none. False if they are not so many. */
static bool cut_plain(const Job *job, int64_t header, Frame *frame) {
    /* Of very large chunks blocks are longer, so that they are not too many. */
    const int64_t block = PLAIN_BLOCK * ((job->nbytes - 1) / (PLAIN_BLOCK * (MAX_BLOCKS / 2)) + 1);
    frame->plain = header, frame->nbytes = job->nbytes, frame->size = block - block % job->itemsize;
    if (!frame->size || frame->stored->size != header + frame->nbytes) return false;
    frame->n = (frame->nbytes - 1) / frame->size + 1;
    return frame->n <= MAX_BLOCKS;
}

/* Read and check header and table. False if the frame is to be read whole. */
static bool read_head(const Job *job, Frame *frame) {
    const Stored *stored = frame->stored;
    char *head = frame->head;
    frame->have = 0;
    if (job->codec == PLAIN) return cut_plain(job, 0, frame);
    frame->plain = -1;
    frame->have = stored->size < HEAD ? stored->size : HEAD;
    if (stored->size > job->max_encoded || frame->have < HEADER) return false;
    if (!read_stored(stored, head, frame->have, 0)) return false;
    frame->nbytes = number(head + 4), frame->size = number(head + 8);
    if (frame->nbytes != job->nbytes || number(head + 12) != stored->size) return false;
    if (head[2] & MEMCPYED) { /* nothing is decoded: what blosc refuses is for blosc to see */
        const bool sound = head[0] == FORMAT && head[3] && !(head[2] & RESERVED) && frame->size;
        return sound && frame->size <= frame->nbytes && cut_plain(job, HEADER, frame);
    }
    if (!frame->size || frame->size >= frame->nbytes || frame->size % job->itemsize) return false;
    frame->n = (frame->nbytes - 1) / frame->size + 1;
    int64_t end = HEADER + START * frame->n;
    if (frame->n > MAX_BLOCKS || end > frame->have) return false;
    for (int64_t b = 0; b < frame->n; b++) {
        if (start_of(frame, b) < end) return false;
        end = start_of(frame, b) + 1;
    }
    return end <= stored->size;
}

/* Read `n` blocks and decode them to `nbytes` bytes, or at least those that are wanted. capacity: of `to`, at least a
 * block. */
static bool decode_blocks(const Frame *frame, int64_t b, int64_t n, char *to, int64_t nbytes, int64_t capacity,
                          Extent wanted, Reader *reader) {
    const int64_t table = HEADER + START * n, begin = start_of(frame, b), size = start_of(frame, b + n) - begin;
    const int64_t have = frame->have < begin ? 0 : frame->have - begin < size ? frame->have - begin : size;
    const bool plain = frame->plain >= 0;
    /* no more than the frame: its table is as long at least */
    char *head = reader->encoded, *data = plain ? to : head + table;
    if (have) memcpy(data, frame->head + begin, (size_t)have);
    if (!read_stored(frame->stored, data + have, size - have, begin + have)) return false;
    reader->taken += (uint64_t)(size - have);
    if (plain) return size == nbytes;
    if (knows_frame(frame->head)) {
        for (int64_t i = 0, from = 0; i < n; i++, from += frame->size) {
            const int64_t at = start_of(frame, b + i) - begin, left = nbytes - from;
            const int64_t nblock = left < frame->size ? left : frame->size;
            const Extent some = within(wanted, from, nblock);
            if (!decode_block(frame->head, data + at, size - at, nblock, some, to + from, reader)) return false;
        }
        return true;
    }
    memcpy(head, frame->head, 4);
    put_number(head + 4, nbytes);
    put_number(head + 8, frame->size);
    put_number(head + 12, table + size);
    for (int64_t i = 0; i < n; i++) put_number(head + HEADER + START * i, table + start_of(frame, b + i) - begin);
    return lib.blosc_decompress_ctx(head, to, (size_t)capacity, 1) == nbytes;
}

/* How many blocks from `b` on are decoded at once, and which bytes they are; 0 if that one is not wanted. */
static int64_t wanted_run(const Frame *frame, int64_t b, Range *range) {
    const int64_t most = frame->size < GROUP ? GROUP / frame->size : 1;
    int64_t n = 0;
    while (n < most && b + n < frame->n && frame->wanted[b + n]) n++;
    *range = (Range){.begin = b * frame->size, .end = (b + n) * frame->size};
    if (range->end > frame->nbytes) range->end = frame->nbytes;
    return n;
}

/* Copy what is wanted of a chunk that is a Blosc frame, or stored as it is. False if the chunk is to be read whole.
 * whole: the same copy, simplified; of one that casts, itself. */
bool copy_blocks(const Job *job, const Stored *stored, const Copy *copy, const Copy *whole, Reader *reader) {
    Frame frame;
    Box box;
    frame.stored = stored;
    if (!read_head(job, &frame) || !lay_out_box(copy, &box)) return false;
    reader->taken = (uint64_t)frame.have;
    memset(frame.wanted, false, (size_t)frame.n);
    mark(&box, 0, copy->src_start, &frame);
    const Extent extent = extent_of(copy);
    Range range;
    for (int64_t b = 0, n; b < frame.n; b += n) {
        if (!(n = wanted_run(&frame, b, &range))) {
            n = 1;
            continue;
        }
        const int64_t nbytes = range.end - range.begin;
        /* blosc wants room for a whole block, even if a short one is alone */
        const bool direct = !copy->cast && !whole->n && (nbytes >= frame.size || frame.plain >= 0) && range.begin >= whole->src_start &&
                            range.end <= whole->src_start + whole->run;
        char *to = direct ? whole->dst + (range.begin - whole->src_start) : reader->decoded;
        const Extent some = within(extent, range.begin, nbytes);
        if (!decode_blocks(&frame, b, n, to, nbytes, direct ? nbytes : frame.nbytes, some, reader)) return false;
        if (job->swap) swap_bytes(to, nbytes, job->swap);
        range.data = to;
        if (!direct) copy_range(&box, 0, copy->src_start, copy->dst, &range);
    }
    return true;
}

/* Copy the points of a chunk. False if the chunk is to be read whole. */
bool copy_blocks_of_points(const Call *call, const Stored *stored, int64_t first, int64_t last, Reader *reader) {
    const Job *job = call->job;
    Frame frame;
    frame.stored = stored;
    if (!read_head(job, &frame)) return false;
    reader->taken = (uint64_t)frame.have;
    memset(frame.wanted, false, (size_t)frame.n);
    for (int64_t p = first; p < last; p++) {
        const int64_t at = call->places[p], block = at / frame.size;
        if (block != (at + element_size(call) - 1) / frame.size) return false;
        frame.wanted[block] = true;
    }
    int64_t next = first, done = 0;
    Range range;
    for (int64_t b = 0, n; b < frame.n; b += n) {
        if (!(n = wanted_run(&frame, b, &range))) {
            n = 1;
            continue;
        }
        const Extent all = {0, range.end - range.begin};
        if (!decode_blocks(&frame, b, n, reader->decoded, all.end, frame.nbytes, all, reader)) return false;
        if (job->swap) swap_bytes(reader->decoded, range.end - range.begin, job->swap);
        done += copy_points_of(call, range.begin, range.end, reader->decoded, &next, last);
    }
    return done == last - first;
}
