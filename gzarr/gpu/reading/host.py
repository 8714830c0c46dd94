"""The host reader: reads encoded chunks into one staging buffer of pinned memory, which one copy uploads.

The compiled loop reads local files straight into the staging buffer; what the store returns is copied there. A reader
returns `Item`s, which say where in the staging buffer each chunk is. Chunks are placed so that the stream behind an
envelope of a few bytes begins at a multiple of `ALIGNMENT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.spec import CodecSpec
from gzarr.cpu.loading import load_host
from gzarr.cpu.threads import thread_count
from gzarr.gpu.codecs import device_codec
from gzarr.gpu.codecs.batch import BatchContext, Streams
from gzarr.gpu.codecs.entry import DeviceCodec
from gzarr.gpu.codecs.transfers import ALIGNMENT, copy, measure, upload_streams
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.native.fetch import Fetch, Wanted, fetch, longest_uncut
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Request, Store


@dataclass(slots=True, eq=False)
class StagingBuffer:
    """Encoded chunks of a batch in contiguous memory.

    Attributes
    ----------
    device : Device
        Where the chunks are decoded.
    host : NDArray[np.uint8] or None
        uint8, pinned; None if the chunks were read straight to the device.
    on_device : Array or None
        uint8, on the device; None if they are not uploaded yet.
    """

    device: Device
    host: NDArray[np.uint8] | None
    on_device: Array | None = None

    def bytes_on_host(self) -> NDArray[np.uint8]:
        """The staging buffer on the host. If it is only on the device, it is downloaded once."""
        if self.host is None:
            self.host = self.device.download(self.on_device)
        return self.host


class Item(NamedTuple):
    """One encoded chunk in a staging buffer: its position and size."""

    staging_buffer: StagingBuffer
    offset: int
    nbytes: int

    def view(self) -> NDArray[np.uint8]:
        """The chunk's bytes on the host."""
        return self.staging_buffer.bytes_on_host()[self.offset : self.offset + self.nbytes]


class Batch(NamedTuple):
    """Encoded chunks of a table in a staging buffer.

    Attributes
    ----------
    staging_buffer : StagingBuffer
        Where they are.
    offsets, sizes
        As in `gzarr.gpu.native.fetch.Fetched`.
    """

    staging_buffer: StagingBuffer
    offsets: Table
    sizes: Table

    def take(self, rows: Any) -> Batch:
        """Some rows, by a slice or by their numbers."""
        return Batch(self.staging_buffer, self.offsets[rows], self.sizes[rows])


