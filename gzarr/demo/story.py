"""The demo from beginning to end: write the relief of the Earth as Zarr, read windows back, check, time and draw."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt

import gzarr
from gzarr.demo.relief import Relief, load_relief
from gzarr.demo.throughput import Rate, measure
from gzarr.demo.windows import Answers, make_windows
from gzarr.errors import GzarrError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Form:
    """One way of storing the relief.

    Attributes:
        name: short name, for tables.
        filename: directory that holds the group.
        title: what it is, in words.
        zarr_format: 2 or 3.
        options: how `create_array` lays out and compresses the heights.
    """

    name: str
    filename: str
    title: str
    zarr_format: int
    options: dict[str, Any]


def make_forms() -> tuple[Form, Form]:
    """Sharded Zarr v3 with zstd, and Zarr v2 with Blosc (lz4 after a byte shuffle)."""
    zstd = gzarr.codecs.ZstdCodec(level=3)
    blosc = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
    # 135 x 180 cells are 49 kB: small enough for a window to skip most of the grid, large enough to compress.
    # A shard is a quarter of the grid and holds 12 such chunks.
    sharded = {"chunks": (135, 180), "shards": (270, 540), "compressors": zstd}
    plain = {"chunks": (135, 180), "compressors": blosc}
    return (
        Form("v3", "relief-v3.zarr", "Zarr v3, 12 zstd chunks to a shard", 3, sharded),
        Form("v2", "relief-v2.zarr", "Zarr v2, Blosc chunks (lz4, byte shuffle)", 2, plain),
    )


def run_demo(out: Path, device: str = "auto", *, tiles: int = 8, say: Say = print) -> Answers:
    """Tell the whole story, one line after the other.

    Args:
        out: directory for the arrays and the picture; made if it is missing, older output in it is replaced.
        device: the device of the opened arrays, where reads arrive: "auto", "cpu", "cuda", "cuda:1".
        tiles: throughput is measured on a grid of ``tiles`` x ``tiles`` copies of the relief.
        say: takes each line of the report.

    Returns: the windows that were read from the v3 array.
    Raises: GzarrError if an answer differs from the source; whatever reading and writing raise.
    """
    relief = load_relief()
    forms = make_forms()
    out.mkdir(parents=True, exist_ok=True)
    _say_source(relief, say)
    say("\n2. Written as Zarr, twice")
    for form in forms:
        write_form(out / form.filename, form, relief, device)
        _say_form(out, form, say)
    say("\n3. Windows read back")
    answers = [read_form(out / form.filename, device, relief.heights) for form in forms]
    used = _say_windows(out, forms, device, answers[0], say)
    say(f"\n4. Throughput on {used}")
    _say_rates([(form, measure(out, relief.heights, form, device, tiles)) for form in forms], tiles, relief, say)
    say("\n5. A picture of what was read")
    _say_picture(out / "relief.png", answers[0], used, say)
    return answers[0]


def write_form(path: Path, form: Form, relief: Relief, device: str) -> None:
    """Write the heights, their coordinates and what they mean as one group, replacing what is there."""
    root = gzarr.open_group(path, mode="w", zarr_format=form.zarr_format, device=device)
    root.attrs["title"] = "Relief of the surface of the Earth"
    root.attrs["source"] = "NOAA ETOPO20, 20 arc-minutes"
    arrays: tuple[tuple[str, npt.NDArray[Any], tuple[str, ...], str, dict[str, Any]], ...] = (
        ("relief", relief.heights, ("lat", "lon"), "m", form.options),
        ("lat", relief.lat, ("lat",), "degrees_north", {}),
        ("lon", relief.lon, ("lon",), "degrees_east", {}),
    )
    for name, values, dims, units, options in arrays:
        # Format 3 has a field for the names of dimensions; in format 2, xarray looks for an attribute.
        named: dict[str, Any] = {"dimension_names": dims} if form.zarr_format == 3 else {}
        attributes = {"units": units} if form.zarr_format == 3 else {"units": units, "_ARRAY_DIMENSIONS": list(dims)}
        array = root.create_array(
            name=name, shape=values.shape, dtype=values.dtype, attributes=attributes, **named, **options
        )
        array[...] = values


def read_form(path: Path, device: str, source: npt.NDArray[np.int16]) -> Answers:
    """Open the heights on a device, read them whole and by windows, and compare every answer with the source.

    Raises: GzarrError naming the array, the read and the first difference.
    """
    array = gzarr.open_group(path, mode="r", device=device)["relief"]
    whole = to_host(array[...])
    check_equal(f"{path}, relief[...]", whole, source)
    answers = [whole]
    for window in make_windows():
        answer = to_host(window.read(array))
        check_equal(f"{path}, {window.call}", answer, window.expected(source))
        answers.append(answer)
    return Answers(*answers)


def to_host(values: Any) -> npt.NDArray[Any]:
    """Copy what a read returned into host memory: CuPy arrays have ``get``, NumPy arrays stay as they are."""
    return np.asarray(values.get() if hasattr(values, "get") else values)


def check_equal(what: str, answer: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Raise GzarrError unless two arrays agree in dtype, shape and every element."""
    if answer.dtype != expected.dtype or answer.shape != expected.shape:
        found, wanted = f"{answer.dtype} {answer.shape}", f"{expected.dtype} {expected.shape}"
        raise GzarrError(f"{what}: expected {wanted}, got {found}; this is a bug in gzarr, please report it")
    wrong = np.argwhere(answer != expected)
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise GzarrError(
            f"{what}: {len(wrong)} of {expected.size} elements differ from the source, first at {at}: "
            f"expected {expected[at]}, got {answer[at]}; this is a bug in gzarr, please report it"
        )


