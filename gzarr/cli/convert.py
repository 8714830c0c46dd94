"""The command ``gzarr convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import gzarr
from gzarr.cli.copy_options import CopyOptions
from gzarr.cli.options import with_options
from gzarr.errors import CopyError

EXAMPLES = (
    "gzarr convert data.h5 data.zarr --chunks 100,100",
    "gzarr convert slide.ome.tif slide.zarr --ome",
    "gzarr convert data.zarr data.nc",
)
_WRITERS = dict.fromkeys((".h5", ".hdf5", ".he5"), "to_hdf5") | dict.fromkeys((".nc", ".nc4"), "to_netcdf")


@with_options(CopyOptions)
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file; or Zarr, if DST ends in .h5 or .nc.")],
    dest: Annotated[str, typer.Argument(metavar="DST", help="Zarr; or a file that ends in .h5 or .nc.")],
    options: CopyOptions,
    format: Annotated[
        Literal["hdf5", "netcdf", "tiff", "npy", "image"] | None,
        typer.Option(help="Format of SRC. By default, it is recognized."),
    ] = None,
    ome: Annotated[
        bool, typer.Option("--ome", help="Write OME-Zarr: axes, voxel sizes, channels, levels (TIFF).")
    ] = False,
    series: Annotated[
        int | None, typer.Option(metavar="N", help="Which image of a file with several. By default, all.")
    ] = None,
) -> None:
    """Convert HDF5, NetCDF, TIFF, .npy, .npz and images to Zarr, or Zarr to HDF5 and NetCDF."""
    suffix = Path(dest).suffix.lower()
    of_tiff: dict[str, Any] = {
        name: value for name, value in {"ome": ome or None, "series": series}.items() if value is not None
    }
    if suffix in _WRITERS:
        _write_file(source, dest, options, given=bool(format or of_tiff))
        return
    if Path(source).is_dir():
        raise CopyError(f"{source!r} is a folder: Zarr can be converted to .h5 and .nc only")
    if of_tiff and (format or gzarr.convert.recognize(source)) != "tiff":
        raise CopyError(f"{source!r} is no TIFF file: leave --{next(iter(of_tiff))} out")
    print(gzarr.convert.from_file(source, dest, format=format, **of_tiff, **options.keywords()))


def _write_file(source: str, dest: str, options: CopyOptions, *, given: bool) -> None:
    """Write an HDF5 or NetCDF file. Raises CopyError if an option is ``given`` that such a file has no use for."""
    suffix = Path(dest).suffix.lower()
    names = ("chunks", "shards", "compressor", "layout", "zarr_format", "dry_run", "resume")
    if given or any(getattr(options, name) for name in names):
        raise CopyError(f"a conversion to {suffix} takes no options but --if-exists")
    if options.if_exists == "skip":
        raise CopyError(f"a conversion to {suffix} takes --if-exists raise or replace")
    write = getattr(gzarr.convert, _WRITERS[suffix])
    write(source, dest, overwrite=options.if_exists == "replace")
    print(f"wrote {dest}")
