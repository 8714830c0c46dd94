// shuffle: shuffles the bytes or bits of plain chunks as Blosc's filters do, block by block, into other memory.
//
// The inverse of copy_bytes and copy_bits, by the same steps in the other order, at any addresses. All chunks are alike.
//
// A block is cut into units, which a thread loads whole, transposes in registers, and stores as a piece of each plane or
// bit row. For items of 1, 2, 4, 8 or 16 bytes, a unit of bit shuffle is 32 items, or 128 bytes of them if that is less;
// a thread makes one. All other units have 16 bytes; a thread makes four, 32 apart, so that a warp loads and stores
// contiguous bytes. Items of other sizes, and what does not fill a unit, are moved one by one.
#include "parts.cuh"
#include "source.cuh"
#include "words.cuh"

// What addresses of items of T bytes are multiples of, unless they go one by one.
template <int T> GPU constexpr int least() { return T == 0 ? 1 : T < 8 ? T : 8; }

// Store item k of T bytes.
template <int T> GPU void store_item(u8 *to, const u32 *words, int k, bool aligned) {
    Words<T> item = get_item<T>(words, k);
    if (T == 1 || aligned) {
        store_words<T>(to, item);
    } else {
#pragma unroll
        for (int j = 0; j < T; j++) to[j] = (u8)(item.at[j / 4] >> (8 * (j % 4)));
    }
}

// W bytes of items of T bytes, at a multiple of `least`.
template <int W, int T> GPU Words<W> load_items(const u8 *from) {
    if (((u64)from & 15) == 0) return load_words<W>(from);
    const int V = least<T>();
    Words<W> words;
#pragma unroll
    for (int k = 0; k < W / V; k++) set_item<V>(words.at, k, load_words<V>(from + V * k));
    return words;
}

// n bytes from `first` on, or as many as the block has, for items of any size.
GPU void shuffle_rest(const Source &source, const Place &place, u8 *to, i64 first, i64 n) {
    i64 end = first + n < place.size ? first + n : place.size;
    bool bits = source.mode == BIT_SHUFFLED;
    i64 step = bits ? 8 : 1, p = first; // one byte of eight items, or of one
    i64 i = (i64)divide((u64)(p / step), source.typesize), j = p / step - i * source.typesize;
#pragma unroll 1
    for (; p < end && p < place.body; p += step) {
        if (bits) {
            const u8 *from = place.block + 8 * i * source.typesize + j;
            u32 low = four_bytes(from, source.typesize), high = four_bytes(from + 4 * source.typesize, source.typesize);
            transpose_bits(low, high);
            u8 *row = to + j * place.n + i;
#pragma unroll
            for (int b = 0; b < 8; b++, row += place.n / 8) *row = (u8)((b < 4 ? low : high) >> (8 * (b % 4)));
        } else {
            to[j * place.n + i] = place.block[p];
        }
        if (++j == source.typesize) {
            j = 0;
            i++;
        }
    }
#pragma unroll 1
    for (; p < end; p++) to[p] = place.block[p];
}

// Make EACH units of items of T bytes, from one with this number on, 32 apart. aligned: whether all addresses are.
template <int T, int EACH> GPU void shuffle_bytes(const Place &place, u8 *to, i64 unit, bool aligned) {
    const int K = 16 / T;
    Words<16> planes[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const u8 *from = place.block + 16 * (unit + 32 * e);
        planes[e] = aligned ? load_words<16>(from) : load_items<16, T>(from);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 items[K][(T + 3) / 4];
#pragma unroll
        for (int k = 0; k < K; k++) {
            Words<T> item = get_item<T>(planes[e].at, k);
#pragma unroll
            for (int j = 0; j < (T + 3) / 4; j++) items[k][j] = item.at[j];
        }
        planes[e] = join_items<K, T>(items);
    }
    to += unit * K;
#pragma unroll
    for (int j = 0; j < T; j++, to += place.n) {
#pragma unroll
        for (int e = 0; e < EACH; e++) store_item<K>(to + 32 * K * e, planes[e].at, j, aligned);
    }
}

