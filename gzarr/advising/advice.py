"""Advice as data and as text: findings, changes and gains. Applies it through a copy."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from gzarr.codecs.spec import CodecSpec
from gzarr.copying.planning import check_copy
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.transfer import transfer
from gzarr.errors.escaping import as_lines, escaped
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.presets import AccessPattern


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
