"""Says how many chunks a batch takes, before anything of it is known but the size and codecs of a chunk.

Theory of operation. Reading, uploading, decoding and placing of different batches overlap, so a read needs several
batches. Each batch costs some 0.3 ms besides its bytes, and a decoder is fast only if it has streams for all
multiprocessors. Models of these costs (`tests.gpu.pipeline.test_sizing`, `benchmarks.gpu.model`) are flat from 64 to
128 MiB for reads of 4 GiB. Smaller batches pay for calls; with larger ones, more is read before anything overlaps.
Chunks of one long stream each are decoded at the pace of one stream, so their batches are larger, up to the memory of a
pipeline slot. Short reads have smaller batches, as long as each is worth one.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Plan
from gzarr.indexing.plan import BoxPlan
from gzarr.layout.chunk_layout import Layout

#: Decoded bytes of a batch, if its streams are enough.
BATCH_NBYTES = 96 << 20
#: Streams of a batch: 132 multiprocessors (H100, H200) with 16 of them each. nVidia's guide asks for some thousand.
BATCH_NSTREAMS = 2000
#: Batches of a read, if each still has a fourth of the above.
BATCHES_PER_READ, LEAST_SHARE = 8, 4
#: More chunks only make larger tables: some 400 bytes for each chunk.
MAX_BATCH_NCHUNKS = 1 << 14

#: Scratch of compressors for each stream of any size: nvCOMP's Zstandard takes 64 KiB, LZ4 and Deflate take 32 KiB.
_ENCODE_NBYTES = 1 << 16
#: And for each byte of a chunk: up to five for Zstandard, and up to two for the output.
_ENCODE_SHARE = 7
#: Tables of a chunk, for few streams; a sixteenth of the other memory is added for more of them, and for alignment.
_TABLE_NBYTES = 1 << 10
#: Device memory for each byte of a chunk if nothing is known of its codecs.
_UNKNOWN_SHARE = 6


class ChunkCost(NamedTuple):
    """What a chunk takes in a batch.

    Attributes
    ----------
    nbytes : int
        Decoded bytes.
    nstreams : int
        Streams that the device decodes or encodes, or a guess; 0 if it does neither.
    memory : int
        Bytes of device memory, or a guess.
    """

    nbytes: int
    nstreams: int
    memory: int


def batch_nchunks(nchunks: int, chunk: ChunkCost, limit: int) -> int:
    """How many chunks each batch of a read or write should take, such that all take about as many.

    nchunks: of the whole read or write. limit: device memory of a batch, in bytes.
    """
    wanted = BATCH_NBYTES // max(chunk.nbytes, 1)
    if chunk.nstreams:
        wanted = max(wanted, BATCH_NSTREAMS // chunk.nstreams)
    wanted = min(wanted, max(-(-nchunks // BATCHES_PER_READ), wanted // LEAST_SHARE))
    most = max(min(wanted, limit // max(chunk.memory, 1), MAX_BATCH_NCHUNKS), 1)
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


def read_cost(plan: DevicePlan | None, nbytes: int) -> ChunkCost:
    """What a chunk takes in a read. plan: None if chunks differ, or the host decodes. nbytes: decoded, of a chunk."""
    if plan is None:
        return ChunkCost(nbytes, 0, nbytes * _UNKNOWN_SHARE)
    # Encoded bytes, decoded bytes, and what decoding takes.
    memory = _with_tables(nbytes * (2 + plan.scratch))
    return ChunkCost(nbytes, plan.nstreams, max(memory, plan.reading.memory))


def write_cost(plan: DevicePlan | None, nbytes: int) -> ChunkCost:
    """What a chunk takes in a write; see `read_cost`."""
    if plan is None:
        return ChunkCost(nbytes, 0, nbytes * _UNKNOWN_SHARE)
    # Values, rows, those that are encoded, and old contents with what decoding them takes.
    memory = nbytes * (4 + plan.scratch)
    if plan.encoding.compresses:
        memory += nbytes * _ENCODE_SHARE + max(plan.nstreams, 1) * _ENCODE_NBYTES
    memory = max(_with_tables(memory), plan.writing.memory)
    return ChunkCost(nbytes, plan.nstreams if plan.encoding.compresses else 0, memory)


def later_nbytes(plan: DevicePlan, n: int) -> int:
    """Device memory that a batch of a read takes for n parts when their chunks are decoded: filters and tables."""
    return n * ((plan.chunk.nbytes or 0) * plan.filters + _TABLE_NBYTES) + (1 << 12)


def _with_tables(nbytes: int) -> int:
    return nbytes + nbytes // 16 + _TABLE_NBYTES