class Reader(Protocol):
    """Brings encoded chunks to where their decoding begins.

    Attributes
    ----------
    name : str
        "host" or "kvikio".
    note : str
        What has turned out while files were read, as a phrase; "" if nothing has.
    """

    name: str

    @property
    def note(self) -> str:
        """See above."""
        ...

    def read(self, pipeline_slot: PipelineSlot, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read located chunks. Returns: an `Item` or host bytes for each; None for a missing chunk.

        The memory is the pipeline slot's, and valid until the pipeline slot is rewound.
        Raises: CodecError with the index of an item that is shorter than its request, StoreError.
        """
        ...

    def fetch(self, pipeline_slot: PipelineSlot, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int) -> Batch:
        """Read chunks from local files into a staging buffer of so many bytes, as many as find room.

        The memory is the pipeline slot's, and valid until the pipeline slot is rewound.
        """
        ...

    def host_round_trip(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first, as a phrase; None if they go straight to the device.

        specs: of the codecs on the device, in encoding order.
        """
        ...


class HostReader:
    """Reads into pinned memory."""

    name = "host"
    note = ""

    def host_round_trip(self, specs: Sequence[CodecSpec]) -> str | None:
        """All chunks take a host round trip."""
        return "files are read on the host"

    def read(self, pipeline_slot: PipelineSlot, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read located chunks into pinned memory. Raises: CodecError(index), StoreError."""
        return _copied(pipeline_slot, load_host(store, wanted), plan.phase)

    def fetch(self, pipeline_slot: PipelineSlot, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int) -> Batch:
        """Read chunks of local files into pinned memory."""
        staging_buffer = StagingBuffer(pipeline_slot.device, pipeline_slot.staging_buffer(nbytes))
        uncut = longest_uncut(plan.chunk.nbytes or 1)
        return Batch(
            staging_buffer, *fetch(source, wanted, staging_buffer.bytes_on_host(), plan.phase, thread_count(), uncut)
        )


def fetch_from_store(pipeline_slot: PipelineSlot, store: Store, keys: Sequence[str], phase: int) -> Batch:
    """Copy chunks, each of which is an object of a store, into pinned memory. Raises: StoreError."""
    return Batch(*_packed(pipeline_slot, store.get_many(list(map(Request, keys))), phase))


def phase_of(specs: Sequence[CodecSpec]) -> int:
    """Where encoded chunks should begin, modulo `ALIGNMENT`. specs: see `Reader.host_round_trip`."""
    outermost = _outermost(specs)
    return 0 if outermost is None else outermost[1].phase


def host_round_trip_of(specs: Sequence[CodecSpec]) -> str | None:
    """Why encoded chunks must pass through host memory to be decoded; None if they need not. specs: see `phase_of`."""
    outermost = _outermost(specs)
    return None if outermost is None else outermost[1].host_round_trip(outermost[0])


def _outermost(specs: Sequence[CodecSpec]) -> tuple[CodecSpec, DeviceCodec] | None:
    """The codec that decodes encoded chunks first, apart from codecs that only append bytes."""
    for spec in reversed(specs):
        codec = device_codec(spec.name)
        if codec is not None and not codec.is_suffix:
            return spec, codec
    return None


def spread_out(sizes: Table, phase: int) -> tuple[Table, int]:
    """Lay out chunks in a staging buffer. Returns: the position of each, and the bytes of the staging buffer.

    Decoders may read a few bytes past the end of a stream, so there are some behind the last one.
    """
    if not sizes.size:
        return np.zeros(0, np.int64), ALIGNMENT
    room = -(-(sizes + phase) // ALIGNMENT) * ALIGNMENT
    ends = np.cumsum(room)
    return ends - room + phase, int(ends[-1]) + ALIGNMENT


def _copied(pipeline_slot: PipelineSlot, buffers: Sequence[Any], phase: int) -> list[Any]:
    """Copy what a store returned into pinned memory."""
    staging_buffer, offsets, sizes = _packed(pipeline_slot, buffers, phase)
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    return [None if size < 0 else Item(staging_buffer, start, size) for start, size in places]


def _packed(pipeline_slot: PipelineSlot, buffers: Sequence[Any], phase: int) -> tuple[StagingBuffer, Table, Table]:
    """Copy buffers into pinned memory. Returns: it, and offsets and sizes, which are negative for None."""
    sizes = measure(buffers)
    offsets = np.full(len(buffers), -1, np.int64)
    here = sizes >= 0
    offsets[here], total = spread_out(sizes[here], phase)
    staging_buffer = StagingBuffer(pipeline_slot.device, pipeline_slot.staging_buffer(total))
    copy(buffers, staging_buffer.bytes_on_host(), offsets)
    return staging_buffer, offsets, sizes


def streams_of(context: BatchContext, items: Sequence[Any]) -> Streams:
    """The chunks of a batch, which are uploaded in one copy if they are not on the device.

    items: `Item`s of one staging buffer, or host bytes.
    """
    if not all(isinstance(item, Item) for item in items):
        return upload_streams(context, [on_host(item) for item in items])
    staging_buffer: StagingBuffer = items[0].staging_buffer
    offsets = np.fromiter((item.offset for item in items), np.int64, len(items))
    sizes = np.fromiter((item.nbytes for item in items), np.int64, len(items))
    if staging_buffer.host is not None and staging_buffer.on_device is None:
        # If a batch has chunks of several shapes, items need not be neighbours: they are then packed.
        low, high = _window(offsets, sizes, staging_buffer.host.size)
        if high - low > 2 * int(sizes.sum()) + 2 * ALIGNMENT * (len(items) + 1):
            return upload_streams(context, [item.view() for item in items])
    return streams_in(context, staging_buffer, offsets, sizes)


def streams_in(context: BatchContext, staging_buffer: StagingBuffer, offsets: Table, sizes: Table) -> Streams:
    """Chunks of a staging buffer on the device, uploaded in one copy of the piece that they are in if necessary."""
    if staging_buffer.on_device is not None:
        context.held.append(staging_buffer.on_device)
        return Streams(staging_buffer.host, staging_buffer.on_device, offsets, sizes, context.device)
    host = staging_buffer.bytes_on_host()
    low, high = _window(offsets, sizes, host.size)
    return Streams(host[low:high], None, offsets - low, sizes, context.device, context=context)


def _window(offsets: Table, sizes: Table, most: int) -> tuple[int, int]:
    """The part of a staging buffer that chunks are in, with the bytes behind them. most: bytes of the buffer."""
    low = int(offsets.min()) // ALIGNMENT * ALIGNMENT
    return low, min((-(-int((offsets + sizes).max()) // ALIGNMENT) + 1) * ALIGNMENT, most)


def on_host(item: Any) -> Any:
    """The bytes of a chunk on the host, wherever it was read to."""
    return item.view() if isinstance(item, Item) else item


def is_on_host(item: Any) -> bool:
    """Whether the bytes of a chunk are on the host, or missing, so that nothing must be downloaded."""
    return not isinstance(item, Item) or item.staging_buffer.host is not None
