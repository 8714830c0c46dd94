"""The command ``gzarr convert``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gzarr.convert.files import from_file, recognize
from gzarr.convert.hdf5 import to_hdf5
from gzarr.convert.netcdf import to_netcdf
from gzarr.copying.commands import add_options, options_of
from gzarr.errors import CopyError

_WRITERS: dict[str, Callable[..., None]] = dict.fromkeys((".h5", ".hdf5", ".he5"), to_hdf5)
_WRITERS |= dict.fromkeys((".nc", ".nc4"), to_netcdf)


def add_command(commands: Any) -> None:
    """Add ``gzarr convert`` to the commands of a parser."""
    parser = commands.add_parser("convert", help="convert HDF5, NetCDF, TIFF, .npy, .npz, images to Zarr, or back")
    parser.add_argument("source", metavar="SRC", help="a file; or Zarr, if DST ends in .h5 or .nc")
    parser.add_argument("dest", metavar="DST", help="Zarr; or a file that ends in .h5 or .nc")
    parser.add_argument("--format", choices=["hdf5", "netcdf", "tiff", "npy", "image"], help="format of SRC")
    parser.add_argument("--ome", action="store_true", help="write OME-Zarr: axes, voxel sizes, channels, levels (TIFF)")
    parser.add_argument("--series", type=int, metavar="N", help="which image of a file with several; default: all")
    add_options(parser)
    parser.set_defaults(command=_convert)


def _convert(args: argparse.Namespace) -> None:
    suffix = Path(args.dest).suffix.lower()
    if suffix not in _WRITERS and Path(args.source).is_dir():
        raise CopyError(f"{args.source!r} is a folder: Zarr can be converted to .h5 and .nc only")
    if suffix not in _WRITERS:
        of_tiff = {name: getattr(args, name) for name in ("ome", "series") if getattr(args, name) not in (None, False)}
        if of_tiff and (args.format or recognize(args.source)) != "tiff":
            raise CopyError(f"{args.source!r} is no TIFF file: leave --{next(iter(of_tiff))} out")
        print(from_file(args.source, args.dest, format=args.format, **of_tiff, **options_of(args)))
        return
    names = ("chunks", "shards", "compressor", "layout", "zarr_format", "dry_run", "resume", "format", "ome", "series")
    if any(getattr(args, name) for name in names):
        raise CopyError(f"a conversion to {suffix} takes no options but --if-exists")
    if args.if_exists == "skip":
        raise CopyError(f"a conversion to {suffix} takes --if-exists raise or replace")
    _WRITERS[suffix](args.source, args.dest, overwrite=args.if_exists == "replace")
    print(f"wrote {args.dest}")
