"""Cuts work into batches that fit into a pipeline slot, and keeps errors from holding the memory of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gzarr.codecs.spec import ArrayRepr
from gzarr.errors import CodecError, DeviceError, OutOfMemoryError
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlot
from gzarr.indexing.keys import Coords


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
            _forget_frames(error)


def _forget_frames(error: BaseException) -> None:
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
