// blosc_parse: finds the compressed streams of Blosc-1 frames, one thread for each block.
//
// The host has read the 16-byte headers, so it knows the numbers of blocks and streams of each frame (block_start and
// stream_start are their prefix sums); only the positions of the streams must be read from the frame. The kernel checks
// the header again, against those counts, so that no frame can make a thread write outside its rows.
//
// Streams of a frame are numbered block by block. Each block has `splits` streams, but a short last block has one. A
// frame that is stored whole ("memcpy") counts as one block of one raw stream; a frame of no bytes has none.
//
// Traffic for each block: 16 bytes of header and 4 of block table (cached); for each stream 4 read and 18 written.
// The stream sizes of a block form a chain of at most 16, hence one thread.
//
// Source: c-blosc 1.x, README_CHUNK_FORMAT.rst and blosc.c; offsets count from the beginning of the frame.
#include "common.cuh"

enum {
    PARSED = 0,
    TRUNCATED = 1,   // the frame is longer than the chunk, or shorter than its own tables
    BAD_HEADER = 2,  // a version, flag or size that Blosc 1 does not write
    BAD_COUNTS = 3,  // the header has other numbers of blocks and streams than the host counted
    BAD_OFFSET = 4,  // a block begins outside the frame
    BAD_LENGTH = 5   // a stream reaches past the end of the frame
};

const i64 HEADER_NBYTES = 16;
const u32 FLAG_MEMCPY = 2, FLAG_RESERVED = 8, FLAG_NO_SPLIT = 16;
const i64 MAX_SPLITS = 16, MIN_SPLIT_ITEMS = 128;

struct Frame {
    const u8 *data;
    i64 end; // length in bytes, header and tables included
    i64 nbytes, blocksize, typesize;
    i64 n_blocks, n_streams, splits;
    bool is_memcpy;
    u8 error;
};

GPU i64 little_endian(const u8 *from) {
    return (i64)(from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24);
}

GPU u8 header_error(Frame &frame, i64 available) {
    if (available < HEADER_NBYTES) return TRUNCATED;
    u32 flags = frame.data[2];
    frame.typesize = frame.data[3];
    frame.nbytes = little_endian(frame.data + 4);
    frame.blocksize = little_endian(frame.data + 8);
    frame.end = little_endian(frame.data + 12);
    frame.is_memcpy = (flags & FLAG_MEMCPY) != 0;
    if (frame.data[0] != 2 || frame.data[1] != 1 || (flags & FLAG_RESERVED) != 0) return BAD_HEADER;
    if (frame.typesize == 0 || frame.nbytes >> 31 != 0) return BAD_HEADER;
    if (frame.end < HEADER_NBYTES || frame.end > available) return TRUNCATED;
    if (frame.nbytes == 0) return PARSED;
    if (frame.is_memcpy) {
        frame.n_blocks = frame.n_streams = 1;
        return frame.end == frame.nbytes + HEADER_NBYTES ? PARSED : BAD_HEADER;
    }
    if (frame.blocksize == 0 || frame.blocksize >> 31 != 0) return BAD_HEADER;
    frame.n_blocks = (frame.nbytes + frame.blocksize - 1) / frame.blocksize;
    if (frame.n_blocks > (frame.end - HEADER_NBYTES) / 4) return TRUNCATED;
    bool is_split = (flags & FLAG_NO_SPLIT) == 0 && frame.typesize <= MAX_SPLITS &&
                    frame.blocksize / frame.typesize >= MIN_SPLIT_ITEMS;
    frame.splits = is_split ? frame.typesize : 1;
    bool has_short = frame.nbytes % frame.blocksize != 0;
    frame.n_streams = has_short ? (frame.n_blocks - 1) * frame.splits + 1 : frame.n_blocks * frame.splits;
    return PARSED;
}

GPU Frame read_header(const u8 *data, i64 available, i64 n_blocks, i64 n_streams) {
    Frame frame = {data, 0, 0, 0, 0, 0, 0, 1, false, PARSED};
    frame.error = header_error(frame, available);
    if (frame.error == PARSED && (frame.n_blocks != n_blocks || frame.n_streams != n_streams)) frame.error = BAD_COUNTS;
    return frame;
}

// The outputs, one row for each stream.
struct Streams {
    u64 *address;
    i64 *csize;
    u8 *raw, *error;
};

GPU void put_stream(const Streams &streams, i64 row, const u8 *data, i64 csize, bool raw, u8 error) {
    streams.address[row] = (u64)data;
    streams.csize[row] = csize;
    streams.raw[row] = raw;
    streams.error[row] = error;
}

// Walk the streams of one block into rows [first, first + splits). After an error, the remaining rows get it too.
GPU void parse_block(const Frame &frame, i64 block, i64 splits, i64 size, const Streams &streams, i64 first) {
    // Offsets are signed in the format.
    i64 at = (i32)little_endian(frame.data + HEADER_NBYTES + 4 * block);
    u8 error = PARSED;
    if (at < 0 || at > frame.end - 4) error = BAD_OFFSET;
    i64 decoded = size / splits;
    for (i64 k = 0; k < splits; k++) {
        i64 csize = 0;
        if (error == PARSED) {
            if (at > frame.end - 4) {
                error = BAD_LENGTH;
            } else {
                csize = (i32)little_endian(frame.data + at);
                at += 4;
                if (csize < 0 || csize > frame.end - at) error = BAD_LENGTH;
            }
        }
        bool sound = error == PARSED;
        put_stream(streams, first + k, sound ? frame.data + at : nullptr, sound ? csize : 0,
                   sound && csize == decoded, error);
        at += csize;
    }
}

// Every stream of a damaged frame gets the frame's error. The host counted n_blocks > 0 blocks and n_streams streams,
// which need not divide: blocks share them as evenly as possible.
GPU void refuse_block(u8 error, i64 block, i64 n_blocks, i64 n_streams, const Streams &streams, i64 first) {
    i64 each = (n_streams + n_blocks - 1) / n_blocks;
    for (i64 k = block * each; k < (block + 1) * each && k < n_streams; k++) {
        put_stream(streams, first + k, nullptr, 0, false, error);
    }
}

extern "C" __global__ void blosc_parse(i64 n_frames, const u64 *frame, const i64 *frame_nbytes,
                                       const i64 *block_start, const i64 *stream_start, u64 *stream_address,
                                       i64 *stream_csize, u8 *stream_raw, u8 *stream_error) {
    if (n_frames == 0) return;
    Streams streams = {stream_address, stream_csize, stream_raw, stream_error};
    i64 total = block_start[n_frames];
    for (i64 unit = thread_index(); unit < total; unit += thread_count()) {
        i64 row = find_row(block_start, n_frames, unit);
        i64 block = unit - block_start[row];
        i64 n_blocks = block_start[row + 1] - block_start[row];
        i64 first = stream_start[row], n_streams = stream_start[row + 1] - first;
        Frame header = read_header(at_address(frame[row]), frame_nbytes[row], n_blocks, n_streams);
        if (header.error != PARSED) {
            refuse_block(header.error, block, n_blocks, n_streams, streams, first);
        } else if (header.is_memcpy) {
            put_stream(streams, first, header.data + HEADER_NBYTES, header.nbytes, true, PARSED);
        } else {
            i64 rest = header.nbytes - block * header.blocksize;
            bool is_short = rest < header.blocksize;
            i64 size = is_short ? rest : header.blocksize;
            parse_block(header, block, is_short ? 1 : header.splits, size, streams, first + block * header.splits);
        }
    }
}
