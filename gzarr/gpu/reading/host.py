"""The host reader: reads encoded chunks into one staging buffer of pinned memory, which one copy uploads.

Chunks are placed so that the stream behind an envelope of a few bytes begins at a multiple of `ALIGNMENT`.
"""

from collections.abc import Sequence

import numpy as np

from gzarr.codecs.spec import CodecSpec
from gzarr.cpu.threads import thread_count
from gzarr.gpu.codecs import device_codec
from gzarr.gpu.codecs.batch import DeviceCodec, Streams, copy, measure, spread_out
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.native.fetch import Fetch, Wanted, fetch
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.storage.base import Request, Store

#: Decoded bytes of a shard that one thread reads: it copies as much in some milliseconds.
_UNCUT_NBYTES = 1 << 24


class HostReader:
    """Brings encoded chunks to where their decoding begins: into pinned memory.

    Attributes
    ----------
    name : str
        "host" or "kvikio".
    """

    name = "host"

    @property
    def note(self) -> str:
        """What has turned out while files were read, as a phrase; "" if nothing has."""
        return ""

    def host_round_trip(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first, as a phrase; None if they go straight to the device.

        specs: of the codecs on the device, in encoding order.
        """
        return "files are read on the host"

    def fetch(
        self, pipeline_slot: PipelineSlot, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int
    ) -> Streams:
        """Read chunks from local files into a staging buffer of so many bytes, as many as find room.

        The memory is the pipeline slot's, and valid until the pipeline slot is rewound.
        """
        buffer = pipeline_slot.staging.take(nbytes)
        uncut = max(_UNCUT_NBYTES // (plan.chunk.nbytes or 1), 1)
        return Streams(buffer, None, *fetch(source, wanted, buffer, plan.phase, thread_count(), uncut))


def fetch_from_store(pipeline_slot: PipelineSlot, store: Store, keys: Sequence[str], phase: int) -> Streams:
    """Copy chunks, each of which is an object of a store, into pinned memory. Raises: StoreError."""
    buffers = store.get_many(list(map(Request, keys)))
    sizes = measure(buffers)
    offsets = np.full(len(buffers), -1, np.int64)
    here = sizes >= 0
    offsets[here], total = spread_out(sizes[here], phase)
    buffer = pipeline_slot.staging.take(total)
    copy(buffers, buffer, offsets)
    return Streams(buffer, None, offsets, sizes)


def phase_of(specs: Sequence[CodecSpec]) -> int:
    """Where encoded chunks should begin, modulo `ALIGNMENT`. specs: see `HostReader.host_round_trip`."""
    outermost = _outermost(specs)
    return 0 if outermost is None else outermost[1].phase


def host_round_trip_of(specs: Sequence[CodecSpec]) -> str | None:
    """Why encoded chunks must pass through host memory to be decoded; None if they need not. specs: see `phase_of`."""
    outermost = _outermost(specs)
    round_trip = None if outermost is None else outermost[1].host_round_trip
    return None if outermost is None or round_trip is None else round_trip(outermost[0])


def _outermost(specs: Sequence[CodecSpec]) -> tuple[CodecSpec, DeviceCodec] | None:
    """The codec that decodes encoded chunks first, apart from codecs that only append bytes."""
    for spec in reversed(specs):
        codec = device_codec(spec.name)
        if codec is not None and not codec.is_suffix:
            return spec, codec
    return None
