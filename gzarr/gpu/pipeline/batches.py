"""Cuts work into batches that fit into a pipeline slot; and says what batches are carried out with.

Reading, uploading, decoding and placing of different batches overlap, so a read needs several batches. Each costs some
0.3 ms besides its bytes, and a decoder is fast only if it has streams for many multiprocessors. So batches have a
number of bytes or of chunks, whichever is more, up to the memory of a pipeline slot. Short reads have smaller batches,
as long as each is worth one. Below some size, the host decodes a read and uploads the result, or encodes a write: work
on the device has fixed costs, on the host time is proportional to the number of chunks. The numbers are estimates
(`benchmarks.gpu.model`); nothing was measured on a GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from gzarr.backend import Fields
from gzarr.codecs.spec import ArrayRepr
from gzarr.errors import CodecError, DeviceError, OutOfMemoryError
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlot, PipelineSlots, causes, clear_every_frame
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.reading.host import HostReader
from gzarr.indexing.copies import Plan
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan
from gzarr.layout.chunk_layout import Layout


@dataclass(frozen=True, slots=True)
class Crossover:
    """The limits up to which the host is faster.

    Attributes
    ----------
    nchunks : int
        Most stored chunks of a read that the host decodes, or of a write that it encodes.
    nbytes : int
        Most decoded bytes of these chunks, and of the result.
    """

    nchunks: int
    nbytes: int

    def prefers_host(self, nchunks: int, decoded_nbytes: int, result_nbytes: int) -> bool:
        """Whether the host should do the work. If no chunk is stored, there is nothing to decode."""
        return 0 < nchunks <= self.nchunks and max(decoded_nbytes, result_nbytes) <= self.nbytes

    def __str__(self) -> str:
        return f"reads of at most {self.nchunks} chunks and {self.nbytes} bytes are decoded on the host"


#: Everything runs on the device.
NEVER = Crossover(nchunks=0, nbytes=0)
#: Reasoned, not measured. A read on the device costs about 300 microseconds for tables and calls from Python, and some
#: tens each for the decoder's latency on short streams, for launches and for the wait; a host decodes a chunk in about
#: 25 microseconds (docs/benchmarks.md) at 1 GB/s or better. That makes 500 microseconds for 8 chunks of 32 KiB on
#: either side. Writes are assumed to be alike. In doubt the device is preferred.
SMALL = Crossover(nchunks=8, nbytes=1 << 18)


def crossover_for(device: Device) -> Crossover:
    """The limits for a device; an emulated device does everything itself."""
    return NEVER if device.name == "emulated" else SMALL


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


def in_batches(
    pipeline_slot: PipelineSlot,
    n: int,
    nbytes: int,
    task: Callable[[slice], None],
    chunk_at: Callable[[int], tuple[Coords, ArrayRepr]],
) -> None:
    """Carry out a task for n chunks in batches that should fit into a pipeline slot, or halves of them if they do not.

    nbytes: device memory that a chunk should take. task: takes a range of chunks. It has no effects if it raises
    OverLimitError; otherwise it waits for the device. chunk_at: what an error says of a chunk that does not fit alone.
    Raises: CodecError with the index of the chunk among all, DeviceError.
    """
    start = 0
    size = n
    while start < n:
        limit = pipeline_slot.memory.limit or 0
        size = min(size, max(limit // max(nbytes, 1), 1))
        some = slice(start, min(start + size, n))
        try:
            fits = _try_batch(pipeline_slot, some, task, chunk_at)
        except CodecError as error:
            error.index += start
            raise
        if fits:
            start = some.stop
        else:
            size = (some.stop - start) // 2


def _try_batch(
    pipeline_slot: PipelineSlot,
    some: slice,
    task: Callable[[slice], None],
    chunk_at: Callable[[int], tuple[Coords, ArrayRepr]],
) -> bool:
    """Carry out one batch. Returns: whether it fits into the slot; if not, nothing was done.

    If it does not, the pipeline slot's memory is compacted, and the batch is tried once more.
    """
    marks = pipeline_slot.memory.mark(), pipeline_slot.staging.mark()
    for attempt in ("as it is", "compacted"):
        try:
            task(some)
        except OverLimitError as error:
            pipeline_slot.device.synchronize()
            clear_every_frame(error)
            if attempt == "compacted" and some.stop - some.start == 1:
                coords, chunk = chunk_at(some.start)
                if isinstance(error.__cause__, OutOfMemoryError):
                    raise OutOfMemoryError(f"chunk {coords}: {error}") from error
                raise _too_large(coords, chunk, pipeline_slot.memory.limit or 0) from error
        else:
            return True
        finally:
            pipeline_slot.memory.rewind(marks[0])
            pipeline_slot.staging.rewind(marks[1])
        pipeline_slot.memory.compact()
    return False


def _too_large(coords: Coords, chunk: ArrayRepr, limit: int) -> DeviceError:
    return DeviceError(
        f"chunk {coords}: {chunk.nbytes} bytes of shape {chunk.shape} take more device memory to decode or encode than "
        f"the {limit} bytes of a batch, 1/{N_PIPELINE_SLOTS} of the cap of {limit * N_PIPELINE_SLOTS} bytes; "
        "raise max_device_nbytes, free device memory, or use device='cpu'"
    )


class positions:  # noqa: N801 - a context, used like a function; contextlib's would put the frames back
    """A context for batches of some chunks of a batch. A CodecError gets the position of its chunk in the batch.

    The error loses its traceback, because it would keep the memory of the batch.
    """

    def __init__(self, where: Sequence[int]) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: object) -> None:
        """Change an error that leaves the context."""
        if isinstance(error, CodecError):
            error.index = self._where[error.index]
            for cause in causes(error):
                cause.__traceback__ = None


class Resources(NamedTuple):
    """What a backend carries out reads and writes with.

    Attributes
    ----------
    device : Device
        The device.
    pipeline_slots : PipelineSlots
        The pipeline slots of its batches.
    reader : HostReader
        The reader of files.
    small_reads : Crossover
        Limits of the reads that the host decodes.
    encodes : callable
        Whether the device encodes a write: takes the plan, the value, the number of chunks, and fields.
        Raises: DeviceError in strict mode, if it cannot.
    """

    device: Device
    pipeline_slots: PipelineSlots
    reader: HostReader
    small_reads: Crossover
    encodes: Callable[[DevicePlan, Any, int, Fields], bool]
