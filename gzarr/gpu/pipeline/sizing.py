"""Says how many chunks a batch takes, before anything of it is known but the size and codecs of a chunk.

Reading, uploading, decoding and placing of different batches overlap, so a read needs several batches. Each costs some
0.3 ms besides its bytes, and a decoder is fast only if it has streams for many multiprocessors. So batches have a
number of bytes or of chunks, whichever is more, up to the memory of a pipeline slot. Short reads have smaller batches,
as long as each is worth one. The numbers are estimates (`benchmarks.gpu.model`); nothing was measured on a GPU.
"""

from __future__ import annotations

from math import prod

from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Plan
from gzarr.indexing.plan import BoxPlan
from gzarr.layout.chunk_layout import Layout

#: Decoded bytes, and chunks, of a batch, of which the larger one counts.
BATCH_NBYTES, BATCH_NCHUNKS = 96 << 20, 256
#: Batches of a read, if each still has a fourth of the above.
BATCHES_PER_READ, LEAST_SHARE = 8, 4
#: More chunks only make larger tables: some 400 bytes for each chunk.
MAX_BATCH_NCHUNKS = 1 << 14

#: Scratch of compressors for a stream of any size: nvCOMP's Zstandard takes 64 KiB, LZ4 and Deflate take 32 KiB.
_ENCODE_NBYTES = 1 << 16
#: And for each byte of a chunk: up to five for Zstandard, up to two for the output, one for streams of 64 KiB.
_ENCODE_SHARE = 8
#: Scratch of Zstandard's decoder for a stream of any size (`gzarr.gpu.device.nvcomp_tables`: 2 pieces of 3468 bytes).
_DECODE_NBYTES = 7 << 10
#: Tables of a chunk, for few streams; a sixteenth of the other memory is added for more of them, and for alignment.
_TABLE_NBYTES = 1 << 10
#: Device memory for each byte of a chunk if nothing is known of its codecs.
_UNKNOWN_SHARE = 6


def batch_nchunks(nchunks: int, nbytes: int, memory: int, limit: int) -> int:
    """How many chunks each batch of a read or write should take, such that all take about as many.

    nchunks: of the whole read or write. nbytes, memory: decoded bytes of a chunk, and device memory that it takes.
    limit: device memory of a batch.
    """
    wanted = max(BATCH_NBYTES // max(nbytes, 1), BATCH_NCHUNKS)
    wanted = min(wanted, max(-(-nchunks // BATCHES_PER_READ), wanted // LEAST_SHARE))
    most = max(min(wanted, limit // max(memory, 1), MAX_BATCH_NCHUNKS), 1)
    nbatches = -(-nchunks // most)
    return max(-(-nchunks // max(nbatches, 1)), 1)


def batch_size(plan: Plan, layout: Layout, size: int) -> int:
    """Most chunks of a batch, if shards had as many chunks as the largest, for batches of about a size.

    Shards are not cut if they are as small; those at the edges of a selection have fewer chunks.
    """
    if not isinstance(plan, BoxPlan) or layout.objects is layout.grid:
        return size
    windows = plan.windows(layout.objects)
    largest = prod([int(axis[:, 2].max()) for axis in windows])
    return size * prod(map(len, windows)) * largest // plan.nparts if size >= largest else size


def read_memory(plan: DevicePlan | None, nbytes: int) -> int:
    """Device memory that a chunk takes in a read, or a guess, in bytes.

    plan: None if chunks differ, or the host decodes. nbytes: decoded, of a chunk.
    """
    # Encoded bytes, decoded bytes, and what decoding takes.
    if plan is None:
        return nbytes * _UNKNOWN_SHARE
    return _with_tables(nbytes * (2 + plan.scratch)) + (_DECODE_NBYTES if plan.scratch > 1 else 0)


def write_memory(plan: DevicePlan | None, nbytes: int) -> int:
    """The same in a write; see `read_memory`."""
    if plan is None:
        return nbytes * _UNKNOWN_SHARE
    # Values, rows, those that are encoded, and old contents with what decoding them takes.
    memory = nbytes * (4 + plan.scratch)
    return _with_tables(memory + nbytes * _ENCODE_SHARE + _ENCODE_NBYTES if plan.encoding.compresses else memory)


def _with_tables(nbytes: int) -> int:
    return nbytes + nbytes // 16 + _TABLE_NBYTES
