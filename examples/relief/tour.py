"""The tour: write the relief of the Earth as Zarr, read windows back, compare them with the source, time both ways."""

from __future__ import annotations

import statistics
import tempfile
import textwrap
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numcodecs
import numpy as np
import numpy.typing as npt

from examples.relief.relief import Heights, Relief, load_relief, windows
from gzarr import GzarrError, create_array, open_array, open_group
from gzarr.codecs import ZstdCodec

Say = Callable[[str], None]
#: How often a grid is written and read; the median counts.
WRITES, READS = 3, 5


class Form(NamedTuple):
    """One way of storing the relief: the name of its group, a title, the format, the keywords of `create_array`."""

    filename: str
    title: str
    zarr_format: int
    options: dict[str, Any]


def make_forms() -> tuple[Form, Form]:
    """Sharded Zarr v3 with zstd, and Zarr v2 with Blosc (lz4 after a byte shuffle)."""
    blosc = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
    # 135 x 180 cells are 49 kB: small enough for a window to skip most of the grid, large enough to compress.
    # A shard is a quarter of the grid and holds 12 such chunks.
    sharded = {"chunks": (135, 180), "shards": (270, 540), "compressors": ZstdCodec(level=3)}
    plain = {"chunks": (135, 180), "compressors": blosc}
    return (
        Form("relief-v3.zarr", "Zarr v3, 12 zstd chunks to a shard", 3, sharded),
        Form("relief-v2.zarr", "Zarr v2, Blosc chunks (lz4, byte shuffle)", 2, plain),
    )


def run_tour(out: Path, device: str = "auto", *, tiles: int = 8, say: Say = print) -> list[Heights]:
    """Run the whole tour.

    Parameters
    ----------
    out
        Directory for the arrays. It is created if missing; older output in it is replaced.
    device
        Where the arrays are opened: "auto", "cpu", "cuda", "cuda:1".
    tiles
        Throughput is measured on a grid of ``tiles`` x ``tiles`` copies of the relief.
    say
        Takes each line of the report.

    Returns
    -------
    list of numpy.ndarray
        The windows read from the v3 array, in host memory, in the order of `examples.relief.relief.windows`.

    Raises
    ------
    GzarrError
        If a window differs from the source.
    """
    relief, forms = load_relief(), make_forms()
    out.mkdir(parents=True, exist_ok=True)
    rows, columns = relief.heights.shape
    say(f"1. The data: an elevation map of the Earth (NOAA ETOPO20), {rows} x {columns} cells, {relief.heights.dtype}")
    say("\n2. Written as Zarr, twice")
    for form in forms:
        write_form(out / form.filename, form, relief, device)
        _say_form(out / form.filename, form, say)
    say("\n3. Windows read back")
    answers, _ = (read_form(out / form.filename, device, relief.heights) for form in forms)
    for window, values in zip(windows(), answers, strict=True):
        shape = " x ".join(map(str, values.shape))
        say(f"   {window.call:34}  {window.name:26}  {shape:>10}  equals the source (v3 and v2)")
    array = open_group(out / forms[0].filename, mode="r", device=device)["relief"]
    say(f"\n   Where v3 reads run (array.placement)\n{textwrap.indent(str(array.placement), '     ')}")
    nbytes = relief.heights.nbytes * tiles**2
    say(f"\n4. Throughput on {array.device}: {tiles} x {tiles} copies, {nbytes / 1e6:.0f} MB, page cache, medians")
    for form in forms:
        write_s, read_s, stored = measure(out, relief.heights, form, device, tiles)
        rates = f"write {nbytes / 1e6 / write_s:5.0f} MB/s  read {nbytes / 1e6 / read_s:5.0f} MB/s"
        say(f"   {form.title:42}  {rates}  stored {stored / nbytes:.0%}")
    return answers


