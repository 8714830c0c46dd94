"""Finds the steps of a codec chain that a GPU leaves to the host, and a chain without such steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gzarr.chunk_io.prepare import find_shardings
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.devices import gpu_placement
from gzarr.hierarchy.presets import STREAM_NBYTES, gpu_compressor
from gzarr.metadata.model import ArrayMeta
from gzarr.metadata.parts import split_codecs

#: Checksums; those that a GPU verifies stay in a chain.
CHECKSUMS = frozenset({"crc32c", *(f"numcodecs.{n}" for n in ("crc32c", "crc32", "adler32", "fletcher32"))})
BLOSC = ("blosc", "numcodecs.blosc")
#: Codecs that only group bytes of equal significance.
_SHUFFLES = frozenset({"numcodecs.shuffle"})


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step that a GPU leaves to the host, and why."""

    spec: CodecSpec
    why: str


def specs_of(meta: ArrayMeta) -> tuple[CodecSpec, ...]:
    """The codecs of the innermost chunks."""
    return find_shardings(meta.codecs, len(meta.shape))[1]


def host_steps(specs: Sequence[CodecSpec], chunk: ArrayRepr) -> list[HostStep]:
    """The steps that a GPU would leave to the host, in encoding order."""
    steps = prepare(specs, chunk)
    on_host = []
    # single fields of records are read on the device, with the same codecs
    for step, placed in zip(steps, gpu_placement(steps, chunk, whole_records=False), strict=False):
        spec = step.spec
        if placed.where == "host":
            on_host.append(HostStep(spec, placed.why))
        elif spec.name in BLOSC and spec.configuration().get("cname") == "blosclz":  # which nvCOMP lacks
            on_host.append(HostStep(spec, "the device has no blosclz"))
    return on_host


def on_device(specs: tuple[CodecSpec, ...], chunk: ArrayRepr) -> tuple[CodecSpec, ...]:
    """A lossless chain without steps on the host: filters are left out, other codecs replaced.

    The chunk has a dtype that exists on GPUs.
    """
    for _ in range(len(specs) + 1):
        on_host = host_steps(specs, chunk)
        if not on_host:
            break
        at = next(i for i, step in enumerate(prepare(specs, chunk)) if step.spec == on_host[0].spec)
        specs = _without(specs, at, chunk)
    return specs


def _without(specs: tuple[CodecSpec, ...], at: int, chunk: ArrayRepr) -> tuple[CodecSpec, ...]:
    spec = specs[at]
    rest = (*specs[:at], *specs[at + 1 :])
    makes_bytes = spec.kind == "any" and isinstance(prepare(specs, chunk)[at].decoded, ArrayRepr)
    if spec.kind == "array_bytes" or makes_bytes:
        rest = tuple(s for s in rest if s.kind == "array_array")
        return with_compressor(complete(rest, chunk, default_serializer=_bytes(specs, chunk)))
    if spec.kind == "array_array" or spec.name in CHECKSUMS | _SHUFFLES:
        return complete(rest, chunk, default_serializer=_bytes(specs, chunk))
    return with_compressor(rest)


def _bytes(specs: Sequence[CodecSpec], chunk: ArrayRepr) -> BytesCodec:
    known = next((s for s in specs if isinstance(s, BytesCodec)), None)
    return BytesCodec("little" if chunk.dtype.isnative else None) if known is None else known


def with_compressor(specs: Sequence[CodecSpec]) -> tuple[CodecSpec, ...]:
    """A chain with the compressor that suits GPUs, and with its checksums."""
    before = [s for s in specs if s.kind not in {"bytes_bytes", "any"}]
    checksums = [s for s in specs if s.name in CHECKSUMS]
    return (*before, gpu_compressor(), *checksums)


def is_shuffled(specs: Sequence[CodecSpec]) -> bool:
    """Whether a chain groups bytes of equal significance."""
    by_blosc = [s.configuration().get("shuffle") not in (0, "noshuffle") for s in specs if s.name in BLOSC]
    return any(by_blosc) or any(s.name in _SHUFFLES for s in specs)


def compressors_of(specs: Sequence[CodecSpec]) -> list[CodecSpec]:
    """The compressors of a chain."""
    kinds = ("bytes_bytes", "any")
    return [s for s in specs if s.kind in kinds and s.name not in CHECKSUMS | _SHUFFLES]


def chain_keywords(meta: ArrayMeta, specs: tuple[CodecSpec, ...]) -> dict[str, Any]:
    """Keywords of the creation functions for a chain of codecs."""
    filters, serializer, compressors = split_codecs(replace(meta, codecs=specs))
    if meta.zarr_format == 2:
        return {"filters": list(filters), "compressor": compressors[0] if compressors else None}
    return {"filters": list(filters), "serializer": serializer, "compressors": list(compressors)}


def streams_of(specs: Sequence[CodecSpec], chunk_nbytes: float) -> float:
    """About how many streams a GPU decodes for a chunk: Blosc cuts it, other compressors do not; 0 without any."""
    blosc = any(spec.name in BLOSC for spec in specs)
    return max(chunk_nbytes / STREAM_NBYTES, 1.0) if blosc else float(bool(compressors_of(specs)))
