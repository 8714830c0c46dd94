"""The GPU backend: whole batches of chunks are decoded on the device and placed in the caller's array by one kernel.

Theory of operation. A reader brings the encoded chunks of a batch into one staging buffer, either in pinned memory,
from which one copy uploads them, or straight on the device. Every codec step is one call for the whole batch. One
kernel then copies the wanted elements into the result; it also unshuffles, swaps bytes, transposes, and fills in
missing chunks. Several batches are under way at once, each in a *pipeline slot*, with a stream and memory of its own.
Steps that the device lacks run on the host before the upload. The CPU backend reads data types that CuPy lacks
(objects, strings, structures, times) into NumPy arrays. Writing goes the other way, for values of either kind
(`gzarr.gpu.pipeline.write`).

Rules: the device memory of all batches stays under the cap, and batches that do not fit are cut. Results of decoders
are checked once, when the batch is done, and a failure names its chunk.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Chain, Compiled, Fields, Placement, T, Work
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import has_dtype
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.device.pipeline_slots import PipelineSlots
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.pipeline import batches as batching
from gzarr.gpu.pipeline.arrays import reduce_windows, reduces, take_rows
from gzarr.gpu.pipeline.eligibility import DeviceJobs
from gzarr.gpu.pipeline.launching import element_of, has_element, is_placeable
from gzarr.gpu.pipeline.placement import DevicePlan, make_device_plan
from gzarr.gpu.pipeline.placing import is_small, place_from_host, place_parts
from gzarr.gpu.pipeline.write import buffers_of, download_parts, encode_batch, values_of
from gzarr.gpu.reading.host import HostReader, phase_of
from gzarr.gpu.reading.select import ReaderChoice, choose_reader
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import Layout, Located
from gzarr.profiling import transfers
from gzarr.profiling.recorder import Marker
from gzarr.storage.base import Buffer, Store
from gzarr.tensors import from_tensor, memory_of

#: Share of the free device memory that batches may use by default; the rest is the caller's. Most reads take less:
#: three batches of 128 to 256 MiB and what decoding them takes, at most 2.3 to 4.6 GiB. Chunks of one long stream each
#: take it all: on a card of 80 GB, three batches of some 70 streams of 16 MiB are decoded at once, more than one for
#: each multiprocessor.
DEFAULT_MEMORY_SHARE = 0.25
#: And the least that they may try to allocate, in bytes, if less is free.
LEAST_NBYTES = 48 << 20


class _Prepared(NamedTuple):
    """What this backend prepares for a chain.

    Attributes
    ----------
    host : Chain
        The chain of the CPU backend.
    plan : DevicePlan or None
        How the device decodes and encodes; None if only the host can.
    """

    host: Chain
    plan: DevicePlan | None


class GpuBackend:
    """Decodes on a device into arrays in its memory.

    Parameters
    ----------
    device : Device
        Where to decode.
    max_device_nbytes : int, optional
        The cap on device memory besides the results; None for a share of what is free when a read or write begins.
    strict : bool
        Whether a step that the device lacks is an error, instead of running on the host.
    reader : str or HostReader
        "host", "kvikio", "auto" (see `gzarr.gpu.reading.select`), or a reader.
    stream : object
        The caller's stream, on which results are ready: a CuPy stream, an object of CUDA's stream protocol, or the
        address of a stream; None for the stream that is current when a read begins.
    small_reads, small_writes : Crossover, optional
        Limits of the reads that the host decodes, and of the writes of host values that it encodes; None for those
        of the device.

    Attributes
    ----------
    device : str
        Name of the device.
    xp : module
        The array module of the device's memory: cupy, or numpy for the emulated device.
    strict : bool
        Whether a step that the device lacks is an error, instead of running on the host.
    options
        Arguments with which `gzarr.devices.backend_for` makes the same backend again, also in other processes.
    reader : ReaderChoice
        The reader of files ("host" or "kvikio"), why it was chosen, and what has turned out since.
    """

    def __init__(
        self,
        device: Device,
        *,
        max_device_nbytes: int | None = None,
        strict: bool = False,
        reader: str | HostReader = "auto",
        stream: Any = None,
        small_reads: batching.Crossover | None = None,
        small_writes: batching.Crossover | None = None,
    ) -> None:
        self.device = device.name
        self.xp: Any = device.xp
        self.strict = strict
        self.options = {"max_device_nbytes": max_device_nbytes, "strict": strict, "reader": reader}
        self._small_reads = batching.NEVER if strict else small_reads or batching.crossover_for(device)
        self._small_writes = batching.NEVER if strict else small_writes or batching.crossover_for(device)
        self._device = device
        self._host = CpuBackend()
        cap = max_device_nbytes or (
            lambda held: max(int((device.free_nbytes() + held) * DEFAULT_MEMORY_SHARE), LEAST_NBYTES)
        )
        self._pipeline_slots = PipelineSlots(device, cap, None if stream is None else device.as_stream(stream))
        self._reader, self._choice = choose_reader(reader)
        self._resources = batching.Resources(
            device, self._pipeline_slots, self._reader, self._small_reads, self._writes
        )

    @property
    def reader(self) -> ReaderChoice:
        """The reader of files ("host" or "kvikio"), why it was chosen, and what has turned out since."""
        note = self._reader.note
        return self._choice._replace(why=f"{self._choice.why}; {note}") if note else self._choice

    @property
    def host(self) -> CpuBackend:
        """The backend of the host."""
        return self._host

    @property
    def marker(self) -> Marker:
        """The device, which marks the stages of a profile."""
        return self._device

    def release(self) -> None:
        """Free the memory that pipeline slots hold for the next reads."""
        self._pipeline_slots.release()

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises: UnknownCodecError, MissingExtraError, DeviceError in strict mode."""
        host = self._host.prepare(steps, chunk)
        if chunk.nbytes is None:
            return host._replace(
                placement=_all_on_host(steps, "Python objects live on the host"), prepared=_Prepared(host, None)
            )
        plan, placement = make_device_plan(steps, chunk, host.codecs, self._device, strict=self.strict)
        specs = [step.spec for step in steps[: len(steps) - len(plan.host)]]
        host_round_trip = self._reader.host_round_trip(specs)
        plan = replace(plan, phase=phase_of(specs), skips_host=host_round_trip is None)
        if not has_dtype(chunk.dtype):
            why, records = f"arrays on {self.device} cannot have dtype {chunk.dtype}", None
            if chunk.dtype.names is not None:
                why = f"records are put together on the host; one field of numbers is read and written on {self.device}"
                records = plan
            return host._replace(placement=_all_on_host(steps, why), prepared=_Prepared(host, records))
        if host_round_trip is not None and self.reader.name == "kvikio":
            placement = _noted(placement, len(specs) - 1, host_round_trip)
        if plan.host_decodes and self._small_reads.nchunks:
            placement = _noted(placement, len(placement) - 1, str(self._small_reads))
        return host._replace(placement=placement, prepared=_Prepared(host, plan))

    def batch_nchunks(self, chain: Chain | None, nchunks: int, nbytes: int, *, writing: bool) -> int:
        """How many chunks one batch should hold, so that all that it needs fits into a pipeline slot."""
        plan = None if chain is None else chain.prepared.plan
        memory = batching.write_memory(plan, nbytes) if writing else batching.read_memory(plan, nbytes)
        return batching.batch_nchunks(nchunks, nbytes, memory, self._pipeline_slots.limit)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: object | None = None) -> Array:
        """An uninitialized array on the device, in native byte order; on the host if the device lacks the dtype."""
        if has_dtype(dtype):
            stream = self._pipeline_slots.stream if stream is None else stream
            return self._device.result(shape, dtype.newbyteorder("="), stream)
        return self._host.empty(shape, dtype)

    def asarray(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """A value to be written: an array on the device, of any library, as it is; anything else as a NumPy array."""
        value = from_tensor(value)
        adopted = self._device.adopt(value)
        if adopted is None:
            value = self._host.asarray(value, dtype)
            if value.ndim and has_dtype(dtype):
                transfers.notify("to_device", value.nbytes)
            return value
        return adopted if self._device.owns(adopted) else self._device.download(adopted)

    def adopt_out(self, out: Any) -> Array:
        """An array to read into: on the device, of any library, or a NumPy array, into which the host decodes.

        Raises: ValueError for an array that is read-only or on another device, DeviceError for a NumPy array in strict
        mode.
        """
        if self._device.owns(out):
            return out
        out = memory_of(out)
        adopted = self._device.adopt(out, self._pipeline_slots.stream)
        if adopted is not None:
            if not self._device.owns(adopted):
                raise ValueError(f"out is not on {self.device}, where the array is read: copy it there")
            if getattr(out, "__cuda_array_interface__", {"data": (0, False)})["data"][1]:
                raise ValueError("out is read-only")
            return adopted
        out = self._host.adopt_out(out)
        if self.strict and has_dtype(out.dtype):
            raise DeviceError(f"out is on the host, so the host would decode (strict=True); give one on {self.device}")
        return out

    def load(self, store: Store, wanted: Sequence[Located]) -> list[Buffer | None]:
        """Fetch located chunks into host memory. Raises: CodecError(index) for a short item."""
        return self._host.load(store, wanted)

    def place(self, chain: Chain, buffers: Sequence[Any], parts: Sequence[Part], out: Array, fields: Fields) -> None:
        """Decode chunks on the device and copy their parts into ``out``. Raises: CodecError(index), DeviceError."""
        host, plan = chain.prepared
        is_slots, block = type(out) is Slots, out.blocks[0] if type(out) is Slots else out
        if not self._device.owns(block) or (plan is None and not is_slots):
            self._host.place(host, buffers, parts, out, fields)
            return
        places = plan is not None and self._places(plan, block, fields) and bool(plan.strides or not is_slots)
        with self._pipeline_slots.borrow() as pipeline_slot:
            if places and (is_slots or not is_small(self._resources, plan, buffers, out)):
                place_parts(self._resources, pipeline_slot, plan, buffers, (parts, out, fields))
                return
            here = Slots(tuple(map(_like, out.blocks))) if is_slots else _like(out)
            with np.errstate(all="ignore"):  # as the device casts
                self._host.place(host, buffers, parts, here, fields)
            place_from_host(self._resources, pipeline_slot, plan, here, parts, out)

    def _places(self, plan: DevicePlan, out: Array, fields: Fields) -> bool:
        """Whether the placement kernels can do a read. Raises: DeviceError in strict mode, if they should."""
        places = is_placeable(plan, out, fields)
        if self.strict and not places and has_dtype(out.dtype):
            raise DeviceError(
                f"{plan.chunk.dtype} become {out.dtype} on the host only (strict=True): read them as they are, then "
                "convert the result"
            )
        return places

    def compiled(self, store: Store, layout: Layout, chain: Chain | None, *, cached: bool) -> Compiled:
        """Return what decides which reads and writes of an array are done in pieces."""
        plan = None if chain is None else chain.prepared.plan
        host = self._host.compiled(store, layout, None if chain is None else chain.prepared.host, cached=cached)
        is_host = chain is not None and plan is None
        return host if is_host else DeviceJobs(self._resources, store, layout, plan, host)

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """Decode whole chunks on the host. Raises: CodecError(index)."""
        return self._host.decode(chain.prepared.host, buffers)

    def merge_and_encode(
        self,
        chain: Chain,
        old: Sequence[Buffer | None],
        value: Array,
        parts: Sequence[Part],
        fields: Fields,
        *,
        keep_empty: bool,
    ) -> list[Buffer | None]:
        """Merge and encode chunks on the device; small writes, and steps that the device lacks, on the host.

        Raises: CodecError(index), DeviceError.
        """
        host, plan = chain.prepared
        if plan is None or not self._writes(plan, value, len(parts), fields):
            encode = partial(self._host.merge_and_encode, host, old, keep_empty=keep_empty)
            if not self._device.owns(value):
                return encode(value, parts, fields)
            with self._pipeline_slots.borrow(to_write=True) as pipeline_slot:
                pieces = download_parts(pipeline_slot, plan, value, parts)
            return encode(pieces, [part._replace(out=i) for i, part in enumerate(parts)], fields)
        # A lazy value, such as another array of gzarr, is read before this write holds a pipeline slot.
        values = values_of(self._device, plan, value, parts, fields)
        is_read = not isinstance(value, np.ndarray) and not self._device.owns(value)
        streams = (self._device.current_stream(), self._pipeline_slots.stream) if is_read else ()
        ready = [self._device.record(stream) for stream in streams if stream is not None]
        encoded: list[Buffer | None] = []

        def encode_some(some: slice) -> None:
            found = encode_batch(pipeline_slot, plan, old[some], (values, some, fields), keep_empty=keep_empty)
            encoded.extend(buffers_of(plan.encoding, found, some.stop - some.start))

        with self._pipeline_slots.borrow(to_write=True) as pipeline_slot:
            for event in ready:
                self._device.wait(pipeline_slot.stream, event)
            cost = batching.write_memory(plan, plan.chunk.nbytes or 1)
            batching.in_batches(pipeline_slot, len(parts), cost, encode_some, lambda i: (parts[i].coords, plan.chunk))
        return encoded

    def run(self, task: Callable[[T], None], batches: Iterable[T], work: Work) -> None:
        """Carry out a task for every batch, several at once."""
        self._pipeline_slots.run(task, batches)

    def take(self, pool: Array, slots: NDArray[np.int64], out: Array) -> None:
        """Copy rows of an array into another one, on the device if they are there; numbers are cast."""
        if not self._device.owns(pool):
            self._host.take(pool, slots, out)
            return
        with self._device.use(self.current_stream()):
            take_rows(self._device, pool, slots, out, self._pipeline_slots.upload)

    def reduce_windows(self, block: Array, factors: Sequence[int], method: str, out: Array) -> None:
        """Reduce each window of a block to one element, where the block is."""
        if not self._device.owns(block):
            self._host.reduce_windows(block, factors, method, out)
            return
        with self._device.use(self.current_stream()):
            if reduces(block, factors, method):
                reduce_windows(self._device, block, factors, method, out, self._pipeline_slots.upload)
                return
            if self.strict:
                raise DeviceError(f"{method} of {block.dtype} in windows {factors}: on the host only (strict=True)")
            there = np.empty(out.shape, out.dtype)
            self._host.reduce_windows(self._device.download(block), factors, method, there)
            out[...] = self._device.upload(there)

    def measured(self, call: Callable[[], T]) -> tuple[T, int | None]:
        """The result of a call, and the most device memory that its arrays took at once."""
        with self._device.use(self.current_stream()):
            return self._device.measured(call)

    def own_stream(self) -> AbstractContextManager[None]:
        """A context in which this thread's work goes to a stream of its own, which waits for no other."""
        return self._pipeline_slots.own_stream()

    def current(self) -> AbstractContextManager[None]:
        """A context in which the array module works on this device, on the stream of `current_stream`."""
        return self._device.use(self.current_stream())

    def current_stream(self) -> object:
        """The stream on which this thread's results are ready."""
        stream: object = self._pipeline_slots.stream
        return self._device.current_stream() if stream is None else stream

    def record(self, stream: object | None = None) -> object:
        """An event after what has been submitted to a stream, by default to the current one."""
        return self._device.record(self.current_stream() if stream is None else stream)

    def wait(self, mark: object | None, stream: object | None = None) -> None:
        """Make a stream wait for an event, by default the current one."""
        if mark is not None:
            self._device.wait(self.current_stream() if stream is None else stream, mark)

    def mapped(self, memory: NDArray[Any]) -> Array:
        """Host memory, pinned, as an array of the device."""
        return self._device.mapped(memory)

    def upload(self, array: NDArray[Any], stream: object | None) -> Array:
        """A copy of a host array on the device."""
        if not has_dtype(array.dtype):
            return array
        out = self.empty(array.shape, array.dtype, stream)
        self.wait(self.record(stream))  # which may still use that memory
        with self._device.use(self.current_stream()):
            out[...] = self._device.upload(array)
        return out

    def finish(self) -> None:
        """Wait for what this thread's stream does."""
        with self._device.use(self.current_stream()):
            self._device.synchronize()

    def owned_by(self, array: Array, owner: object) -> Array:
        """An array in the same memory that keeps an owner alive."""
        return (self._device if self._device.owns(array) else self._host).owned_by(array, owner)

    def _writes(self, plan: DevicePlan, value: Any, nchunks: int, fields: Fields) -> bool:
        """Whether the device merges and encodes chunks. Raises: DeviceError in strict mode, if it cannot."""
        if not has_element(plan, fields) or not plan.chunk.nbytes or not nchunks:
            return False
        _, dtype = element_of(plan.chunk.dtype, fields)
        if self.strict and plan.encoding.obstacle is not None:
            raise DeviceError(f"{plan.encoding.obstacle} (strict=True): write with strict=False or device='cpu'")
        if self.strict and self._device.owns(value) and why_not_cast(value.dtype, dtype):
            raise DeviceError(f"{value.dtype} become {dtype} on the host only (strict=True): convert the value first")
        if not plan.encoding.device:
            return False
        if self.strict or not plan.host_decodes or self._device.owns(value) or not isinstance(value, np.ndarray):
            return True
        # Uploading a value from the host only pays if it comes back smaller.
        if plan.encoding.host or not plan.encoding.compresses:
            return False
        return not self._small_writes.prefers_host(nchunks, nchunks * plan.chunk.nbytes, 0)


def _like(array: Array) -> NDArray[Any]:
    """Memory of the host for what is decoded there instead of into an array of the device."""
    return np.empty(array.shape, array.dtype)


def _all_on_host(steps: Sequence[Step], why: str) -> tuple[Placement, ...]:
    return tuple(Placement(step.spec.name, "host", why) for step in steps)


def _noted(placement: tuple[Placement, ...], step: int, note: str) -> tuple[Placement, ...]:
    """A placement with one more reason for a step; -1 for no step."""
    if step < 0:
        return placement
    row = placement[step]
    return (*placement[:step], row._replace(why=f"{row.why}; {note}"), *placement[step + 1 :])
