"""What advice is: findings, changes, gains, as data and as text; and carrying it out through the copy engine."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gzarr.advising.model import Cost
from gzarr.codecs.spec import CodecSpec
from gzarr.copying.report import TransferReport
from gzarr.copying.transfer import transfer
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.presets import AccessPattern

_NOTHING = "nothing to change"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        about: "chunks", "shards", "codec", "shuffle", "filters", "checksum", "dtype" or "data".
        text: what is so, and why it matters, with numbers.
        change: what to change, or None if nothing need or can be.
    """

    about: str
    text: str
    change: str | None = None

    def __str__(self) -> str:
        return f"{self.about}: {self.text}" + (f" -> {self.change}" if self.change else "")


@dataclass(frozen=True, slots=True)
class Gain:
    """One number before and after the changes; counted or, where bytes and streams are concerned, estimated.

    Attributes:
        unit: what is counted.
        before, after: the numbers, of the read for which they are worst.
    """

    unit: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """How many times less is after than before; 1 for no difference."""
        return self.before / self.after if self.after else float(self.before == 0) or float("inf")


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """How one array is best stored for a GPU to read it in one way. Prints as a report.

    Attributes:
        name: the array.
        summary: its shape, dtype, chunks, shards and codecs in a line.
        access: how it is read.
        sampled: what was looked at.
        findings: what was found.
        changes: keywords of `gzarr.create_array` and `gzarr.transfer`; empty if nothing should be changed.
        gains: what the changes give, by name: "amplification", "read_amplification", "streams_per_wave", "objects",
            "requests", "host_steps", "stored_nbytes". Empty without changes.
        before: what the reads cost now. after: what they should cost then; the same without changes.
        array: the array.
    """

    name: str
    summary: str
    access: AccessPattern
    sampled: str
    findings: tuple[Finding, ...]
    changes: Mapping[str, Any]
    gains: Mapping[str, Gain]
    before: tuple[Cost, ...]
    after: tuple[Cost, ...]
    array: Array

    def apply(self, dest: Any, *, device: Any = None, dry_run: bool = False, **options: Any) -> TransferReport:
        """Copy the array to a destination with the changes, or as it is if there are none, through the copy engine.

        dest: a path, URL, store or group. device: where chunks are decoded and encoded, as in `gzarr.open`.
        dry_run: only say what would be done. options: of `gzarr.transfer`; they win over the advice.
        Raises: CopyError, MetadataError.
        """
        return transfer(self.array, dest, device=device, dry_run=dry_run, **{**self.changes, **options})

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.summary}"
        if self.before:
            yield f'read as "{self.access}": {", ".join(cost.name for cost in self.before)}'
        yield f"looked at: {self.sampled}"
        yield from (f"- {finding}" for finding in self.findings)
        if not self.changes:
            yield _NOTHING
            return
        yield "change: " + ", ".join(f"{name}={_shown(value)}" for name, value in self.changes.items())
        yield "estimated, for the read that is worst:"
        width = max(len(gain.unit) for gain in self.gains.values())
        for gain in self.gains.values():
            numbers = f"{_number(gain.before):>12} -> {_number(gain.after):<12} {_times(gain)}"
            yield f"  {gain.unit:<{width}}  {numbers}".rstrip()


@dataclass(frozen=True, slots=True, repr=False)
class GroupAdvice:
    """Advice on every array of a group. Prints as a report.

    Attributes:
        members: advice by path of the array in the group.
        group: the group.
    """

    members: Mapping[str, Advice]
    group: Group

    @property
    def changes(self) -> dict[str, Mapping[str, Any]]:
        """The changes by path, of the arrays that have any."""
        return {path: advice.changes for path, advice in self.members.items() if advice.changes}

    @property
    def gains(self) -> dict[str, Mapping[str, Gain]]:
        """The gains by path, of the arrays that have any."""
        return {path: advice.gains for path, advice in self.members.items() if advice.changes}

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """The findings by path."""
        return {path: advice.findings for path, advice in self.members.items()}

    def apply(self, dest: Any, *, device: Any = None, dry_run: bool = False, **options: Any) -> TransferReport:
        """Copy the group to a destination, each array with its changes; options win over them. See `Advice.apply`."""
        each = {path: {k: v for k, v in found.items() if k not in options} for path, found in self.changes.items()}
        return transfer(self.group, dest, device=device, dry_run=dry_run, each=each, **options)

    def __repr__(self) -> str:
        if not self.members:
            return f"{self.group.store_path}: no arrays"
        return "\n\n".join(map(repr, self.members.values()))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _shown(value: Any) -> str:
    if isinstance(value, CodecSpec):
        return f"{value.name}({', '.join(f'{k}={v}' for k, v in value.configuration().items())})"
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _times(gain: Gain) -> str:
    ratio = gain.ratio
    if ratio in (0, float("inf")) or abs(ratio - 1) < 0.05:
        return ""
    return f"({ratio:.1f} times less)" if ratio > 1 else f"({1 / ratio:.1f} times more)"
