"""The GPU backend: whole waves of chunks are decoded on the device and placed in the caller's array by one kernel.

Theory of operation. A reader brings the encoded chunks of a wave into one slab, in pinned memory from which they are
uploaded in one copy, or straight on the device; every codec step is one call for all of them; one kernel then copies
the wanted elements, unshuffling, reversing bytes and transposing on the way, and fills what is missing. Two waves are
under way at once, in lanes of their own. Steps that the device lacks run on the host before the upload. What CuPy has
no dtype for (objects, strings, structures, times) is read by the CPU backend and comes back as NumPy arrays. Writing
takes arrays of either kind and encodes on the host.

Rules: the device memory of all waves stays under the cap, and waves that turn out not to fit are cut; results of
decoders are looked at once, when the wave is done, and a failure names its chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.backend import Array, Chain, Fields, Placement, T, Work
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.batch import Chunks, Wave
from gzarr.gpu.choice import choose_reader
from gzarr.gpu.codecs import TABLE
from gzarr.gpu.crossover import NEVER, Crossover, crossover_for
from gzarr.gpu.device import Device
from gzarr.gpu.dtypes import has_dtype
from gzarr.gpu.lanes import Lane, Lanes
from gzarr.gpu.launching import is_placeable, launch_placement
from gzarr.gpu.memory import OverLimitError
from gzarr.gpu.plan import DevicePlan, make_device_plan
from gzarr.gpu.reader import Reader, is_on_host, on_host, phase_of, streams_of
from gzarr.gpu.streams import upload_rows, upload_streams
from gzarr.layout import Layout, Located
from gzarr.plan import Part, Plan
from gzarr.storage.base import Buffer, Store

#: Share of the free device memory that waves may use if the caller does not say: the rest is the caller's.
DEFAULT_MEMORY_SHARE = 0.125
#: Waves larger than this gain nothing: every batched decoder is saturated (nvCOMP's guide: some thousand streams).
MAX_WAVE_NBYTES = 1 << 30
#: Chunks beyond this in one wave gain nothing either, and their tables grow.
MAX_WAVE_NCHUNKS = 1 << 16


class GpuBackend:
    """Decodes on a device into arrays in its memory.

    Attributes:
        device: name of the device.
        wave_nbytes: decoded bytes of one wave: what its slabs, tables and scratch leave of a lane's share of the cap.
        wave_nchunks: chunks of one wave.
        reads_files: yes: chunks of shards go straight to where they are decoded or uploaded from.
        strict: whether a codec that the device lacks is an error, instead of running on the host.
        options: what `gzarr.devices.backend_for` needs to make the same backend again, in another process too.
        reader: which reader brings the chunks of files ("host" or "kvikio"), and why.

    Args:
        device: where to decode.
        max_device_nbytes: the cap on device memory, beyond the results; None for a share of what is free now.
        strict: see above.
        reader: "host", "kvikio", "auto" (KvikIO where GPUDirect Storage is active), or a reader.
        stream: the stream of the caller that results are ready on: a CuPy stream, an object of CUDA's stream
            protocol, or the address of a stream; None for the one that is current when a read begins.
        small_reads: which reads the host decodes; None for what suits the device.
    """

    reads_files = True

    def __init__(
        self,
        device: Device,
        *,
        max_device_nbytes: int | None = None,
        strict: bool = False,
        reader: str | Reader = "auto",
        stream: Any = None,
        small_reads: Crossover | None = None,
    ) -> None:
        self.device = device.name
        self.strict = strict
        self.options = {"max_device_nbytes": max_device_nbytes, "strict": strict, "reader": reader}
        self._small_reads = NEVER if strict else small_reads or crossover_for(device)
        self._device = device
        self._host = CpuBackend()
        self._cap = int(max_device_nbytes or device.free_nbytes() * DEFAULT_MEMORY_SHARE)
        self._lanes = Lanes(device, self._cap, None if stream is None else device.as_stream(stream))
        self._reader, self.reader = choose_reader(reader)
        # Encoded bytes, decoded bytes, and up to four bytes of scratch and copies for each decoded byte.
        self.wave_nbytes = max(min(self._lanes.limit // 6, MAX_WAVE_NBYTES), 1)
        self.wave_nchunks = MAX_WAVE_NCHUNKS

    def release(self) -> None:
        """Give back the memory that is kept for the next reads."""
        self._lanes.release()

    def supports(self, name: str) -> bool:
        """Whether the device itself runs the codec with a name."""
        return name in TABLE or name == "transpose"

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises: UnknownCodecError, MissingExtraError, DeviceError in strict mode."""
        host = self._host.prepare(steps, chunk)
        if chunk.nbytes is None:
            why = "Python objects live on the host"
            return host._replace(placement=tuple(Placement(step.spec.name, "host", why) for step in steps))
        plan, placement = make_device_plan(steps, chunk, host.codecs, self._device, strict=self.strict)
        if not has_dtype(chunk.dtype):
            why = f"arrays on {self.device} cannot have dtype {chunk.dtype}"
            if chunk.dtype.names is not None:
                why = f"records are put together on the host; reads of one field of numbers run on {self.device}"
            placement = tuple(Placement(step.spec.name, "host", why) for step in steps)
            return host._replace(placement=placement, device_plan=plan)
        specs = [step.spec for step in steps[: len(steps) - len(plan.host)]]
        detour = self._reader.detour(specs)
        plan = replace(plan, phase=phase_of(specs), direct=detour is None)
        if detour is not None and self.reader.name == "kvikio":
            placement = _noted(placement, len(specs) - 1, detour)
        if plan.host_decodes and self._small_reads.nchunks:
            placement = _noted(placement, len(placement) - 1, str(self._small_reads))
        return host._replace(placement=placement, device_plan=plan)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialized array on the device, in native byte order; on the host if the device lacks the dtype."""
        if has_dtype(dtype):
            return self._device.result(shape, dtype.newbyteorder("="), self._lanes.stream)
        return self._host.empty(shape, dtype)

    def asarray(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """A value to be written, as a NumPy array: what lies on the device, in arrays of any library, is downloaded."""
        adopted = self._device.adopt(value)
        return self._host.asarray(value, dtype) if adopted is None else self._device.download(adopted)

    def adopt_out(self, out: Any) -> Array:
        """An array to read into: of the device in any library, or of NumPy, into which the host then decodes.

        Raises: ValueError for one on another device, DeviceError for one of NumPy in strict mode.
        """
        if self._device.owns(out):
            return out
        adopted = self._device.adopt(out)
        if adopted is not None:
            if not self._device.owns(adopted):
                raise ValueError(f"out does not lie on {self.device}, where the array is read: copy it there")
            return adopted
        out = self._host.adopt_out(out)
        if self.strict and has_dtype(out.dtype):
            raise DeviceError(
                f"out lies on the host, so the host would decode (strict=True); give one on {self.device}"
            )
        return out

    def load(
        self, store: Store, wanted: Sequence[Located], chain: Chain | None = None, parts: Sequence[Part] = ()
    ) -> list[Any]:
        """Fetch what was located to where its decoding begins. Raises: CodecError(index) for a short item."""
        plan: DevicePlan | None = None if chain is None else chain.device_plan
        if plan is None or plan.host or not self._lanes.under_way:
            return self._host.load(store, wanted)
        with self._lanes.borrow() as lane:
            lane.rewind()
            return self._reader.read(lane, store, wanted, plan)

    def place(self, chain: Chain, buffers: Sequence[Any], parts: Sequence[Part], out: Array, fields: Fields) -> None:
        """Decode chunks on the device and copy their parts into ``out``. Raises: CodecError(index), DeviceError."""
        plan: DevicePlan | None = chain.device_plan
        if plan is None or not self._device.owns(out):
            self._host.place(chain, [on_host(buffer) for buffer in buffers], parts, out, fields)
            return
        places = is_placeable(plan, out, fields)
        if self.strict and not places:
            raise DeviceError(
                f"{plan.chunk.dtype} become {out.dtype} on the host only (strict=True): read them as they are, then "
                "convert the result"
            )
        with self._lanes.borrow() as lane:
            if not places or self._is_small(plan, buffers, out):
                self._place_from_host(lane, chain, buffers, parts, out, fields)
                return
            size = min(self._fitting(plan), len(parts))
            start = 0
            while start < len(parts):
                piece = slice(start, start + size)
                try:
                    fits = self._try_wave(lane, plan, buffers[piece], parts[piece], out, fields)
                except CodecError as error:
                    error.index += start
                    raise
                start, size = (start + size, size) if fits else (start, size // 2)

    def bulk(self, store: Store, layout: Layout, chain: Chain, plan: Plan, out: Array) -> None:
        """Nothing: `load` and `place` take many chunks at once."""

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """Decode whole chunks on the host, where writes are put together. Raises: CodecError(index)."""
        return self._host.decode(chain, buffers)

    def gather(
        self, chain: Chain, value: Array, parts: Sequence[Part], old: Sequence[Array | None], fields: Fields
    ) -> list[Array]:
        """Make the new contents of chunks, on the host."""
        return self._host.gather(chain, value, parts, old, fields)

    def is_fill(self, chain: Chain, chunks: Sequence[Array]) -> list[bool]:
        """Whether each chunk equals the fill value, bit for bit, everywhere."""
        return self._host.is_fill(chain, chunks)

    def encode(self, chain: Chain, chunks: Sequence[Array]) -> list[Buffer]:
        """Encode chunks on the host. Raises: CodecError(index)."""
        return self._host.encode(chain, chunks)

    def run(self, task: Callable[[T], None], waves: Iterable[T], work: Work) -> None:
        """Carry out a task for every wave, two at once."""
        self._lanes.run(task, waves)

    def _is_small(self, plan: DevicePlan, buffers: Sequence[Buffer | None], out: Array) -> bool:
        """Whether decoding on the host and one upload are expected to be faster."""
        if not plan.host_decodes or out.nbytes > self._small_reads.nbytes or not all(map(is_on_host, buffers)):
            return False
        present = sum(buffer is not None for buffer in buffers)
        return self._small_reads.prefers_host(present, present * (plan.chunk.nbytes or 0), out.nbytes)

    def _place_from_host(
        self, lane: Lane, chain: Chain, buffers: Sequence[Any], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        """Decode on the host what the placement kernels do not read, or what is small, and upload it in few copies."""
        decoded = np.empty(out.shape, out.dtype)
        self._host.place(chain, [on_host(buffer) for buffer in buffers], parts, decoded, fields)
        pieces = [np.asarray(decoded[part.out], order="C") for part in parts]
        nbytes = sum(piece.nbytes for piece in pieces)
        if len(pieces) < 2 or nbytes > min(self._small_reads.nbytes, self._lanes.limit // 2):
            for part, piece in zip(parts, pieces, strict=True):
                self._upload_piece(lane, part, piece, out)
            return
        packed = self._device.upload(np.concatenate([piece.reshape(-1) for piece in pieces]))
        start = 0
        for part, piece in zip(parts, pieces, strict=True):
            out[part.out] = packed[start : start + piece.size].reshape(piece.shape)
            start += piece.size

    def _upload_piece(self, lane: Lane, part: Part, piece: Array, out: Array) -> None:
        """Upload what was decoded of one chunk. Raises: DeviceError if it does not fit into the lane."""
        mark = lane.memory.mark()
        try:
            out[part.out] = self._device.upload(piece)
        except OverLimitError:
            self._device.synchronize()
            lane.memory.rewind(mark)
            lane.memory.compact()
            try:
                out[part.out] = self._device.upload(piece)
            except OverLimitError as error:
                raise self._too_large(part, piece.shape, piece.nbytes) from error
        lane.memory.rewind(mark)

    def _fitting(self, plan: DevicePlan) -> int:
        """How many chunks of a wave are likely to fit into a lane; at least one."""
        return max(self._lanes.limit // ((plan.chunk.nbytes or 1) * (2 + plan.scratch)), 1)

    def _try_wave(
        self, lane: Lane, plan: DevicePlan, buffers: Sequence[Any], parts: Sequence[Part], out: Array, fields: Fields
    ) -> bool:
        """Decode and place chunks. Returns: whether they fit into the lane.

        Memory that was cut into pieces of other sizes is made whole before they are found not to fit.
        Raises: DeviceError if a single chunk does not.
        """
        marks = lane.memory.mark(), lane.staging.mark()
        for attempt in ("as it is", "made whole"):
            try:
                self._place_wave(plan, buffers, parts, out, fields)
            except OverLimitError as error:
                self._device.synchronize()
                if attempt == "made whole" and len(parts) == 1:
                    raise self._too_large(parts[0], plan.chunk.shape, plan.chunk.nbytes) from error
            else:
                return True
            finally:
                lane.memory.rewind(marks[0])
                lane.staging.rewind(marks[1])
            lane.memory.compact()
        return False

    def _too_large(self, part: Part, shape: tuple[int, ...], nbytes: int | None) -> DeviceError:
        return DeviceError(
            f"chunk {part.coords}: {nbytes} bytes of shape {shape} take more device memory to decode and place than "
            f"the {self._lanes.limit} bytes of a wave, half of the cap of {self._cap} bytes; raise max_device_nbytes "
            "or read it with device='cpu'"
        )

    def _place_wave(
        self, plan: DevicePlan, buffers: Sequence[Any], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        wave = Wave(self._device)
        present = [i for i, buffer in enumerate(buffers) if buffer is not None]
        try:
            chunks = self._decoded(wave, plan, [buffers[i] for i in present]) if present else None
            launch_placement(wave, plan, chunks, present, parts, out, fields)
            wave.finish()
        except CodecError as error:
            error.index = present[error.index]
            chunks = None
            _forget_frames(error)
            raise
        finally:
            wave.drop()

    def _decoded(self, wave: Wave, plan: DevicePlan, buffers: Sequence[Any]) -> Chunks:
        batch: Any = _decoded_on_host(wave, plan, buffers) if plan.host else streams_of(wave, buffers)
        for decode in plan.device:
            batch = decode(wave, batch)
        if not isinstance(batch, Chunks):
            raise DeviceError("a chain of codecs on the device did not end in chunks")
        return batch


def _decoded_on_host(wave: Wave, plan: DevicePlan, buffers: Sequence[Any]) -> Any:
    """Carry out the host's part of a chain, and upload what it gives."""
    items: Sequence[Any] = [on_host(buffer) for buffer in buffers]
    for codec in reversed(plan.host):
        items = codec.decode(items)
    if isinstance(items[0], np.ndarray) and (not plan.device or items[0].ndim != 1 or items[0].dtype != np.uint8):
        return upload_rows(wave, items, plan.encoded)
    return upload_streams(wave, items)


def _forget_frames(error: BaseException) -> None:
    """Cut an error off the frames it came through: whoever keeps it would keep the device memory they refer to."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


def _noted(placement: tuple[Placement, ...], step: int, note: str) -> tuple[Placement, ...]:
    """A placement with a further reason for one step; -1 for none."""
    if step < 0:
        return placement
    row = placement[step]
    return (*placement[:step], row._replace(why=f"{row.why}; {note}"), *placement[step + 1 :])
