"""The command ``gzarr convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import gzarr
from gzarr.cli.commands import command
from gzarr.cli.copy import CopyOptions
from gzarr.cli.options import with_options
from gzarr.errors import CopyError
from gzarr.errors.escaping import escaped

_WRITERS = {
    **dict.fromkeys((".h5", ".hdf5", ".he5"), "to_hdf5"),
    **dict.fromkeys((".nc", ".nc4"), "to_netcdf"),
    **dict.fromkeys((".tif", ".tiff"), "to_tiff"),
}
_SUFFIXES = ".h5, .nc or .tif"


@command("Copy and convert")
@with_options(CopyOptions)
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help=f"A file; or Zarr, if DST ends in {_SUFFIXES}.")],
    dest: Annotated[str, typer.Argument(metavar="DST", help=f"Zarr; or a file that ends in {_SUFFIXES}.")],
    options: CopyOptions,
    format: Annotated[
        Literal["hdf5", "netcdf", "tiff", "fits", "npy"] | None,
        typer.Option(help="Format of SRC. By default, it is recognized."),
    ] = None,
    ome: Annotated[
        bool, typer.Option("--ome", help="Write OME-Zarr: axes, voxel sizes, channels, levels (TIFF).")
    ] = False,
    series: Annotated[
        int | None, typer.Option(metavar="N", help="Which image of a file with several. By default, all.")
    ] = None,
    links: Annotated[
        Literal["once", "copy"] | None,
        typer.Option(help="Whether what has several names is stored once, the default, or under each (HDF5)."),
    ] = None,
) -> None:
    """Convert HDF5, NetCDF, TIFF, FITS and .npy to Zarr, or Zarr to the first three.

    Examples
    --------
    $ gzarr convert data.h5 data.zarr --chunks 100,100
    $ gzarr convert slide.ome.tif slide.zarr --ome
    $ gzarr convert sst.nc sst.zarr --chunks time=1,lat=73 --each mask:chunks=-1
    $ gzarr convert data.zarr data.nc
    $ gzarr convert image.zarr/0 image.tif
    """
    suffix = Path(dest).suffix.lower()
    of_tiff: dict[str, Any] = {
        name: value for name, value in {"ome": ome or None, "series": series}.items() if value is not None
    }
    if suffix in _WRITERS:
        _write_file(source, dest, options, given=bool(format or of_tiff or links))
        return
    if Path(source).is_dir():
        raise CopyError(f"{source!r} is a folder: Zarr can be converted to {_SUFFIXES} only")
    if of_tiff and (format or gzarr.convert.recognize(source)) != "tiff":
        raise CopyError(f"{source!r} is no TIFF file: leave --{next(iter(of_tiff))} out")
    if links is not None and (format or gzarr.convert.recognize(source)) != "hdf5":
        raise CopyError(f"{source!r} is no HDF5 file: leave --links out")
    of_hdf5: dict[str, Any] = {} if links is None else {"links": links}
    print(gzarr.convert.from_file(source, dest, format=format, **of_tiff, **of_hdf5, **options.keywords()))


def _write_file(source: str, dest: str, options: CopyOptions, *, given: bool) -> None:
    """Write a file of another format. Raises CopyError if an option is ``given`` that such a file has no use for."""
    suffix = Path(dest).suffix.lower()
    names = ("chunks", "shards", "each", "compressor", "layout", "zarr_format", "dry_run", "resume")
    if given or any(getattr(options, name) for name in names):
        raise CopyError(f"a conversion to {suffix} takes no options but --if-exists")
    if options.if_exists == "skip":
        raise CopyError(f"a conversion to {suffix} takes --if-exists raise or replace")
    write = getattr(gzarr.convert, _WRITERS[suffix])
    write(source, dest, overwrite=options.if_exists == "replace")
    print(f"wrote {escaped(dest)}")