// What a thread makes of a block: four units of items of T bytes (0: any), 32 apart, or as many as there are.
template <int T> GPU void shuffle_units(Source source, i64 block, u8 *to, u32 thread) {
    const int K = T == 0 ? 1 : 16 / T;
    if (T > 0) {
        source.mode = BYTE_SHUFFLED;
        source.typesize = T;
    }
    Place place = start_of(source, block);
    i64 unit = thread / 32 * 128 + thread % 32;
    i64 whole = T == 0 || ((u64)place.block & (least<T>() - 1)) != 0 ? 0 : place.body / 16;
    bool aligned = ((((u64)to | (u64)place.n) & (K - 1)) | ((u64)place.block & 15)) == 0;
    if (aligned && unit + 96 < whole) return shuffle_bytes<16 / K, 4>(place, to, unit, true);
#pragma unroll 1
    for (i64 end = unit + 128; unit < end; unit += 32) {
        if (unit < whole) {
            shuffle_bytes<16 / K, 1>(place, to, unit, false);
        } else {
            shuffle_rest(source, place, to, unit * 16, 16);
        }
    }
}

// What a thread makes of a block: 8 G items of T bytes, or as many as there are.
template <int T, int G> GPU void shuffle_bits(Source source, i64 block, u8 *to, i64 unit) {
    const int W = 8 * G * T, N = T * G / 4;
    source.mode = BIT_SHUFFLED;
    source.typesize = T;
    Place place = start_of(source, block);
    if ((unit + 1) * W > place.body || ((u64)place.block & (least<T>() - 1)) != 0) {
        return shuffle_rest(source, place, to, unit * W, W);
    }
    Words<W> items = load_items<W, T>(place.block + unit * W);
    u32 groups[N][8]; // byte G p + g of word i of n is byte 4 / G * n + p of item 8 g + i
#pragma unroll
    for (int q = 0; q < 8 * T; q += 4) { // bytes of eight items
        u32 four[G][1];
#pragma unroll
        for (int g = 0; g < G; g++) four[g][0] = items.at[2 * T * g + q / 4];
        Words<4 * G> joined = join_items<G, 4>(four);
#pragma unroll
        for (int m = 0; m < G; m++) {
            int at = q + m * (4 / G);
            groups[at % T * G / 4][at / T] = joined.at[m];
        }
    }
    i64 row_nbytes = place.n / 8;
    to += unit * G;
    bool aligned = (((u64)to | (u64)row_nbytes) & (G - 1)) == 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        transpose_words(groups[n]);
#pragma unroll
        for (int row = 0; row < 32 / G; row++, to += row_nbytes) {
            store_item<G>(to, &groups[n][row % 8], row / 8, aligned);
        }
    }
}

// per_block, per_chunk: for a whole block, and for all of a chunk; magic and shift: their divisors.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    shuffle(i64 n_chunks, const u64 *src, const u64 *dst, i64 mode, i64 typesize, i64 blocksize, i64 nbytes,
            i64 per_block, i64 block_magic, i64 block_shift, i64 per_chunk, i64 chunk_magic, i64 chunk_shift) {
    Divisor by_block = {(u32)block_magic, (u32)block_shift}, by_chunk = {(u32)chunk_magic, (u32)chunk_shift};
    for (u32 thread = (u32)thread_index(); thread < (u32)(n_chunks * per_chunk); thread += (u32)thread_count()) {
        u32 chunk = divide(thread, by_chunk);
        u32 unit = thread - chunk * (u32)per_chunk;
        u32 block = divide(unit, by_block);
        Source source = {at_address(src[chunk]), nbytes, blocksize, (u32)typesize, (u32)mode};
        u8 *to = (u8 *)dst[chunk] + block * blocksize;
        unit -= block * (u32)per_block;
        switch (mode << 8 | typesize) {
        case BIT_SHUFFLED << 8 | 1: shuffle_bits<1, 4>(source, block, to, unit); break;
        case BIT_SHUFFLED << 8 | 2: shuffle_bits<2, 4>(source, block, to, unit); break;
        case BIT_SHUFFLED << 8 | 4: shuffle_bits<4, 4>(source, block, to, unit); break;
        case BIT_SHUFFLED << 8 | 8: shuffle_bits<8, 2>(source, block, to, unit); break;
        case BIT_SHUFFLED << 8 | 16: shuffle_bits<16, 1>(source, block, to, unit); break;
        case BYTE_SHUFFLED << 8 | 2: shuffle_units<2>(source, block, to, unit); break;
        case BYTE_SHUFFLED << 8 | 4: shuffle_units<4>(source, block, to, unit); break;
        case BYTE_SHUFFLED << 8 | 8: shuffle_units<8>(source, block, to, unit); break;
        case BYTE_SHUFFLED << 8 | 16: shuffle_units<16>(source, block, to, unit); break;
        default: shuffle_units<0>(source, block, to, unit); break;
        }
    }
}
