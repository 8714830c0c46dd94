"""Decides, when an array is opened, which steps of its codec chain run on the device and which on the host, and why.

Encoded bytes arrive on the host. If the device lacks a step, the host decodes up to and including that step, because a
download and an upload in between would cost more; its result is uploaded, and the device does the rest. Byte order and
transposes at the end of decoding cost nothing: the placement kernel does them.

Encoding goes the other way. The device encodes up to the first step that it lacks; its result is downloaded, and the
host does the rest. The gathering kernel does transposes at the beginning. The two directions may be split differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.backend import Placement
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import ArrayRepr, Codec, Repr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.errors import DeviceError
from gzarr.gpu.codecs import device_codec
from gzarr.gpu.codecs.batch import Decoder, DeviceCodec, Encoder
from gzarr.gpu.codecs.bytes import NATIVE, stored_dtype
from gzarr.gpu.codecs.refusing import UNFIT
from gzarr.gpu.device.protocol import Device


@dataclass(frozen=True, slots=True, eq=False)
class EncodePlan:
    """How chunks of one shape are encoded.

    Attributes
    ----------
    device : tuple[Encoder, ...]
        Encoders that run on the device first, in encoding order; none if the host does everything.
    host : tuple[Codec, ...]
        Codecs that then run on the host, in encoding order.
    handed : Repr or None
        What the first of these takes.
    compresses : bool
        Whether the device does more than set the byte order.
    obstacle : str or None
        Which step runs on the host, and why; None if none does.
    """

    device: tuple[Encoder, ...]
    host: tuple[Codec, ...]
    handed: Repr | None
    compresses: bool
    obstacle: str | None


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlan:
    """How chunks of one shape are decoded and encoded.

    Attributes
    ----------
    host : tuple[Codec, ...]
        Codecs that run on the host first, in encoding order.
    device : tuple[Decoder, ...]
        Decoders that then run on the device, in decoding order.
    strides : tuple[int, ...]
        Of a decoded chunk in device memory, in elements, for every array axis.
    stored : np.dtype[Any]
        Dtype of decoded chunks in device memory, with their byte order there.
    chunk : ArrayRepr
        The decoded chunk.
    encoded : np.dtype[Any]
        Dtype of the result of the host's part, if it is arrays.
    encoded_nbytes : int or None
        Bytes of every encoded chunk, if the codecs leave no choice.
    encoding : EncodePlan
        The other direction.
    scratch : int
        Bytes of temporary device memory for each decoded byte.
    phase : int
        Where encoded chunks should begin, modulo `gzarr.gpu.codecs.batch.ALIGNMENT`.
    skips_host : bool
        Whether encoded chunks may be read straight to the device.
    host_decodes : bool
        Whether the host has every codec for sure, as no library may be missing.
    """

    host: tuple[Codec, ...]
    device: tuple[Decoder, ...]
    strides: tuple[int, ...]
    stored: np.dtype[Any]
    chunk: ArrayRepr
    encoded: np.dtype[Any]
    encoded_nbytes: int | None
    encoding: EncodePlan
    scratch: int
    phase: int = 0
    skips_host: bool = False
    host_decodes: bool = True

    @property
    def order(self) -> tuple[int, ...]:
        """Array axes in the order of the chunks' memory."""
        return tuple(sorted(range(len(self.strides)), key=lambda axis: -self.strides[axis]))


def make_device_plan(
    steps: Sequence[Step], chunk: ArrayRepr, host_codecs: Sequence[Codec], device: Device, *, strict: bool
) -> tuple[DevicePlan, tuple[Placement, ...]]:
    """Split a chain between host and device. host_codecs: the same steps on the host.

    Raises: DeviceError in strict mode, if the host would have to decode a step. Writes raise it for encoding.
    """
    n_folded = next((i for i, s in enumerate(steps) if not isinstance(s.spec, TransposeCodec)), len(steps))
    codecs = device_codecs(steps, n_folded)
    decoders = _decoders(steps, codecs, device)
    split = next((i for i in range(n_folded, len(steps)) if isinstance(decoders[i], str)), len(steps))
    if strict and split < len(steps):
        raise DeviceError(
            f"codec {steps[split].spec.name!r} does not run on {device.name}: {decoders[split]} (strict=True)"
        )
    last = steps[split - 1] if split else None
    encoding, encoded_on_host = _make_encode_plan(steps, n_folded, host_codecs, device)
    plan = DevicePlan(
        host=tuple(host_codecs[split:]),
        device=tuple(d for d in reversed(decoders[n_folded:split]) if not isinstance(d, str)),
        strides=_strides(steps[:n_folded], chunk),
        stored=_stored(steps[:split], n_folded, chunk),
        chunk=chunk,
        encoded=last.encoded.dtype if last is not None and isinstance(last.encoded, ArrayRepr) else chunk.dtype,
        encoded_nbytes=steps[-1].encoded.nbytes if steps else None,
        encoding=encoding,
        scratch=max((codec.scratch for codec in codecs[:split] if codec is not None), default=1),
        host_decodes=not any(codec is not None and codec.host_may_lack for codec in codecs),
    )
    placement = _placements(steps, split, n_folded, decoders, device)
    return plan, tuple(
        row._replace(why=f"{row.why}; encoded on the host: {why}") if why and row.where == device.name else row
        for row, why in zip(placement, (*encoded_on_host, None), strict=True)
    )


