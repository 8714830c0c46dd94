"""Advice as data and as text: findings, changes and gains. Applies it through a copy."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from gzarr.chunk_io.prepare import find_shardings
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.copying.planning import TransferKeywords, check_copy
from gzarr.copying.report import TransferReport
from gzarr.copying.transfer import transfer
from gzarr.devices import gpu_placement
from gzarr.errors.escaping import as_lines, escaped
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.presets import STREAM_NBYTES, AccessPattern, gpu_compressor
from gzarr.metadata.documents import split_codecs
from gzarr.metadata.model import ArrayMeta


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about an array.

    Attributes
    ----------
    about : {"chunks", "shards", "codec", "shuffle", "filters", "checksum", "dtype", "data"}
        What the observation concerns.
    text : str
        The observation and why it matters, with numbers.
    change : str or None
        What to change, if anything.
    """

    about: str
    text: str
    change: str | None = None

    def __str__(self) -> str:
        return escaped(f"{self.about}: {self.text}" + (f": {self.change}" if self.change else ""))


@dataclass(frozen=True, slots=True)
class Gain:
    """One number before and after the changes. Stored bytes and streams are estimates; other numbers are counts.

    Attributes
    ----------
    unit : str
        What is counted.
    before, after : float
        The numbers, for the worst read.
    """

    unit: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """``before`` divided by ``after``; 1 for no difference."""
        return self.before / self.after if self.after else float(self.before == 0) or float("inf")


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """How to store one array for one access pattern of a GPU. Prints as a report.

    Attributes
    ----------
    name : str
        Name of the array.
    summary : str
        Its shape, dtype, chunks, shards and codecs in a line.
    access : {"volume", "batch", "plane", "random"}
        How it is read.
    findings : tuple of Finding
        Observations.
    changes : mapping
        Keywords of `gzarr.create_array` and `gzarr.transfer`; empty if nothing should change.
    gains : mapping of str to Gain
        Effects of the changes: "amplification", "streams", "chunks", "objects", "index", "host_steps" and
        "stored_nbytes"; empty without changes. Stored bytes are left out if no data were looked at.
    array : Array
        The array.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array(shape=(512, 512), chunks=(8, 8), dtype="i4")
    >>> advice = gzarr.advise(z, access="volume")
    >>> advice.changes["chunks"]
    (256, 256)
    >>> advice.gains["objects"].before
    4096
    """

    name: str
    summary: str
    access: AccessPattern
    findings: tuple[Finding, ...]
    changes: Mapping[str, Any]
    gains: Mapping[str, Gain]
    array: Array

    def apply(self, dest: Any, *, device: str | None = None, **options: Unpack[TransferKeywords]) -> TransferReport:
        """Copy the array to a destination, with the changes if there are any.

        Parameters
        ----------
        dest : path, URL, store or Group
            Where the copy goes.
        device : str, optional
            Where chunks are decoded and encoded, as in `gzarr.transfer`.
        **options
            Keywords of `gzarr.transfer`; they take precedence over the advice.

        Returns
        -------
        TransferReport
            What was done.

        Raises
        ------
        CopyError, MetadataError
            As in `gzarr.transfer`.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.create_array(shape=(512, 512), chunks=(8, 8), dtype="i4")
        >>> report = gzarr.advise(z).apply("memory://better")
        >>> gzarr.open("memory://better").chunks
        (256, 256)
        """
        check_copy(options, TransferKeywords, self.apply)
        keywords: dict[str, Any] = {**self.changes, **options}
        return transfer(self.array, dest, device=device, **keywords)

    def __repr__(self) -> str:
        return as_lines(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.summary}"
        yield from (f"- {finding}" for finding in self.findings)
        if not self.changes:
            yield "nothing to change"
            return
        yield "change: " + ", ".join(f"{name}={_shown(value)}" for name, value in self.changes.items())
        yield f'estimated, for the worst read of "{self.access}":'
        width = max(len(gain.unit) for gain in self.gains.values())
        for gain in self.gains.values():
            numbers = f"{as_number(gain.before):>12} -> {as_number(gain.after):<12} {_times(gain)}"
            yield f"  {gain.unit:<{width}}  {numbers}".rstrip()


@dataclass(frozen=True, slots=True, repr=False)
class GroupAdvice:
    """Advice on every array of a group. Prints as a report.

    Attributes
    ----------
    members : mapping of str to Advice
        Advice by path of the array in the group.
    group : Group
        The group.

    Examples
    --------
    >>> import gzarr
    >>> group = gzarr.group()
    >>> z = group.create_array("z", shape=(512, 512), chunks=(8, 8), dtype="i4")
    >>> gzarr.advise(group).changes["z"]["chunks"]
    (256, 256)
    """

    members: Mapping[str, Advice]
    group: Group

    @property
    def changes(self) -> dict[str, Mapping[str, Any]]:
        """Changes by path, for the arrays that have any."""
        return {path: advice.changes for path, advice in self.members.items() if advice.changes}

    @property
    def gains(self) -> dict[str, Mapping[str, Gain]]:
        """Gains by path, for the arrays that have any."""
        return {path: advice.gains for path, advice in self.members.items() if advice.changes}

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """Findings by path."""
        return {path: advice.findings for path, advice in self.members.items()}

    def apply(self, dest: Any, *, device: str | None = None, **options: Unpack[TransferKeywords]) -> TransferReport:
        """Copy the group to a destination, each array with its changes.

        Parameters
        ----------
        dest, device, **options
            As in `Advice.apply`.

        Returns
        -------
        TransferReport
            What was done.

        Raises
        ------
        CopyError, MetadataError
            As in `gzarr.transfer`.
        """
        check_copy(options, TransferKeywords, self.apply)
        each = {path: {k: v for k, v in own.items() if k not in options} for path, own in self.changes.items()}
        given: dict[str, Any] = {**options}
        for path, asked in (given.pop("each", None) or {}).items():
            each[path] = {**each.get(path, {}), **asked}
        return transfer(self.group, dest, device=device, each=each, **given)

    def __repr__(self) -> str:
        if not self.members:
            return escaped(f"{self.group.store_path}: no arrays")
        return "\n\n".join(map(repr, self.members.values()))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _shown(value: Any) -> str:
    if isinstance(value, CodecSpec):
        return f"{value.name}({', '.join(f'{k}={v}' for k, v in value.configuration().items())})"
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list) else str(value)


def as_number(value: float) -> str:
    """A number with two decimals if it is small."""
    return f"{value:,.0f}" if value >= 100 or round(value, 2) == int(value) else f"{value:.2f}"


def _times(gain: Gain) -> str:
    ratio = gain.ratio
    if ratio in (0, float("inf")) or abs(ratio - 1) < 0.05:
        return ""
    return f"({100 / ratio:.2g} % of before)" if ratio > 1 else f"({1 / ratio:.1f} times as much)"


# -- chains of codecs --------------------------------------------------------------------------------------------------

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
    # single fields of records are read and written on the device, with the same codecs
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
