"""Cuts work into batches that fit into a pipeline slot, and keeps errors from holding the memory of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.pipeline.placement import Learned

#: How much smaller a batch becomes if it does not fit, and it is not known how much of it would.
_UNKNOWN_SHARE = 0.5
#: And how much smaller than what would fit, as chunks differ.
_MARGIN = 0.95


def in_batches(
    pipeline_slot: PipelineSlot,
    n: int,
    size: int,
    task: Callable[[slice], None],
    too_large: Callable[[int], DeviceError],
    learned: Learned | None = None,
) -> None:
    """Carry out a task for n chunks in batches of ``size``, or of fewer chunks if they do not fit.

    task: takes a range of chunks. It has no effects if it raises OverLimitError; otherwise it waits for the device.
    too_large: makes the error for a single chunk that does not fit. learned: is told what chunks take if they do not.
    Raises: CodecError with the index of the chunk among all, DeviceError.
    """
    start = 0
    limit = pipeline_slot.memory.limit or 0
    while start < n:
        if learned is not None and learned.memory:  # perhaps by another pipeline slot, since this one began
            size = min(size, max(limit // learned.memory, 1))
        context = slice(start, min(start + size, n))
        try:
            share = _try_batch(pipeline_slot, context, task, too_large)
        except CodecError as error:
            error.index += start
            raise
        if share == 1:
            start = context.stop
            continue
        size = max(int((context.stop - start) * share), 1)
        if learned is not None:
            learned.add(limit // size)


def _try_batch(
    pipeline_slot: PipelineSlot, context: slice, task: Callable[[slice], None], too_large: Callable[[int], DeviceError]
) -> float:
    """Carry out one batch. Returns: the share of it that fits into the slot; below 1, nothing was done.

    If what does not fit was not asked for at once, the pipeline slot's memory is compacted, and the batch is tried once
    more.
    """
    marks = pipeline_slot.memory.mark(), pipeline_slot.staging.mark()
    for attempt in ("as it is", "compacted"):
        try:
            task(context)
        except OverLimitError as error:
            pipeline_slot.device.synchronize()
            if error.share is not None and error.share < 1:
                return error.share * _MARGIN
            if attempt == "compacted" and context.stop - context.start == 1:
                raise too_large(context.start) from error
        else:
            return 1
        finally:
            pipeline_slot.memory.rewind(marks[0])
            pipeline_slot.staging.rewind(marks[1])
        pipeline_slot.memory.compact()
    return _UNKNOWN_SHARE


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