def device_codecs(steps: Sequence[Step], n_folded: int) -> list[DeviceCodec | None]:
    """The device's codec of each step. n_folded: number of transposes at the beginning, which kernels do."""
    codecs = [device_codec(step.spec.name) for step in steps]
    for i, step in enumerate(steps):
        if isinstance(step.spec, BytesCodec) and i > n_folded:
            codecs[i] = NATIVE
    return codecs


def _decoders(steps: Sequence[Step], codecs: Sequence[DeviceCodec | None], device: Device) -> list[Decoder | str]:
    """The decoder of each step, or why the host decodes it."""
    decoders: list[Decoder | str] = []
    streams = False
    for step, codec in zip(steps, codecs, strict=True):
        if codec is None:
            decoders.append("the device has no such codec")
            continue
        decoder = codec.decoder(step, device)
        if codec.takes_streams and not isinstance(decoder, str):
            decoder, streams = UNFIT if streams else decoder, True
        decoders.append(decoder)
    return decoders


def _make_encode_plan(
    steps: Sequence[Step], n_folded: int, host_codecs: Sequence[Codec], device: Device
) -> tuple[EncodePlan, list[str | None]]:
    """Split a chain for encoding. Returns: the plan, and for each step why the host encodes it, or None."""
    encoders: list[Encoder] = []
    why: list[str | None] = [None] * len(steps)
    split, reason, compresses = n_folded, "", False
    for step, codec in zip(steps[n_folded:], device_codecs(steps, n_folded)[n_folded:], strict=True):
        encoder = codec.encoder(step, device) if codec is not None else "the device has no encoder for it"
        if isinstance(encoder, str):
            reason = encoder
            break
        compresses = compresses or not isinstance(step.spec, BytesCodec)
        encoders.append(encoder)
        split += 1
    if split == len(steps):
        return EncodePlan(tuple(encoders), (), None, compresses, None), why
    why[split:] = [f"{steps[split].spec.name} comes before it"] * (len(steps) - split)
    why[split] = reason
    obstacle = f"codec {steps[split].spec.name!r} does not encode on {device.name}: {reason}"
    if not compresses:  # the device would save nothing
        why[:split] = [f"{steps[split].spec.name} comes after it"] * split
        return EncodePlan((), tuple(host_codecs), None, False, obstacle), why
    return EncodePlan(tuple(encoders), tuple(host_codecs[split:]), steps[split].decoded, True, obstacle), why


def _stored(steps: Sequence[Step], n_folded: int, chunk: ArrayRepr) -> np.dtype[Any]:
    """Dtype of decoded chunks in device memory: native, except straight behind the bytes codec."""
    first = steps[n_folded] if len(steps) > n_folded else None
    if first is not None and isinstance(first.spec, BytesCodec):
        return stored_dtype(first)
    if first is None or first.spec.kind == "array_array":
        return chunk.dtype.newbyteorder("=")
    return chunk.dtype


def _strides(transposes: Sequence[Step], chunk: ArrayRepr) -> tuple[int, ...]:
    """Strides of a chunk whose axes are transposed in memory, in elements, by array axis."""
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
    steps: Sequence[Step], split: int, n_folded: int, decoders: Sequence[Decoder | str], device: Device
) -> tuple[Placement, ...]:
    """Where each step is decoded, and why. split: the first step on the host."""
    rows = []
    for i, (step, decoder) in enumerate(zip(steps, decoders, strict=True)):
        if i < split:
            why = "folded into placement" if i < n_folded else "the device has it"
            rows.append(Placement(step.spec.name, device.name, why))
        else:
            why = decoder if isinstance(decoder, str) else f"{steps[split].spec.name} comes after it"
            rows.append(Placement(step.spec.name, "host", why))
    return (*rows, Placement("place", device.name, "the result is on this device"))
