"""Reads the encoded chunks of a wave into one slab of pinned memory, from which one copy brings them to the device.

Files are read straight into their places, on a few threads; what other stores give is copied there. A reader leaves
`Item`s behind, which say where in the slab each chunk lies. Where that is, the codecs want: behind an envelope of a few
bytes its stream begins at a multiple of `ALIGNMENT`.
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
from gzarr.gpu.codecs import device_codec
from gzarr.gpu.codecs.batch import Streams, Wave
from gzarr.gpu.codecs.entry import DeviceCodec
from gzarr.gpu.codecs.transfers import ALIGNMENT, upload_streams
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.reading.files import Span, locate_spans, read_spans
from gzarr.layout.chunk_layout import Located
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Store, host_view


@dataclass(slots=True, eq=False)
class Slab:
    """Encoded chunks of a wave, one behind the other.

    Attributes:
        device: where they go.
        host: uint8, pinned; None if they were read straight to the device.
        on_device: uint8, there; None if they are still to be uploaded.
    """

    device: Device
    host: NDArray[np.uint8] | None
    on_device: Array | None = None

    def bytes_on_host(self) -> NDArray[np.uint8]:
        """The slab on the host; downloads it, once, if it is only on the device."""
        if self.host is None:
            self.host = self.device.download(self.on_device)
        return self.host


class Item(NamedTuple):
    """One encoded chunk in a slab, by its first byte and its size."""

    slab: Slab
    offset: int
    nbytes: int

    def view(self) -> NDArray[np.uint8]:
        """The chunk's bytes on the host."""
        return self.slab.bytes_on_host()[self.offset : self.offset + self.nbytes]


class Reader(Protocol):
    """Brings encoded chunks where their decoding begins.

    Attributes:
        name: "host" or "kvikio".
    """

    name: str

    def read(self, lane: Lane, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read what was located. Returns: an `Item` or host bytes for each; None where there is nothing.

        The memory is the lane's, and valid until that is rewound.
        Raises: CodecError with the index of an item that is shorter than its request, StoreError.
        """
        ...

    def detour(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first, in a phrase; None if they go straight to the device.

        specs: of the codecs on the device, in encoding order.
        """
        ...


class HostReader:
    """Reads into pinned memory."""

    name = "host"

    def detour(self, specs: Sequence[CodecSpec]) -> str | None:
        """They all do."""
        return "files are read on the host"

    def read(self, lane: Lane, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read what was located into pinned memory. Raises: CodecError(index), StoreError."""
        spans = locate_spans(store, wanted)
        if spans is not None:
            found = _read_files(lane, spans, plan.phase)
            if found is not None:
                return found
        return _copied(lane, load_host(store, wanted), plan.phase)


def phase_of(specs: Sequence[CodecSpec]) -> int:
    """Where in a multiple of `ALIGNMENT` encoded chunks should begin. specs: see `Reader.detour`."""
    outermost = _outermost(specs)
    return 0 if outermost is None else outermost[1].phase


def detour_of(specs: Sequence[CodecSpec]) -> str | None:
    """Why encoded chunks pass through host memory to be decoded; None if they need not. specs: as in `phase_of`."""
    outermost = _outermost(specs)
    return None if outermost is None else outermost[1].detour(outermost[0])


def _outermost(specs: Sequence[CodecSpec]) -> tuple[CodecSpec, DeviceCodec] | None:
    """The codec that encoded chunks are decoded by first, those that only put bytes behind them aside."""
    for spec in reversed(specs):
        codec = device_codec(spec.name)
        if codec is not None and not codec.is_suffix:
            return spec, codec
    return None


def spread_out(sizes: Table, phase: int) -> tuple[Table, int]:
    """Places for chunks of some sizes. Returns: (where each begins, bytes in all).

    Decoders may read a few bytes past the end of a stream: those exist.
    """
    if not sizes.size:
        return np.zeros(0, np.int64), ALIGNMENT
    room = -(-(sizes + phase) // ALIGNMENT) * ALIGNMENT
    ends = np.cumsum(room)
    return ends - room + phase, int(ends[-1]) + ALIGNMENT


def _copied(lane: Lane, buffers: Sequence[Any], phase: int) -> list[Any]:
    """Lay what a store gave into pinned memory."""
    views = [None if buffer is None else host_view(buffer) for buffer in buffers]
    here = [view for view in views if view is not None]
    offsets, total = spread_out(np.array([view.nbytes for view in here], np.int64), phase)
    slab = Slab(lane.device, lane.staging.take(total))
    target = host_view(slab.bytes_on_host())
    places = iter(offsets.tolist())
    found: list[Any] = []
    for view in views:
        if view is None:
            found.append(None)
            continue
        start = next(places)
        target[start : start + view.nbytes] = view
        found.append(Item(slab, start, view.nbytes))
    return found


def _read_files(lane: Lane, spans: Sequence[Span | None], phase: int) -> list[Any] | None:
    """Read chunks of files into pinned memory; None if a file has changed since it was looked at."""
    here = [span for span in spans if span is not None]
    offsets, total = spread_out(np.array([span.nbytes for span in here], np.int64), phase)
    slab = Slab(lane.device, lane.staging.take(total))
    target = host_view(slab.bytes_on_host())
    if not read_spans(target, here, offsets.tolist()):
        return None
    places = iter(offsets.tolist())
    return [None if span is None else Item(slab, next(places), span.nbytes) for span in spans]


def streams_of(wave: Wave, items: Sequence[Any]) -> Streams:
    """The chunks of a wave on the device: uploaded in one copy unless they are there.

    items: `Item`s of one slab, or host bytes.
    """
    if not all(isinstance(item, Item) for item in items):
        return upload_streams(wave, [on_host(item) for item in items])
    slab: Slab = items[0].slab
    offsets = np.fromiter((item.offset for item in items), np.int64, len(items))
    sizes = np.fromiter((item.nbytes for item in items), np.int64, len(items))
    if slab.on_device is not None:
        return Streams(slab.host, slab.on_device, offsets, sizes, wave.device)
    host = slab.bytes_on_host()
    low = int(offsets.min()) // ALIGNMENT * ALIGNMENT
    high = min((-(-int((offsets + sizes).max()) // ALIGNMENT) + 1) * ALIGNMENT, host.size)
    # Items that are not neighbours, where a wave has chunks of several shapes, are gathered.
    if high - low > 2 * int(sizes.sum()) + 2 * ALIGNMENT * (len(items) + 1):
        return upload_streams(wave, [item.view() for item in items])
    window = host[low:high]
    with stage("upload", timed=True) as noted:
        slab_there = wave.device.upload(window)
        noted.count(len(items), window.nbytes, window.nbytes)
    return Streams(window, slab_there, offsets - low, sizes, wave.device)


def on_host(item: Any) -> Any:
    """The bytes of a chunk on the host, wherever it was read to."""
    return item.view() if isinstance(item, Item) else item


def is_on_host(item: Any) -> bool:
    """Whether the bytes of a chunk are on the host, or missing, so that nothing need be downloaded."""
    return not isinstance(item, Item) or item.slab.host is not None
