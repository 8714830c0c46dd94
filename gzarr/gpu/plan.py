"""Decides, when an array is opened, which steps of its codec chain run on the device, and which on the host and why.

Decoding starts on the host, where the encoded bytes arrive. As long as a step that the device lacks is still to come,
all steps before it run on the host too (a download and an upload in between would cost more); the rest runs on the
device, and the result of the host's part is uploaded. Byte order and transposes at the end of the chain cost nothing:
the placement kernel does them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.backend import Placement
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import ArrayRepr, Codec, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.errors import DeviceError
from gzarr.gpu.batch import Chunks, Wave
from gzarr.gpu.codecs import FRAMED, TABLE, WaveDecoder
from gzarr.gpu.device import Device
from gzarr.gpu.dtypes import dtype_in_bytes, swap_unit
from gzarr.gpu.filters import why_on_host
from gzarr.gpu.streams import reversed_units, unshuffled


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlan:
    """How chunks of one shape are decoded on a device.

    Attributes:
        host: codecs that run on the host first, in encoding order.
        device: what then runs on the device, in decoding order.
        strides: of a decoded chunk as it lies in device memory, in elements, for every array axis.
        stored: dtype of what placement reads, in the byte order that it has there.
        chunk: the decoded chunk.
        encoded: dtype of what the host's part gives, if that is arrays.
        scratch: bytes of temporary device memory for each decoded byte.
        phase: where in a multiple of `gzarr.gpu.streams.ALIGNMENT` encoded chunks should begin.
        direct: whether chunks that are only on the device can be decoded without copying them to the host.
        host_decodes: whether the host surely has every codec; not so where a library may be missing there.
    """

    host: tuple[Codec, ...]
    device: tuple[WaveDecoder, ...]
    strides: tuple[int, ...]
    stored: np.dtype[Any]
    chunk: ArrayRepr
    encoded: np.dtype[Any]
    scratch: int
    phase: int = 0
    direct: bool = False
    host_decodes: bool = True


def make_device_plan(
    steps: Sequence[Step], chunk: ArrayRepr, host_codecs: Sequence[Codec], device: Device, *, strict: bool
) -> tuple[DevicePlan, tuple[Placement, ...]]:
    """Distribute a chain. host_codecs: the same steps on the host.

    Raises: DeviceError in strict mode, if a step would run on the host.
    """
    n_folded = next((i for i, s in enumerate(steps) if not isinstance(s.spec, TransposeCodec)), len(steps))
    decoders, reasons = _decoders(steps, device, n_folded)
    split = next((i for i, decoder in enumerate(decoders) if decoder is None and i >= n_folded), len(steps))
    if strict and split < len(steps):
        raise DeviceError(
            f"codec {steps[split].spec.name!r} does not run on {device.name}: {reasons[split]} (strict=True)"
        )
    on_device = tuple(d for d in reversed(decoders[n_folded:split]) if d is not None)
    last = steps[split - 1] if split else None
    stored = _stored(steps[:split], n_folded, chunk)
    plan = DevicePlan(
        host=tuple(host_codecs[max(split, 0) :]),
        device=on_device,
        strides=_strides(steps[:n_folded], chunk),
        stored=stored,
        chunk=chunk,
        encoded=last.encoded.dtype if last is not None and isinstance(last.encoded, ArrayRepr) else chunk.dtype,
        scratch=4 if any(s.spec.name in ("zstd", "blosc", "numcodecs.zstd") for s in steps[:split]) else 1,
        host_decodes=not any("nvcomp" in s.spec.name for s in steps),
    )
    return plan, _placements(steps, split, n_folded, reasons, device)


def _decoders(steps: Sequence[Step], device: Device, n_folded: int) -> tuple[list[WaveDecoder | None], list[str]]:
    decoders: list[WaveDecoder | None] = []
    reasons: list[str] = []
    framed = False
    for i, step in enumerate(steps):
        factory = TABLE.get(step.spec.name)
        decoder = factory(step, device) if factory is not None else None
        if decoder is not None and i > n_folded and isinstance(step.spec, BytesCodec):
            decoder = _swapped(step, decoder)
        if decoder is not None and step.spec.name in FRAMED:
            decoder, framed = (decoder, True) if not framed else (None, True)
        decoders.append(decoder)
        if i < n_folded:
            reasons.append("folded into placement")
        elif decoder is not None:
            reasons.append("the device has it")
        elif factory is None:
            reasons.append("the device has no such codec")
        else:
            reasons.append(why_on_host(step) or "the device cannot run it for this data type, size or configuration")
    return decoders, reasons


def _swapped(step: Step, decoder: WaveDecoder) -> WaveDecoder:
    """The bytes codec where filters follow, which want native numbers."""
    unit = swap_unit(dtype_in_bytes(step))
    if not unit:
        return decoder

    def decode(wave: Wave, batch: Any) -> Chunks:
        chunks = decoder(wave, batch)
        if not isinstance(chunks, Chunks):
            raise TypeError("the bytes codec gives chunks")
        plain = unshuffled(wave, chunks)
        rows = reversed_units(wave, plain.rows, unit)
        n = len(plain)
        return Chunks(rows, wave.device.address(rows) + np.arange(n) * plain.nbytes, plain.nbytes, rows)

    return decode


def _stored(steps: Sequence[Step], n_folded: int, chunk: ArrayRepr) -> np.dtype[Any]:
    """Dtype of what placement reads: native but where it comes straight from the bytes codec."""
    first = steps[n_folded] if len(steps) > n_folded else None
    if first is not None and isinstance(first.spec, BytesCodec):
        return dtype_in_bytes(first)
    if first is None or first.spec.kind == "array_array":
        return chunk.dtype.newbyteorder("=")
    return chunk.dtype


def _strides(transposes: Sequence[Step], chunk: ArrayRepr) -> tuple[int, ...]:
    """Strides of a chunk that lies in memory in transposed order, in elements, by array axis."""
    order = tuple(range(len(chunk.shape)))
    for step in transposes:
        if isinstance(step.spec, TransposeCodec):
            order = tuple(order[axis] for axis in step.spec.permutation(len(order)))
    strides = [0] * len(order)
    step_size = 1
    for axis in reversed(order):
        strides[axis] = step_size
        step_size *= chunk.shape[axis]
    return tuple(strides)


def _placements(
    steps: Sequence[Step], split: int, n_folded: int, reasons: Sequence[str], device: Device
) -> tuple[Placement, ...]:
    found = []
    for i, step in enumerate(steps):
        if i < min(split, n_folded) or i < split:
            found.append(Placement(step.spec.name, device.name, reasons[i]))
        else:
            why = (
                reasons[i]
                if i == split or reasons[i] != "the device has it"
                else f"{steps[split].spec.name} comes after it"
            )
            found.append(Placement(step.spec.name, "host", why))
    return (*found, Placement("place", device.name, "the result lies there"))
