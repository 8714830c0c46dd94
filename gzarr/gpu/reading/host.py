"""The host reader: reads the encoded chunks of a wave into one slab of pinned memory, which one copy uploads.

The compiled loop reads local files straight into the slab; what the store returns is copied there. A reader returns
`Item`s, which say where in the slab each chunk is. Chunks are placed so that the stream behind an envelope of a few
bytes begins at a multiple of `ALIGNMENT`.
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
from gzarr.gpu.codecs.batch import Streams, Wave
from gzarr.gpu.codecs.entry import DeviceCodec
from gzarr.gpu.codecs.transfers import ALIGNMENT, copy, measure, upload_streams
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.native.fetch import Fetch, Wanted, fetch, longest_uncut
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Request, Store


@dataclass(slots=True, eq=False)
class Slab:
    """Encoded chunks of a wave in contiguous memory.

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
        """The slab on the host. If it is only on the device, it is downloaded once."""
        if self.host is None:
            self.host = self.device.download(self.on_device)
        return self.host


class Item(NamedTuple):
    """One encoded chunk in a slab: its position and size."""

    slab: Slab
    offset: int
    nbytes: int

    def view(self) -> NDArray[np.uint8]:
        """The chunk's bytes on the host."""
        return self.slab.bytes_on_host()[self.offset : self.offset + self.nbytes]


