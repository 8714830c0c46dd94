"""Decides, when an array is opened, which steps of its codec chain run on the device, and which on the host and why.

Decoding starts on the host, where the encoded bytes arrive. As long as a step that the device lacks is still to come,
all steps before it run on the host too (a download and an upload in between would cost more); the rest runs on the
device, and the result of the host's part is uploaded. Byte order and transposes at the end of the chain cost nothing:
the placement kernel does them.

Encoding goes the other way: from the first step that the device cannot encode on, all steps run on the host, with what
the device made of the chunks; transposes at the beginning are the gathering kernel's. The two need not be split alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.backend import Placement
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import ArrayRepr, Codec, Repr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import Chunks, Wave
from gzarr.gpu.codecs.decoders import FRAMED, TABLE, WaveDecoder
from gzarr.gpu.codecs.dtypes import dtype_in_bytes, swap_unit
from gzarr.gpu.codecs.encoders import ENCODERS, WaveEncoder, swapped
from gzarr.gpu.codecs.filters import filter_for, why_on_host
from gzarr.gpu.codecs.filters_encoding import encoding_filter_for
from gzarr.gpu.codecs.streams import reversed_units, unshuffled
from gzarr.gpu.device.protocol import Device

_UNFIT = "the device cannot run it for this data type, size or configuration"


@dataclass(frozen=True, slots=True, eq=False)
class EncodePlan:
    """How chunks of one shape are encoded on a device.

    Attributes:
        device: what runs on the device, in encoding order; nothing if the host does everything.
        host: codecs that then run on the host, in encoding order.
        handed: what the first of these takes.
        compresses: whether the device does more than to give bytes their order.
        obstacle: why a step runs on the host, naming it; None if none does.
    """

    device: tuple[WaveEncoder, ...]
    host: tuple[Codec, ...]
    handed: Repr | None
    compresses: bool
    obstacle: str | None


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlan:
    """How chunks of one shape are decoded and encoded on a device.

    Attributes:
        host: codecs that run on the host first, in encoding order.
        device: what then runs on the device, in decoding order.
        strides: of a decoded chunk as it lies in device memory, in elements, for every array axis.
        stored: dtype of what placement reads, in the byte order that it has there.
        chunk: the decoded chunk.
        encoded: dtype of what the host's part gives, if that is arrays.
        encoding: the way back.
        scratch: bytes of temporary device memory for each decoded byte.
        phase: where in a multiple of `gzarr.gpu.codecs.streams.ALIGNMENT` encoded chunks should begin.
        direct: whether chunks that are only on the device can be decoded without copying them to the host.
        host_decodes: whether the host surely has every codec; not so where a library may be missing there.
    """

    host: tuple[Codec, ...]
    device: tuple[WaveDecoder, ...]
    strides: tuple[int, ...]
    stored: np.dtype[Any]
    chunk: ArrayRepr
    encoded: np.dtype[Any]
    encoding: EncodePlan
    scratch: int
    phase: int = 0
    direct: bool = False
    host_decodes: bool = True


def make_device_plan(
    steps: Sequence[Step], chunk: ArrayRepr, host_codecs: Sequence[Codec], device: Device, *, strict: bool
) -> tuple[DevicePlan, tuple[Placement, ...]]:
    """Distribute a chain. host_codecs: the same steps on the host.

    Raises: DeviceError in strict mode, if a step of decoding would run on the host. That encoding would, writes say.
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
    encoding, encoded_on_host = _make_encode_plan(steps, n_folded, host_codecs, device)
    plan = DevicePlan(
        host=tuple(host_codecs[max(split, 0) :]),
        device=on_device,
        strides=_strides(steps[:n_folded], chunk),
        stored=stored,
        chunk=chunk,
        encoded=last.encoded.dtype if last is not None and isinstance(last.encoded, ArrayRepr) else chunk.dtype,
        encoding=encoding,
        scratch=4 if any(s.spec.name in ("zstd", "blosc", "numcodecs.zstd") for s in steps[:split]) else 1,
        host_decodes=not any("nvcomp" in s.spec.name for s in steps),
    )
    placement = _placements(steps, split, n_folded, reasons, device)
    return plan, tuple(
        row._replace(why=f"{row.why}; encoded on the host: {why}") if why and row.where == device.name else row
        for row, why in zip(placement, (*encoded_on_host, None), strict=True)
    )


def _make_encode_plan(
    steps: Sequence[Step], n_folded: int, host_codecs: Sequence[Codec], device: Device
) -> tuple[EncodePlan, list[str | None]]:
    """Distribute a chain for encoding. Returns: (the plan; for each step why it is encoded on the host, if it is)."""
    encoders: list[WaveEncoder] = []
    why: list[str | None] = [None] * len(steps)
    split, reason, compresses = n_folded, "", False
    for step in steps[n_folded:]:
        factory = ENCODERS.get(step.spec.name)
        encoder = factory(step, device) if factory is not None else None
        if encoder is None:
            unfit = why_on_host(encoding_filter_for(step)) or _UNFIT
            reason = "the device has no encoder for it" if factory is None else unfit
            break
        if isinstance(step.spec, BytesCodec) and split > n_folded:
            encoder = swapped(step, encoder)
        compresses = compresses or not isinstance(step.spec, BytesCodec)
        encoders.append(encoder)
        split += 1
    if split == len(steps):
        return EncodePlan(tuple(encoders), (), None, compresses, None), why
    why[split:] = [f"{steps[split].spec.name} comes before it"] * (len(steps) - split)
    why[split] = reason
    obstacle = f"codec {steps[split].spec.name!r} does not encode on {device.name}: {reason}"
    if not compresses:  # there is nothing to gain from the device
        why[:split] = [f"{steps[split].spec.name} comes after it"] * split
        return EncodePlan((), tuple(host_codecs), None, False, obstacle), why
    return EncodePlan(tuple(encoders), tuple(host_codecs[split:]), steps[split].decoded, True, obstacle), why


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
            reasons.append(why_on_host(filter_for(step)) or _UNFIT)
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
