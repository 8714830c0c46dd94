"""The command ``gzarr advise``."""

import json
import math
import statistics
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import typer

import gzarr
from gzarr.cli.options import ArrayPath, AsJson, Device, IfExists, Memory, NodePath, command, misuse, open_array
from gzarr.errors import MetadataError
from gzarr.errors.escaping import escaped

#: `gzarr.hierarchy.presets.AccessPattern`, which takes too long to import for a help text.
Access: TypeAlias = Literal["batch", "plane", "volume", "random"]


@command("Speed")
def advise(
    path: NodePath,
    access: Annotated[Access, typer.Option(help="How it is read.")] = "volume",
    apply: Annotated[str | None, typer.Option(metavar="DST", help="Copy it there with the changes.")] = None,
    device: Device = None,
    if_exists: Annotated[
        IfExists | None, typer.Option(help="What happens to data at DST. By default, an error.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what --apply would do.")] = False,
) -> None:
    """Recommend how to store an array or a group for a GPU, and store it that way.

    Examples
    --------
    $ gzarr advise data.zarr --access batch
    $ gzarr advise data.zarr --access plane --apply better.zarr
    """
    given = {"--device": device, "--if-exists": if_exists, "--dry-run": dry_run}
    for option, value in given.items() if apply is None else ():
        if value:
            raise misuse("only with --apply", option)
    advice = gzarr.advise(path, access)
    print(advice)
    if apply is not None:
        done = advice.apply(apply, device=device or "cpu", if_exists=if_exists or "raise", dry_run=dry_run)
        print(f"\n{done}")


# -- benchmarks --------------------------------------------------------------------------------------------------------

#: Reads of each kind: a median of fewer jumps.
_AT_LEAST, _AT_MOST = 3, 1000


class Timing(NamedTuple):
    """How long one kind of read takes.

    Attributes
    ----------
    what : str
        What is read.
    shape : tuple of int
        Its shape.
    nbytes : int
        Its decoded size.
    seconds : float
        The median time.
    runs : int
        How many reads were timed.
    """

    what: str
    shape: tuple[int, ...]
    nbytes: int
    seconds: float
    runs: int


@command("Speed")
def bench(
    path: ArrayPath,
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long each kind of read is repeated.")] = 1.0,
    memory: Memory = 256,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where chunks are decoded: auto, cpu, cuda.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Time reads of an array: one element, one chunk, planes along each axis, a large part.

    Every read is at another place. The first one of each kind is not counted. Files that were read lately are in
    memory, so that small arrays say how fast chunks are decoded, not how fast the disk is.

    Examples
    --------
    $ gzarr bench data.zarr/temperature
    $ gzarr bench data.zarr/temperature --device cuda --json
    """
    array = open_array(path, device)
    if not array.size:
        raise MetadataError(f"{array.store_path} has no elements to read")
    timings = [_time(array, what, shape, seconds) for what, shape in _kinds(array, memory << 20)]
    if as_json:
        print(json.dumps({"device": array.device, "reads": [timing._asdict() for timing in timings]}, indent=2))
        return
    from gzarr.display.info import size_text

    print(escaped(f"{array.store_path} on {array.device}: {array.shape} {array.dtype}, chunks {array.chunks}"))
    for timing in timings:
        rate = f"{timing.nbytes / timing.seconds / 1e6:,.0f} MB/s"
        took = f"{timing.seconds * 1e3:,.2f} ms"
        size = size_text(timing.nbytes)
        print(f"  {escaped(timing.what):<20}{timing.shape!s:<24}{size:>11}{took:>14}{rate:>14}  ({timing.runs} reads)")


def _kinds(array: "gzarr.Array", most_nbytes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What is read: names and shapes; none is larger than a number of bytes."""
    from gzarr.hierarchy.presets import halved  # with NumPy, which the help does without

    shape, one, most = array.shape, (1,) * array.ndim, most_nbytes // array.itemsize
    yield "one element", one
    chunk = tuple(min(c, n) for c, n in zip(array.chunks, shape, strict=True))
    if array.ndim and chunk != shape:
        yield "one chunk's worth", chunk
    names = array.dimension_names or (None,) * array.ndim
    for axis, name in enumerate(names if array.ndim > 1 else ()):
        plane = [1 if i == axis else n for i, n in enumerate(shape)]
        yield f"across {name or f'axis {axis}'}", tuple(halved(plane, most))
    yield "as much as fits", tuple(halved([*shape], most))


def _time(array: "gzarr.Array", what: str, shape: tuple[int, ...], seconds: float) -> Timing:
    """Read boxes of a shape, at places that are spread over the array."""
    import numpy as np

    generator = np.random.default_rng(0)
    room = [extent - length + 1 for extent, length in zip(array.shape, shape, strict=True)]
    times: list[float] = []
    began = time.perf_counter()
    while len(times) <= _AT_LEAST or (time.perf_counter() - began < seconds and len(times) < _AT_MOST):
        starts = [int(generator.integers(n)) for n in room]
        box: Any = tuple(slice(start, start + n) for start, n in zip(starts, shape, strict=True))
        before = time.perf_counter()
        values = array[box]
        if hasattr(values, "get"):  # on a device, which is asked to be done
            values.get()
        times.append(time.perf_counter() - before)
    return Timing(what, shape, math.prod(shape) * array.itemsize, statistics.median(times[1:]), len(times) - 1)
