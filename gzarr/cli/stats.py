"""The commands ``gzarr stats`` and ``gzarr histogram``."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from gzarr.cli.options import (
    ArrayPath,
    AsJson,
    Device,
    Memory,
    Notes,
    On,
    PartOf,
    Skip,
    Workers,
    colored,
    command,
    engine,
    numbers,
    open_array,
    print_report,
    with_options,
)
from gzarr.display.progress import in_terminal
from gzarr.errors.escaping import escaped

#: Columns of the longest bar.
_BAR = 50


#: An option of commands that show values.
Raw: TypeAlias = Annotated[
    bool, typer.Option("--raw", help="Take elements as they are stored: none is missing, and none is scaled.")
]


class Scale(NamedTuple):
    """What makes values of stored elements (CF conventions, "Packed data"), and their unit."""

    factor: float = 1
    offset: float = 0
    units: str = ""

    @classmethod
    def of(cls, array: Any) -> "Scale":
        """What an array says; nothing of times, which have their unit."""
        if array.dtype.kind in "mM":
            return cls()
        from gzarr.virtual.netcdf4 import attributes_of

        attributes = attributes_of(array.attrs.asdict())
        factor, offset = attributes.get("scale_factor", 1), attributes.get("add_offset", 0)
        if not (isinstance(factor, (int, float)) and isinstance(offset, (int, float)) and factor):
            factor, offset = 1, 0
        return cls(factor, offset, escaped(attributes.get("units", "")))

    def value(self, element: Any) -> Any:
        """The value of an element."""
        return element if (self.factor, self.offset) == (1, 0) else element * self.factor + self.offset


def with_sign(array: Any) -> Any:
    """An array as integers with a sign, or without one, as netCDF's attribute ``_Unsigned`` says."""
    from gzarr.metadata.conventions import UNSIGNED  # with NumPy, which the help does without

    said = str(array.attrs.get(UNSIGNED, "")).lower(), array.dtype.kind
    kind = {("true", "i"): "u", ("false", "u"): "i"}.get(said)
    return array if kind is None else array.view(dtype=array.dtype.str.replace(array.dtype.kind, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsOptions:
    """The options of both commands."""

    skip: Skip = None
    raw: Raw = False
    as_json: AsJson = False
    memory: Memory = 256
    device: Device = None
    on: On = None
    workers: Workers = None
    part: PartOf = None
    notes: Notes = None

    def opened(self, path: str) -> tuple[Any, Scale]:
        """The array, and what makes values of its elements."""
        array = open_array(path, self.device or "cpu")
        return (array, Scale()) if self.raw else (with_sign(array), Scale.of(array))

    def stats(self, array: Any, *of: Any) -> Any:
        """The statistics of an array."""
        skip, run_by = self.skip, engine(self.on, self.workers, self.part, self.notes)
        how: Any = {"skip": False if self.raw and skip is None else skip, "progress": in_terminal(), **run_by}
        found = array.stats(*of, max_nbytes=self.memory << 20, **how)
        if skip is not None:
            _tell_counted(array, skip)
        return found


def _tell_counted(array: Any, skip: Any) -> None:
    """Say which elements that an array records as missing are counted, as others are left out."""
    from gzarr.metadata.conventions import missing_data_of

    counted = [str(value) for value in missing_data_of(array.metadata).values if skip is False or value != skip]
    if counted:
        print(f"counted, as --skip says what is missing: {', '.join(counted)}, which the data name", file=sys.stderr)


@command("Look at data")
@with_options(StatsOptions)
def stats(path: ArrayPath, options: StatsOptions) -> None:
    """Print the minimum, maximum, mean and standard deviation of an array of any size.

    Missing data are left out, as the attributes name them, and packed data are unpacked: scale_factor, add_offset.

    Examples
    --------
    $ gzarr stats data.zarr/temperature
    $ gzarr stats data.zarr/temperature --json
    $ gzarr stats heights.zarr/0 --skip -9999
    $ gzarr stats data.zarr/temperature --part slurm --notes notes
    """
    array, scale = options.opened(path)
    found = asdict(options.stats(array))
    del found["histogram"]
    found |= {name: scale.value(found[name]) for name in ("min", "max", "mean")}
    found["std"] = found["std"] if scale.factor == 1 else found["std"] * abs(scale.factor)
    if scale.factor < 0:
        found["min"], found["max"] = found["max"], found["min"]
    if options.as_json:
        print(json.dumps({name: _number(value) for name, value in found.items()}, indent=2))
        return
    from gzarr.display.info import Report

    counts = {
        "Elements": found["count"],
        "NaT" if array.dtype.kind in "mM" else "NaN": found["n_nan"],
        "Missing": found["n_missing"],
    }
    values = {"Minimum": "min", "Maximum": "max", "Mean": "mean", "Standard deviation": "std"}
    items = [(name, f"{count:,}") for name, count in counts.items()]
    shown = _text_of(array, scale)
    for name, value in values.items():
        units = scale.units.partition(" since ")[0] if value == "std" else scale.units
        items.append((name, f"{shown(found[value])} {units}".rstrip()))
    print_report(Report(items))


def _text_of(array: Any, scale: Scale) -> Callable[[Any], str]:
    """What writes a value, with as many digits as short floats have."""
    digits = {2: 4, 4: 7}.get(array.dtype.itemsize) if array.dtype.kind == "f" and scale.factor == 1 else None
    return str if digits is None else lambda value: f"{value:.{digits}g}"


@command("Look at data")
@with_options(StatsOptions)
def histogram(
    path: ArrayPath,
    options: StatsOptions,
    bins: Annotated[int, typer.Option(metavar="N", min=1, help="How many bins.")] = 20,
    range: Annotated[
        Any,
        typer.Option(
            parser=numbers, metavar="LOW,HIGH", help="Where the bins begin and end. By default, at the extremes."
        ),
    ] = None,
) -> None:
    """Draw a histogram of an array of any size.

    Examples
    --------
    $ gzarr histogram data.zarr/temperature
    $ gzarr histogram data.zarr/temperature --bins 40 --range 250,310
    """
    if range is not None and (len(range) != 2 or not range[0] < range[1]):
        raise typer.BadParameter("give two numbers, the lower one first", param_hint="--range")
    array, scale = options.opened(path)
    limits = None
    if range is not None:
        one, other = ((end - scale.offset) / scale.factor for end in range)
        limits = min(one, other), max(one, other)
    made = options.stats(array, bins, limits)
    counts, edges = made.histogram[0], scale.value(made.histogram[1])
    if scale.factor < 0:
        counts, edges = counts[::-1], edges[::-1]
    if options.as_json:
        print(json.dumps({"counts": counts.tolist(), "edges": [_number(edge) for edge in edges]}, indent=2))
        return
    if made.count or not array.size:
        _draw(counts, edges, scale.units)
    for name, count in (("NaT" if array.dtype.kind in "mM" else "NaN", made.n_nan), ("missing", made.n_missing)):
        if count:
            print(f"{name}  {count:,}")


def _draw(counts: Any, edges: Any, units: str) -> None:
    """Print a bar for every bin."""
    most = max(int(counts.max()), 1)
    ends = list(map(str, edges)) if edges.dtype.kind in "mM" else [f"{edge:.6g}" for edge in edges.tolist()]
    labels = [f"{low} to {high} {units}".rstrip() for low, high in pairwise(ends)]
    width = max(map(len, labels))
    for label, count in zip(labels, counts.tolist(), strict=True):
        bar = colored("█" * round(count * _BAR / most), "blue")
        print(f"{label:>{width}}  {bar}{' ' if count else ''}{count:,}")


def _number(value: Any) -> Any:
    """A number as JSON has it: NaN and infinities become None, and times text."""
    if getattr(value, "dtype", None) is not None and value.dtype.kind in "mM":
        return str(value)
    plain = value.item() if hasattr(value, "item") else value
    return plain if math.isfinite(plain) else None
