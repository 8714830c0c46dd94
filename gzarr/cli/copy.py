"""The commands ``gzarr copy``, ``consolidate`` and ``migrate``, and the options that all copies share."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import gzarr
from gzarr.cli.options import BlockMemory, NodePath, On, PartOf, Workers, command, engine, lengths, misuse, with_options
from gzarr.display.progress import in_terminal
from gzarr.errors import CopyError, MetadataError
from gzarr.errors.escaping import escaped

_LAYOUT = (
    "Chunks, shards and compressor that suit GPUs. Use gpu:ACCESS if you know how the data will be read: batch, plane,"
    " volume or random."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options, by the keywords of `gzarr.transfer` that they stand for."""

    chunks: Annotated[
        Any, typer.Option(parser=lengths, metavar="N,N,...", help="Shape of the chunks, or time=1,lat=73 by axes.")
    ] = None
    shards: Annotated[Any, typer.Option(parser=lengths, metavar="N,N,...", help="Shape of the shards (v3).")] = None
    compressor: Annotated[str | None, typer.Option(metavar="NAME[:LEVEL]", help="zstd:3, gzip, lz4, ..., or none.")] = (
        None
    )
    each: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:OPTION=VALUE",
            help="An option for one array, such as sst:chunks=time=1 or mask:compressor=none.",
        ),
    ] = None
    layout: Annotated[str | None, typer.Option(metavar="gpu", help=_LAYOUT)] = None
    zarr_format: Annotated[
        Literal[2, 3] | None, typer.Option(help="Version of the format. By default, as the source.")
    ] = None
    if_exists: Annotated[Literal["raise", "replace", "skip"], typer.Option(help="What happens to data at DST.")] = (
        "raise"
    )
    memory: BlockMemory = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted copy.")] = False
    on: On = None
    workers: Workers = None
    part: PartOf = None

    def keywords(self) -> dict[str, Any]:
        """The keywords of `gzarr.transfer`. Raises MetadataError."""
        keywords: dict[str, Any] = {
            "if_exists": self.if_exists,
            "dry_run": self.dry_run,
            "resume": self.resume,
            "progress": in_terminal(),
            **engine(self.on, self.workers, self.part),
        }
        given = {name: getattr(self, name) for name in ("chunks", "shards", "layout", "zarr_format")}
        keywords |= {name: value for name, value in given.items() if value is not None}
        if self.memory is not None:
            keywords["budget_nbytes"] = self.memory << 20
        if self.compressor is not None:
            keywords["compressors"] = _compressor(self.compressor)
        if self.each:
            keywords["each"] = _each(self.each)
        return keywords


def _each(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Keywords by the names of arrays. Raises BadParameter, MetadataError."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, given = text.partition(":")
        option, _, value = given.partition("=")
        if not name or not value or option not in ("chunks", "shards", "compressor", "layout"):
            options = "chunks, shards, compressor or layout"
            raise misuse(f"{text!r} is not NAME:OPTION=VALUE with {options}, such as sst:chunks=time=1", "--each")
        keywords = found.setdefault(name, {})
        if option == "compressor":
            keywords["compressors"] = _compressor(value)
        else:
            keywords[option] = value if option == "layout" else lengths(value)
    return found


def _compressor(text: str) -> Any:
    """A compressor by its numcodecs name, with a level: ``zstd:3``; None for "none". Raises MetadataError."""
    from gzarr.codecs import parse_codec

    try:
        return None if text == "none" else parse_codec(text)
    except MetadataError as error:
        raise MetadataError(f"--compressor {text}: {error}") from error


def _tell(report: Any, options: CopyOptions) -> None:
    """Print what a copy did, and which arrays of other dimensions than given lengths it left as they are."""
    print(report)
    lists = [one for one in (options.chunks, options.shards) if isinstance(one, tuple)]
    named = tuple(f"/{text.partition(':')[0]}" for text in options.each or ())
    arrays = [one for one in report.arrays if not f"/{one.path}".endswith(named)]
    others = [escaped(one.path) for one in arrays if any(len(one.shape) != len(lengths) for lengths in lists)]
    if others:
        print(f"left as they are, of other dimensions: {', '.join(others)}", file=sys.stderr)


@command("Copy and convert")
@with_options(CopyOptions)
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A folder, a zip file, a URL, or a path within: data.zarr/foo.")
    ],
    dest: Annotated[str, typer.Argument(metavar="DST", help="Where the copy goes.")],
    options: CopyOptions,
) -> None:
    """Copy an array or a group; rechunk, re-encode, convert v2 <-> v3.

    Examples
    --------
    $ gzarr copy data.zarr s3://bucket/data.zarr
    $ gzarr copy data.zarr rechunked.zarr --chunks 100,100 --compressor zstd:3
    $ gzarr copy old.zarr new.zarr --zarr-format 3 --resume
    $ gzarr copy a.zarr b.zarr --chunks 100,100 --on dask://scheduler:8786
    $ gzarr copy a.zarr b.zarr --chunks 100,100 --part slurm
    """
    _tell(gzarr.transfer(source, dest, **options.keywords()), options)