def write_form(path: Path, form: Form, relief: Relief, device: str) -> None:
    """Write the heights, their coordinates and their attributes as one group, replacing what is there."""
    root = open_group(path, mode="w", zarr_format=form.zarr_format, device=device)
    root.attrs.update(title="Relief of the surface of the Earth", source="NOAA ETOPO20, 20 arc-minutes")
    arrays: tuple[tuple[str, npt.NDArray[Any], tuple[str, ...], str, dict[str, Any]], ...] = (
        ("relief", relief.heights, ("lat", "lon"), "m", form.options),
        ("lat", relief.lat, ("lat",), "degrees_north", {}),
        ("lon", relief.lon, ("lon",), "degrees_east", {}),
    )
    for name, values, dims, units, options in arrays:
        # Format 3 has a field for the names of dimensions; in format 2, xarray looks for an attribute.
        named: dict[str, Any] = {"dimension_names": dims} if form.zarr_format == 3 else {}
        attributes = {"units": units} if named else {"units": units, "_ARRAY_DIMENSIONS": list(dims)}
        root.create_array(name, data=values, attributes=attributes, **named, **options)


def read_form(path: Path, device: str, source: Heights) -> list[Heights]:
    """Read every window of the heights on a device, and compare it with the source.

    Returns: the windows in host memory. Raises: GzarrError naming the array, the read and the first difference.
    """
    array = open_group(path, mode="r", device=device)["relief"]
    answers = []
    for window in windows():
        read = window.read(array)
        answers.append(read.get() if hasattr(read, "get") else read)
        check_equal(f"{path}, {window.call}", answers[-1], source[window.key])
    return answers


def check_equal(what: str, answer: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Raise GzarrError unless two arrays agree in dtype, shape and every element."""
    fault = ""
    if answer.dtype != expected.dtype or answer.shape != expected.shape:
        fault = f"expected {expected.dtype} {expected.shape}, got {answer.dtype} {answer.shape}"
    elif len(wrong := np.argwhere(answer != expected)):
        at = tuple(wrong[0].tolist())
        fault = f"{len(wrong)} of {expected.size} elements differ from the source, first at {at}: "
        fault += f"expected {expected[at]}, got {answer[at]}"
    if fault:
        raise GzarrError(f"{what}: {fault}; this is a bug in gzarr, please report it")


def measure(out: Path, heights: Heights, form: Form, device: str, tiles: int) -> tuple[float, float, int]:
    """Write and read ``tiles`` x ``tiles`` copies of the heights in a temporary directory.

    Returns: median seconds of whole writes from host memory and of whole reads to the device, bytes stored.
    """
    grid = np.tile(heights, (tiles, tiles))
    with tempfile.TemporaryDirectory(dir=out, prefix="throughput-") as scratch:
        path = Path(scratch) / "grid.zarr"
        create_array(path, shape=grid.shape, dtype=grid.dtype, zarr_format=form.zarr_format, **form.options)
        array = open_array(path, mode="r+", device=device)
        write_s = median_s(lambda: array.__setitem__(..., grid), WRITES)
        read_s = median_s(lambda: wait_for(array[...]), READS)
        return write_s, read_s, array.nbytes_stored


def median_s(task: Callable[[], object], repeats: int) -> float:
    """Median duration of a task in seconds, after one run that does not count."""
    return statistics.median(timeit.repeat(task, number=1, repeat=repeats + 1)[1:])


def wait_for(values: Any) -> None:
    """Wait until an array is complete: a CuPy array may still be on its way when a call returns."""
    synchronize = getattr(getattr(values, "device", None), "synchronize", None)
    if synchronize is not None:
        synchronize()


def _say_form(path: Path, form: Form, say: Say) -> None:
    files = sum(file.is_file() for file in (path / "relief").rglob("*"))
    root = open_group(path, mode="r")
    say(f"\n   {path}: {form.title}, {root['relief'].nbytes_stored / 1e6:.2f} MB in {files} files")
    say(textwrap.indent(str(root.tree()), "     "))
