// weighted_sums: for each piece of 1024 bytes of many streams, the sum of its words, and the sum of each word times the
// number of words from it to the end of the piece. Adler-32 and Fletcher-32 are computed from these.
//
// A word is one byte (word = 1), or two bytes with the high byte first (word = 2), of which the last one may lack its
// low byte. One thread takes one piece. Pieces are numbered stream by stream; piece_start holds the prefix sums of
// ceil(nbytes / 1024). sums holds two numbers for each piece; the host combines the pieces of a stream.
//
// Traffic for each byte: one read, in units of 16 bytes if the address allows it; 1/64 written. Threads of a warp read
// 1024 bytes apart, so whole lines are used from L1.
#include "unit.cuh"

const i64 PIECE_NBYTES = 1024; // even, so that no word lies in two pieces

extern "C" __global__ void weighted_sums(i64 n_streams, const u64 *src, const i64 *nbytes, const i64 *piece_start,
                                         i64 word, u64 *sums) {
    if (n_streams == 0) return;
    i64 total = piece_start[n_streams];
    for (i64 piece = thread_index(); piece < total; piece += thread_count()) {
        i64 stream = find_row(piece_start, n_streams, piece);
        i64 begin = (piece - piece_start[stream]) * PIECE_NBYTES;
        i64 left = nbytes[stream] - begin;
        if (left > PIECE_NBYTES) left = PIECE_NBYTES;
        const u8 *first = at_address(src[stream]), *last = first + nbytes[stream];
        // The running sum is added after each word, so the first word is added as often as there are words.
        u64 plain = 0, weighted = 0;
        for (i64 k = 0; k < left; k += 16) {
            i64 n = left - k < 16 ? left - k : 16;
            const u8 *from = first + begin + k;
            Unit unit = n == 16 ? load_unit(from, first, last) : load_bytes(from, n);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                u64 byte = get(unit, i) & 0xff;
                if (i < n) {
                    if (word == 1) {
                        plain += byte;
                        weighted += plain;
                    } else if ((i & 1) == 0) {
                        plain += byte << 8;
                        if (i + 1 >= n) weighted += plain;
                    } else {
                        plain += byte;
                        weighted += plain;
                    }
                }
            }
        }
        sums[2 * piece] = plain;
        sums[2 * piece + 1] = weighted;
    }
}