def _say_source(relief: Relief, say: Say) -> None:
    heights = relief.heights
    rows, cols = heights.shape
    say(f"gzarr {gzarr.__version__}: the relief of the Earth, into Zarr and back")
    say("\n1. The data")
    say(f"   {rows} x {cols} cells of 20 arc-minutes, {heights.dtype}, {heights.nbytes / 1e6:.1f} MB in memory")
    say(f"   heights from {heights.min()} m to {heights.max()} m (NOAA ETOPO20, public domain)")


def _say_form(out: Path, form: Form, say: Say) -> None:
    path = out / form.filename
    files = [file for file in (path / "relief").rglob("*") if file.is_file()]
    root = gzarr.open_group(path, mode="r")
    say(f"\n   {path}")
    say(f"   {form.title}: {root['relief'].nbytes_stored / 1e6:.2f} MB in {len(files)} files")
    say(_indent(str(root.tree())))
    say("")
    say(_indent(str(root["relief"].info)))


def _say_windows(out: Path, forms: tuple[Form, ...], device: str, answers: Answers, say: Say) -> str:
    """Print the windows and where the steps of reading run. Returns: the device used."""
    windows = make_windows()
    shown = (answers.region, answers.overview, answers.parallels, answers.places)
    width = max(len(window.call) for window in windows)
    stored = " and ".join(form.name for form in forms)
    rows = [("relief[...]", "The whole Earth", answers.whole)]
    rows += [(window.call, window.name, values) for window, values in zip(windows, shown, strict=True)]
    for call, name, values in rows:
        shape = " x ".join(str(length) for length in values.shape)
        say(f"   {call:{width}}  {name:26}  {shape:>10}  equals the source ({stored})")
    used = ""
    for form in forms:
        array = gzarr.open_group(out / form.filename, mode="r", device=device)["relief"]
        used = str(array.device)
        say(f"\n   Where {form.name} reads run (array.placement)")
        say(_indent(str(array.placement)))
    return used


def _say_rates(rates: list[tuple[Form, Rate]], tiles: int, relief: Relief, say: Say) -> None:
    nbytes = relief.heights.nbytes * tiles**2
    say(f"   {tiles} x {tiles} copies of the relief, {nbytes / 1e6:.0f} MB; files in the page cache; medians")
    say(f"   {'':42}  {'write':>10}  {'read':>10}  {'stored':>7}")
    for form, rate in rates:
        write, read = nbytes / 1e6 / rate.write_s, nbytes / 1e6 / rate.read_s
        say(f"   {form.title:42}  {write:5.0f} MB/s  {read:5.0f} MB/s  {rate.nbytes_stored / nbytes:6.0%}")


def _say_picture(path: Path, answers: Answers, device: str, say: Say) -> None:
    if importlib.util.find_spec("PIL") is None:
        say("   not drawn: Pillow is missing; pip install 'gzarr[demo]' adds it")
        return
    from gzarr.demo.picture import save_picture

    rows, cols = answers.whole.shape
    cells = f"NOAA ETOPO20, {rows} x {cols} cells."
    save_picture(path, answers, f"{cells} Zarr v3 (sharded) and v2, read on {device}: every window equals the source.")
    say(f"   {path}")


def _indent(text: str) -> str:
    return "\n".join(f"     {line}" for line in text.splitlines())