@command("Copy and convert")
def consolidate(path: NodePath) -> None:
    """Store the metadata of a group and of all its members in one document, so that one request opens them all.

    Examples
    --------
    $ gzarr consolidate data.zarr
    """
    node = gzarr.consolidate_metadata(path)
    if isinstance(node, gzarr.Array):
        print(f"{node.store_path} is an array: there is nothing to consolidate")
        return
    print(f"consolidated {node.store_path}: {len(node.members(None))} members")


@command("Copy and convert")
def migrate(
    path: NodePath,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    remove_v2: Annotated[
        bool, typer.Option("--remove-v2", help="Delete the metadata of v2 afterwards; older programs then see nothing.")
    ] = False,
) -> None:
    """Turn Zarr v2 into v3 where it is: new metadata are written, chunks stay as they are.

    Examples
    --------
    $ gzarr migrate data.zarr --dry-run
    $ gzarr migrate data.zarr
    $ gzarr migrate data.zarr --remove-v2
    """
    from gzarr.copying.migrating import migrate

    print(migrate(path, remove_v2=remove_v2, dry_run=dry_run))


# -- conversions -------------------------------------------------------------------------------------------------------

#: What writes files of other formats, by the ends of their names.
WRITERS = {
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
    $ gzarr convert data.h5 data.zarr --chunks 100,100 --compressor zstd:3
    $ gzarr convert slide.ome.tif slide.zarr --ome
    $ gzarr convert sst.nc sst.zarr --chunks time=1,lat=73 --each mask:chunks=-1
    $ gzarr convert data.zarr data.nc
    $ gzarr convert image.zarr/0 image.tif
    """
    suffix = Path(dest).suffix.lower()
    options_of = {"ome": ome or None, "series": series, "links": links}
    given: dict[str, Any] = {name: value for name, value in options_of.items() if value is not None}
    if suffix in WRITERS:
        _write_file(source, dest, options, given=bool(format or given))
        return
    if Path(source).is_dir():
        raise CopyError(f"{source!r} is a folder: Zarr can be converted to {_SUFFIXES} only")
    for name in given:
        needed = "hdf5" if name == "links" else "tiff"
        if (format or gzarr.convert.recognize(source)) != needed:
            raise CopyError(f"{source!r} is no {needed.upper()} file: leave --{name} out")
    _tell(gzarr.convert.from_file(source, dest, format=format, **given, **options.keywords()), options)


def _write_file(source: str, dest: str, options: CopyOptions, *, given: bool) -> None:
    """Write a file of another format. Raises CopyError if an option is ``given`` that such a file has no use for."""
    suffix = Path(dest).suffix.lower()
    names = ("chunks", "shards", "each", "compressor", "layout", "zarr_format", "dry_run", "resume")
    if given or any(getattr(options, name) for name in names):
        raise CopyError(f"a conversion to {suffix} takes no options but --if-exists")
    if options.if_exists == "skip":
        raise CopyError(f"a conversion to {suffix} takes --if-exists raise or replace")
    writer = WRITERS[suffix]
    if writer == "to_tiff" and find_spec("rasterio") and not dest.lower().removesuffix(suffix).endswith(".ome"):
        from gzarr.convert.rasters import place_of

        node = gzarr.open(source, mode="r")
        level = node if isinstance(node, gzarr.Array) else next((array for _, array in node.arrays()), None)
        is_map = level is not None and ("spatial:transform" in level.attrs or place_of(source)[0])
        writer = "to_geotiff" if is_map else writer
    getattr(gzarr.convert, writer)(source, dest, overwrite=options.if_exists == "replace")
    print(f"wrote {escaped(dest)}")