class Batch(NamedTuple):
    """Encoded chunks of a table in a slab.

    Attributes
    ----------
    slab : Slab
        Where they are.
    offsets, sizes
        As in `gzarr.gpu.native.fetch.Fetched`.
    """

    slab: Slab
    offsets: Table
    sizes: Table

    def take(self, rows: Any) -> Batch:
        """Some rows, by a slice or by their numbers."""
        return Batch(self.slab, self.offsets[rows], self.sizes[rows])


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

    def read(self, lane: Lane, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read located chunks. Returns: an `Item` or host bytes for each; None for a missing chunk.

        The memory is the lane's, and valid until the lane is rewound.
        Raises: CodecError with the index of an item that is shorter than its request, StoreError.
        """
        ...

    def fetch(self, lane: Lane, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int) -> Batch:
        """Read chunks from local files into a slab of so many bytes, as many as find room.

        The memory is the lane's, and valid until the lane is rewound.
        """
        ...

    def detour(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first, as a phrase; None if they go straight to the device.

        specs: of the codecs on the device, in encoding order.
        """
        ...


class HostReader:
    """Reads into pinned memory."""

    name = "host"
    note = ""

    def detour(self, specs: Sequence[CodecSpec]) -> str | None:
        """All chunks take a detour."""
        return "files are read on the host"

    def read(self, lane: Lane, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read located chunks into pinned memory. Raises: CodecError(index), StoreError."""
        return _copied(lane, load_host(store, wanted), plan.phase)

    def fetch(self, lane: Lane, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int) -> Batch:
        """Read chunks of local files into pinned memory."""
        slab = Slab(lane.device, lane.slab(nbytes))
        uncut = longest_uncut(plan.chunk.nbytes or 1)
        return Batch(slab, *fetch(source, wanted, slab.bytes_on_host(), plan.phase, thread_count(), uncut))


def fetch_from_store(lane: Lane, store: Store, keys: Sequence[str], phase: int) -> Batch:
    """Copy chunks, each of which is an object of a store, into pinned memory. Raises: StoreError."""
    return Batch(*_packed(lane, store.get_many(list(map(Request, keys))), phase))


def phase_of(specs: Sequence[CodecSpec]) -> int:
    """Where encoded chunks should begin, modulo `ALIGNMENT`. specs: see `Reader.detour`."""
    outermost = _outermost(specs)
    return 0 if outermost is None else outermost[1].phase


def detour_of(specs: Sequence[CodecSpec]) -> str | None:
    """Why encoded chunks must pass through host memory to be decoded; None if they need not. specs: see `phase_of`."""
    outermost = _outermost(specs)
    return None if outermost is None else outermost[1].detour(outermost[0])


def _outermost(specs: Sequence[CodecSpec]) -> tuple[CodecSpec, DeviceCodec] | None:
    """The codec that decodes encoded chunks first, apart from codecs that only append bytes."""
    for spec in reversed(specs):
        codec = device_codec(spec.name)
        if codec is not None and not codec.is_suffix:
            return spec, codec
    return None


def spread_out(sizes: Table, phase: int) -> tuple[Table, int]:
    """Lay out chunks in a slab. Returns: the position of each, and the bytes of the slab.

    Decoders may read a few bytes past the end of a stream, so there are some behind the last one.
    """
    if not sizes.size:
        return np.zeros(0, np.int64), ALIGNMENT
    room = -(-(sizes + phase) // ALIGNMENT) * ALIGNMENT
    ends = np.cumsum(room)
    return ends - room + phase, int(ends[-1]) + ALIGNMENT


def _copied(lane: Lane, buffers: Sequence[Any], phase: int) -> list[Any]:
    """Copy what a store returned into pinned memory."""
    slab, offsets, sizes = _packed(lane, buffers, phase)
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    return [None if size < 0 else Item(slab, start, size) for start, size in places]


def _packed(lane: Lane, buffers: Sequence[Any], phase: int) -> tuple[Slab, Table, Table]:
    """Copy buffers into pinned memory. Returns: it, and offsets and sizes, which are negative for None."""
    sizes = measure(buffers)
    offsets = np.full(len(buffers), -1, np.int64)
    here = sizes >= 0
    offsets[here], total = spread_out(sizes[here], phase)
    slab = Slab(lane.device, lane.slab(total))
    copy(buffers, slab.bytes_on_host(), offsets)
    return slab, offsets, sizes


def streams_of(wave: Wave, items: Sequence[Any]) -> Streams:
    """The chunks of a wave, which are uploaded in one copy if they are not on the device.

    items: `Item`s of one slab, or host bytes.
    """
    if not all(isinstance(item, Item) for item in items):
        return upload_streams(wave, [on_host(item) for item in items])
    slab: Slab = items[0].slab
    offsets = np.fromiter((item.offset for item in items), np.int64, len(items))
    sizes = np.fromiter((item.nbytes for item in items), np.int64, len(items))
    if slab.host is not None and slab.on_device is None:
        # If a wave has chunks of several shapes, items need not be neighbours: they are then packed.
        low, high = _window(offsets, sizes, slab.host.size)
        if high - low > 2 * int(sizes.sum()) + 2 * ALIGNMENT * (len(items) + 1):
            return upload_streams(wave, [item.view() for item in items])
    return streams_in(wave, slab, offsets, sizes)


def streams_in(wave: Wave, slab: Slab, offsets: Table, sizes: Table) -> Streams:
    """Chunks of a slab on the device, uploaded in one copy of the piece that they are in if necessary."""
    if slab.on_device is not None:
        wave.held.append(slab.on_device)
        return Streams(slab.host, slab.on_device, offsets, sizes, wave.device)
    host = slab.bytes_on_host()
    low, high = _window(offsets, sizes, host.size)
    return Streams(host[low:high], None, offsets - low, sizes, wave.device, wave=wave)


def _window(offsets: Table, sizes: Table, most: int) -> tuple[int, int]:
    """The piece of a slab that chunks are in, with the bytes behind them. most: bytes of the slab."""
    low = int(offsets.min()) // ALIGNMENT * ALIGNMENT
    return low, min((-(-int((offsets + sizes).max()) // ALIGNMENT) + 1) * ALIGNMENT, most)


def on_host(item: Any) -> Any:
    """The bytes of a chunk on the host, wherever it was read to."""
    return item.view() if isinstance(item, Item) else item


def is_on_host(item: Any) -> bool:
    """Whether the bytes of a chunk are on the host, or missing, so that nothing must be downloaded."""
    return not isinstance(item, Item) or item.slab.host is not None
