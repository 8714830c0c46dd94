"""Codecs on the device: entries of their table, and the batches that they pass on.

A batch is encoded streams, decoded chunks of one size, or encoded chunks. A *decoder* takes a batch (`Streams` or
`Chunks`) and returns the next one; an *encoder* takes `Chunks` or `Encoded`. Filters return chunks, compressors and
checksums return encoded chunks. Both work on a whole batch at once. Compression levels have no effect on the device:
nvCOMP's encoders have none, or others. The decoded data is the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.spec import CodecSpec, Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs.refusing import refuse
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Device, Outcome, Table
from gzarr.gpu.kernels.parts import Shuffles
from gzarr.profiling.recorder import staged
from gzarr.storage.base import host_view

#: Tables and streams begin at multiples of this many bytes, which suits every kernel and decoder.
ALIGNMENT = 16


@dataclass(slots=True, eq=False)
class Streams:
    """Encoded chunks in one staging buffer, which is uploaded when it is needed on the device: headers are read before.

    Attributes
    ----------
    copy : NDArray[np.uint8] or None
        uint8, a copy of the staging buffer on the host; None if the chunks were read straight to the device.
    there : Array or None
        uint8, the staging buffer on the device; None if it is not uploaded yet.
    offsets : Table
        int64, where each chunk begins.
    sizes : Table
        int64, bytes of each chunk.
    context : BatchContext
        What uploads the staging buffer; None before `within`.
    """

    copy: NDArray[np.uint8] | None
    there: Array | None
    offsets: Table
    sizes: Table
    context: Any = None

    def __len__(self) -> int:
        return self.offsets.size

    def take(self, rows: Any) -> "Streams":
        """Some of the chunks, by a slice or by their numbers."""
        return replace(self, offsets=self.offsets[rows], sizes=self.sizes[rows])

    def within(self, context: "BatchContext") -> "Streams":
        """The same in a batch, which uploads the piece of the buffer that they are in, if need be, in one copy."""
        if self.copy is None:
            context.held.append(self.there)
            return replace(self, context=context)
        low = int(self.offsets.min()) // ALIGNMENT * ALIGNMENT
        high = (-(-int((self.offsets + self.sizes).max()) // ALIGNMENT) + 1) * ALIGNMENT  # with the bytes behind them
        return Streams(self.copy[low:high], None, self.offsets - low, self.sizes, context)

    @property
    def staging_buffer(self) -> Array:
        """The staging buffer on the device. Raises: OverLimitError if there is no room for it."""
        if self.there is None:
            if self.copy is None:
                raise TypeError("streams that are not on the device need a copy on the host")
            self.there = self.context.upload_chunks(self.copy, len(self))
        return self.there

    @property
    def host(self) -> NDArray[np.uint8]:
        """The whole staging buffer on the host. If it is only on the device, it is downloaded once, which waits."""
        if self.copy is None:
            self.copy = self.context.device.download(self.staging_buffer)
        return self.copy

    def window(self, starts: Table, nbytes: int) -> NDArray[np.uint8]:
        """A few bytes from the start positions, on the host: uint8 (n, nbytes). They must be in the staging buffer.

        If the staging buffer is only on the device, they are downloaded, which waits.
        """
        positions = starts[:, None] + np.arange(nbytes)
        if self.copy is not None:
            window: NDArray[np.uint8] = self.copy[positions]
            return window
        device: Device = self.context.device
        return device.download(self.staging_buffer[device.upload(positions)])


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Decoded chunks of one size.

    Attributes
    ----------
    owner : Array or None
        The device array that holds them; None if something else does.
    addresses : Table
        int64, address of each chunk.
    nbytes : int
        Bytes of each chunk.
    rows : Array or None
        The chunks as a uint8 device array (n, nbytes) if they are contiguous, else None.
    shuffle : Shuffles or None
        How they are still shuffled; None if they are plain.
    """

    owner: Array | None
    addresses: Table
    nbytes: int
    rows: Array | None = None
    shuffle: Shuffles | None = None

    def __len__(self) -> int:
        return self.addresses.size


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Encoded chunks on the device.

    Attributes
    ----------
    owner : Array
        The device array that holds them.
    addresses : Table
        int64, on the host: address of each.
    sizes : Table
        int64, on the host: bytes of each.
    room : int
        Free bytes behind every chunk, for checksums to come.
    """

    owner: Array
    addresses: Table
    sizes: Table
    room: int = 0

    def __len__(self) -> int:
        return self.addresses.size


@dataclass(slots=True)
class BatchContext:
    """One batch under way.

    Attributes
    ----------
    device : Device
        Where it runs.
    checks : list[tuple[Array, Callable[[NDArray[Any]], None]]]
        Results of decoders to be checked when the batch is done, each with the function that checks it.
    held : list of Any
        Device and staging memory that must live until the batch is done.
    pipeline_slot : PipelineSlot or None
        Where its memory comes from; None for memory of its own.
    """

    device: Device
    checks: list[tuple[Array, Callable[[NDArray[Any]], None]]] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    pipeline_slot: PipelineSlot | None = None

    def result(self, nbytes: int) -> NDArray[np.uint8]:
        """Pinned memory to download to, which outlives the batch."""
        return (
            self.device.allocate_pinned(nbytes)
            if self.pipeline_slot is None
            else self.pipeline_slot.results.take(nbytes)
        )

    def empty(self, nbytes: int) -> Array:
        """Allocate device memory that lives until the batch is done: uint8, not initialized."""
        array = self.device.empty(nbytes)
        self.held.append(array)
        return array

    def upload(self, staging: NDArray[np.uint8]) -> Array:
        """Upload staging memory. It and its copy live until the batch is done."""
        array = self.device.upload(staging)
        self.held += [staging, array]
        return array

    def upload_chunks(self, staging: NDArray[np.uint8], n: int) -> Array:
        """The same with n chunks, as a stage of a profile."""
        return staged("upload", self.upload, staging, count=lambda _: (n, staging.nbytes, staging.nbytes), timed=True)

    def expect(self, codec: str, outcome: Outcome, items: Table, sizes: Table) -> None:
        """Check, when the batch is done, that a batched decoder succeeded and wrote the right number of bytes.

        items: the chunk of the batch that each stream belongs to. sizes: decoded bytes of each stream.
        """

        def check_statuses(statuses: NDArray[Any]) -> None:
            refuse(codec, statuses != 0, lambda i: f"the stream is damaged (decoder status {statuses[i]})", items)

        def check_sizes(written: NDArray[Any]) -> None:
            bad = written.astype(np.int64) != sizes
            refuse(codec, bad, lambda i: f"expected {sizes[i]} decoded bytes, got {written[i]}", items)

        self.checks += [(outcome.statuses, check_statuses), (outcome.sizes, check_sizes)]

    def finish(self) -> None:
        """Wait for the batch and check all results. Raises: CodecError for the first chunk that failed."""
        errors: list[CodecError] = []
        if not self.checks:
            self.drop()
            return
        # This waits for all submitted work, so nothing uses the memory any more.
        results = self.device.download_all([array for array, _ in self.checks])
        for data, (_, check) in zip(results, self.checks, strict=True):
            try:
                check(data)
            except CodecError as error:
                errors.append(error)
        self.checks.clear()
        self.held.clear()
        if errors:
            raise min(errors, key=lambda error: error.index)

    def drop(self) -> None:
        """Wait for the device and release all memory, also of a batch that failed half-way."""
        if self.checks or self.held:
            self.device.synchronize()
        self.checks.clear()
        self.held.clear()


Decoder: TypeAlias = Callable[[BatchContext, Any], Streams | Chunks]
Encoder: TypeAlias = Callable[[BatchContext, Any], Chunks | Encoded]
#: Makes the function of a step when an array is opened, or returns a phrase that says why the host runs the step.
DecoderFactory: TypeAlias = Callable[[Step, Device], Decoder | str]
EncoderFactory: TypeAlias = Callable[[Step, Device], Encoder | str]


@dataclass(frozen=True, slots=True)
class DeviceCodec:
    """A codec on the device.

    Attributes
    ----------
    decoder : DecoderFactory
        Makes the decoder of a step.
    encoder : EncoderFactory
        Makes the encoder of a step.
    takes_streams : bool
        Whether the decoder takes encoded streams only, which come from a store or from the host. If a chain has two
        such codecs, the host runs the outer one.
    scratch : int
        Bytes of temporary device memory for each decoded byte.
    phase : int
        Where encoded chunks should begin, modulo `gzarr.gpu.codecs.batch.ALIGNMENT`, so that the stream behind
        their header is aligned.
    host_round_trip : callable or None
        Why encoded chunks must pass through host memory to be decoded, as a phrase; None if at most a few bytes of
        each need to. A decoder that uses `Streams.host` has `headers_on_host`: a staging buffer that is only on the
        device would be downloaded.
    is_suffix : bool
        Whether the codec only appends bytes to a chunk, so that the codec before it decides `phase` and
        `host_round_trip`.
    host_may_lack : bool
        Whether the host may lack the library for this codec.
    """

    decoder: DecoderFactory
    encoder: EncoderFactory
    takes_streams: bool = False
    scratch: int = 1
    phase: int = 0
    host_round_trip: Callable[[CodecSpec], str | None] | None = None
    is_suffix: bool = False
    host_may_lack: bool = False


def measure(buffers: Sequence[Any]) -> Table:
    """The sizes of what a store returned, in bytes, -1 for None: int64 (n,)."""
    return np.array([-1 if buffer is None else host_view(buffer).nbytes for buffer in buffers], np.int64)


def copy(buffers: Sequence[Any], staging_buffer: NDArray[np.uint8], offsets: Table) -> None:
    """Copy what a store returned into a staging buffer. Negative offsets and None are left out."""
    for buffer, start in zip(buffers, offsets.tolist(), strict=True):
        if buffer is not None and start >= 0:
            view = np.frombuffer(host_view(buffer), np.uint8)
            staging_buffer[start : start + view.size] = view  # without the interpreter's lock


def spread_out(sizes: Table, phase: int) -> tuple[Table, int]:
    """Lay out chunks in a staging buffer. Returns: the position of each, and the bytes of the staging buffer.

    phase: where chunks begin, modulo `ALIGNMENT`. Decoders may read a few bytes past the end of a stream, so there are
    some behind the last one.
    """
    if not sizes.size:
        return np.zeros(0, np.int64), ALIGNMENT
    room = -(-(sizes + phase) // ALIGNMENT) * ALIGNMENT
    ends = np.cumsum(room)
    return ends - room + phase, int(ends[-1]) + ALIGNMENT


def upload_streams(context: BatchContext, buffers: Sequence[Any], phase: int = 0) -> Streams:
    """Encoded chunks, to be uploaded in one transfer. phase: as of `spread_out`."""
    sizes = measure(buffers)
    offsets, total = spread_out(sizes, phase)
    staging = context.device.staging(total)
    copy(buffers, staging, offsets)
    return Streams(staging, None, offsets, sizes, context)


#: Kinds and sizes of CuPy's dtypes: bool, integers, floats of 2, 4 and 8 bytes, complex numbers of 8 and 16.
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}


def has_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether CuPy has a dtype, in either byte order."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ()) and dtype.names is None and dtype.subdtype is None


def swap_unit(dtype: np.dtype[Any]) -> int:
    """Bytes that must be reversed together to make a dtype native; 0 if it is native."""
    if dtype.isnative or dtype.itemsize == 1:
        return 0
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
