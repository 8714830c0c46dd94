"""Encodes chunks with the device's encoders, as the write pipeline does, and reads them back in every way."""

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import gzarr
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Step
from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Encoded, Encoder
from gzarr.gpu.codecs.bytes import stored_dtype
from gzarr.gpu.codecs.transfers import byte_ranges, copy_streams
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Outcome
from gzarr.gpu.pipeline.placement import device_codecs


def spec_of(name: str, **config: Any) -> Any:
    return NumcodecsCodec(name, config)


def chunks_of(nbytes: int) -> np.ndarray:
    """Chunks that compress well, somewhat and not at all: uint8 (4, nbytes)."""
    rng = np.random.default_rng(nbytes)
    smooth = (np.arange(nbytes) // 37 % 251).astype(np.uint8)
    noise = rng.integers(0, 256, nbytes, np.uint8)
    return np.stack([smooth, np.zeros(nbytes, np.uint8), noise, np.where(noise < 40, noise, 3).astype(np.uint8)])


class FailingDevice(EmulatedDevice):
    """An encoder that fails for some streams, or answers oddly."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def compress(self, *args: Any) -> Outcome:
        outcome = super().compress(*args)
        self.change(SimpleNamespace(statuses=outcome.statuses, sizes=outcome.sizes, target=args[3]))
        return outcome


def steps_of(specs: Sequence[CodecSpec], chunk: np.ndarray) -> tuple[Step, ...]:
    """The prepared chain for chunks like one; a serializer is put in where it is missing."""
    shape = ArrayRepr(chunk.dtype, chunk.shape)
    return prepare(complete(specs, shape), shape)


def encoders_of(steps: Sequence[Step], device: Any) -> list[Encoder | str]:
    """The encoder of each step, or why the host encodes it."""
    found = zip(steps, device_codecs(steps, 0), strict=True)
    return ["it has none" if codec is None else codec.encoder(step, device) for step, codec in found]


def stays_on_host(spec: CodecSpec, chunk: np.ndarray, device: Any = None) -> bool:
    """Whether the device leaves encoding such chunks with a codec to the host."""
    steps = steps_of([spec], chunk)
    (i,) = (i for i, step in enumerate(steps) if step.spec.name == spec.name)
    return isinstance(encoders_of(steps, device or EmulatedDevice())[i], str)


def encode_on_host(specs: Sequence[CodecSpec], chunks: np.ndarray) -> list[bytes]:
    """What the CPU's codecs make of chunks (the first axis counts them)."""
    chain = CpuBackend().prepare(steps_of(specs, chunks[0]), ArrayRepr(chunks.dtype, chunks[0].shape))
    return [bytes(memoryview(data)) for data in chain.encode(list(chunks))]


def bytes_of(context: BatchContext, batch: Chunks | Encoded) -> list[bytes]:
    """What a batch holds, of a device whose memory is the host's."""
    return [ctypes.string_at(at, n) for at, n in zip(*(table.tolist() for table in byte_ranges(batch)), strict=True)]


def encode(
    device: Any, specs: Sequence[CodecSpec], chunks: np.ndarray, limit: int = 1 << 30, fetch: Any = bytes_of
) -> list[bytes]:
    """Encode chunks (the first axis counts them) in one batch, in a pipeline slot of so much memory.

    fetch: copies what came out to the host.
    Raises: TypeError if the device lacks one of the steps.
    """
    steps = steps_of(specs, chunks[0])
    encoders = encoders_of(steps, device)
    for step, encoder in zip(steps, encoders, strict=True):
        if isinstance(encoder, str):
            raise TypeError(f"the device does not encode {step.spec}: {encoder}")
    pipeline_slot = PipelineSlot(device, limit)
    with pipeline_slot.active():
        first = isinstance(steps[0].spec, BytesCodec)
        batch = chunks_on(device, chunks.astype(stored_dtype(steps[0]) if first else chunks.dtype.newbyteorder("=")))
        context = BatchContext(device)
        for encoder in encoders:
            batch = encoder(context, batch)
        device.synchronize()
        found = fetch(context, batch)
        context.drop()
    return found


def chunks_on(device: Any, chunks: np.ndarray) -> Chunks:
    """Chunks in device memory, one behind the other."""
    n = len(chunks)
    host = np.ascontiguousarray(chunks).reshape(n, -1).view(np.uint8)
    rows = device.upload(host.reshape(-1)).reshape(host.shape)
    addresses = device.address(rows) + np.arange(n, dtype=np.int64) * host.shape[1]
    return Chunks(rows, addresses, host.shape[1], rows)


def copied_bytes_of(context: BatchContext, batch: Chunks | Encoded) -> list[bytes]:
    """What a batch holds, of any device: put together there, and downloaded."""
    source, sizes = byte_ranges(batch)
    ends = np.cumsum(sizes)
    memory = context.device.empty(int(ends[-1]))
    copy_streams(context, source, context.device.address(memory) + ends - sizes, sizes)
    host = context.device.download(memory)
    return [host[end - n : end].tobytes() for end, n in zip(ends.tolist(), sizes.tolist(), strict=True)]


def read_back(specs: Sequence[CodecSpec], chunks: np.ndarray, encoded: Sequence[bytes], where: Any) -> np.ndarray:
    """Decode what was encoded, through an array on a device; "emulated" decodes every step on the emulated one."""
    n, shape = len(chunks), chunks[0].shape
    codecs = complete(specs, ArrayRepr(chunks.dtype, shape))
    stored = gzarr.create_array(
        {}, shape=(n * shape[0], *shape[1:]), chunks=shape, dtype=chunks.dtype, codecs=codecs, zarr_format=3
    )
    for i, data in enumerate(encoded):
        stored.store["/".join(("c", str(i), *("0" for _ in shape[1:])))] = data
    device = GpuBackend(EmulatedDevice(), strict=True) if where == "emulated" else where
    found = gzarr.open_array(stored.store, mode="r", device=device)[:]
    return np.asarray(found if isinstance(found, np.ndarray) else found.get()).reshape(chunks.shape)
