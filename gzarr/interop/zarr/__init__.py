"""gzarr under zarr-python 3: a codec pipeline that reads and writes whole selections with gzarr's engine.

    zarr.config.set({"codec_pipeline.path": "gzarr.interop.zarr.CodecPipeline"})

Theory of operation. zarr-python cuts a selection into a batch with an entry for each chunk. The pipeline turns it back
into one selection (`batches`), prepares the array for gzarr's engine (`arrays`), and runs it on a thread; a small chunk
that is quickly there is read or written at once. What gzarr does not do goes to zarr-python's own pipeline, of which
this one is a subclass. So does whatever fails: errors are zarr-python's. The logger "gzarr.interop.zarr" says why, at
level DEBUG. Where gzarr finds a damaged chunk and zarr-python does not, `ChunkError` is raised: zarr-python does not
check, for instance, whether a Blosc frame is complete.

zarr-python loads the class in every process that has gzarr installed: the rest of gzarr is imported at the first read
or write.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gzarr.concurrency import Pool
from gzarr.errors import ChunkError, MissingExtraError

try:
    import zarr
    from zarr.core.array import create_codec_pipeline
    from zarr.core.buffer import NDBuffer
    from zarr.core.codec_pipeline import BatchedCodecPipeline
    from zarr.registry import register_pipeline
except ImportError as error:
    raise MissingExtraError("gzarr.interop.zarr needs zarr-python 3.1 or newer: pip install 'gzarr[zarr]'") from error

if TYPE_CHECKING:
    from gzarr.interop.zarr.arrays import BoundArray

__all__ = ["CodecPipeline", "install"]

_logger = logging.getLogger(__name__)
#: Threads that wait for stores: more than an event loop has, whose number follows the machine's cores.
_waiting, _MAX_WAITING = Pool(), 64
#: Settings that choose the memory which arrays are read into.
_BUFFERS = {
    "auto": {},
    "cpu": {"buffer": "zarr.buffer.cpu.Buffer", "ndbuffer": "zarr.buffer.cpu.NDBuffer"},
    "cuda": {"buffer": "zarr.buffer.gpu.Buffer", "ndbuffer": "zarr.buffer.gpu.NDBuffer"},
}


def install(device: str = "auto") -> None:
    """Let zarr-python read and write with gzarr: arrays that are opened from now on, in this process.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}, optional
        "auto" keeps the memory that zarr-python reads into: the GPU's after ``zarr.config.enable_gpu()``, or else the
        host's. "cuda" and "cpu" choose it.

    Raises
    ------
    DeviceError
        If there is no GPU that can be used.
    ValueError
        If the device is another.

    Examples
    --------
    >>> import zarr
    >>> from gzarr.interop.zarr import install
    >>> install()
    >>> z = zarr.create_array({}, shape=(4, 4), chunks=(2, 2), dtype="i4")
    >>> z[:] = 7
    >>> int(z[1:3].sum())
    56
    >>> zarr.config.reset()
    """
    if device not in _BUFFERS:
        raise ValueError(f"device must be one of {', '.join(map(repr, _BUFFERS))}; got {device!r}")
    if device == "cuda":
        from gzarr.devices import backend_for

        backend_for(device)  # says what is missing
    zarr.config.set({"codec_pipeline.path": f"{__name__}.{CodecPipeline.__name__}", **_BUFFERS[device]})


def _is_damage(error: Exception) -> bool:
    """Whether a codec found something wrong: without one, an object was deleted or replaced while it was read."""
    return isinstance(error, ChunkError) and error.codec != ""


@dataclass(frozen=True)
class CodecPipeline(BatchedCodecPipeline):
    """A codec pipeline of zarr-python 3 whose work gzarr does.

    Attributes
    ----------
    source : tuple or None
        Metadata and store of the array; None for the pipeline inside a shard, which is zarr-python's own.
    """

    source: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)
    _bound: "BoundArray | Exception | None" = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> "CodecPipeline":
        """Return the pipeline of an array."""
        made: Any = create_codec_pipeline(array_metadata)
        # Another class if zarr-python's settings have changed, or are others where an array was unpickled.
        pipeline = made if type(made) is cls else cls.from_codecs(list(made))
        object.__setattr__(pipeline, "source", (array_metadata, store))
        return pipeline

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None:
            return CodecPipeline.from_codecs, (tuple(self),)
        return CodecPipeline.from_array_metadata_and_store, self.source

    async def read(self, batch_info: Any, out: NDBuffer, drop_axes: tuple[int, ...] = ()) -> Any:
        """Read chunks into ``out``. Returns: a result for each."""
        batch, is_damaged = list(batch_info), False
        if self.source is not None and batch:
            try:
                await self._read(batch, out, drop_axes)
            except Exception as error:  # noqa: BLE001  # zarr-python does it over, and raises its own errors
                _logger.debug("zarr-python reads %r: %s", batch[0][0], error)
                is_damaged = _is_damage(error)
            else:
                return ({"status": "present"},) * len(batch)
        results = await super().read(batch, out, drop_axes)
        if is_damaged:  # zarr-python made values of it; reading again raises, unless the chunk was replaced meanwhile
            await self._read(batch, out, drop_axes)
        return results

    async def write(self, batch_info: Any, value: NDBuffer, drop_axes: tuple[int, ...] = ()) -> None:
        """Write chunks from ``value``."""
        batch = list(batch_info)
        if self.source is not None and batch:
            try:
                bound = self.bound()  # which writes a small chunk now, if a thread is likely to begin no sooner
                is_quick = len(batch) == 1 and bound.is_quickly_written
                if not (is_quick and bound.write(batch, value, drop_axes, None, only_at_once=True)):
                    await self._in_thread(partial(bound.write, batch, value, drop_axes))
            except Exception as error:  # noqa: BLE001  # as in `read`
                _logger.debug("zarr-python writes %r: %s", batch[0][0], error)
                if _is_damage(error):  # or values that cannot be encoded
                    await self._check_old(batch)
            else:
                return
        await super().write(batch, value, drop_axes)

    async def _check_old(self, batch: list[Any]) -> None:
        """Read the chunks that a batch writes to in part, so that no damaged one is merged. Raises as `read` does."""
        for getter, spec, _, _, is_whole in batch:
            if not is_whole:
                chunk = tuple(slice(0, length) for length in spec.shape)
                old = spec.prototype.nd_buffer.empty(spec.shape, spec.dtype.to_native_dtype(), spec.order)
                await self.read([(getter, spec, chunk, chunk, True)], old)

    async def _read(self, batch: list[Any], out: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        fetched, bound = None, self.bound()
        if bound.is_quick and bound.is_small(batch, out):
            return bound.read(batch, out, drop_axes, None)
        if bound.waits:
            fetched = await bound.fetch(batch)
            if fetched is not None and bound.is_small(batch, out):
                return bound.read(batch, out, drop_axes, asyncio.get_running_loop(), fetched)
        await self._in_thread(partial(bound.read, batch, out, drop_axes, fetched=fetched))
        return None

    @property
    def waits(self) -> bool:
        """Whether gzarr knows the array, and its store answers by coroutines that may wait for a server."""
        return self._bound is not None and self.bound().waits

    async def _in_thread(self, function: Callable[..., object]) -> None:
        """Call a function with the running event loop, in a thread."""
        loop = asyncio.get_running_loop()
        if not self.waits:
            await asyncio.to_thread(function, loop)
            return
        task = partial(copy_context().run, function, loop)
        await asyncio.wrap_future(_waiting.future(task, _MAX_WAITING))

    def bound(self) -> "BoundArray":
        """Return the array as gzarr knows it. Raises: whatever is the reason why gzarr does not know it."""
        if self.source is None:
            raise ValueError("the pipeline inside a shard")
        bound = self._bound
        if bound is None:
            from gzarr.interop.zarr.arrays import bind

            try:
                bound = bind(*self.source)
            except Exception as error:  # noqa: BLE001  # each later read would meet it again
                bound = error
            object.__setattr__(self, "_bound", bound)
        if isinstance(bound, Exception):
            raise bound
        return bound


register_pipeline(CodecPipeline)
