"""The commands ``gzarr ome``: describe, validate, convert and draw OME-Zarr images, and build their pyramids."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

import gzarr
from gzarr.cli.copy import WRITERS, CopyOptions
from gzarr.cli.options import (
    AsJson,
    BlockMemory,
    Device,
    IfExists,
    On,
    PartOf,
    Skip,
    Workers,
    channel_names,
    command,
    engine,
    misuse,
    numbers,
    print_report,
    show,
    with_options,
)
from gzarr.display.progress import in_terminal
from gzarr.errors import CopyError
from gzarr.errors.escaping import escaped

if TYPE_CHECKING:
    from gzarr.display.info import Report
    from gzarr.images import Image


ImagePath: TypeAlias = Annotated[
    str, typer.Argument(metavar="PATH", help="An image: a folder, a zip file, a URL, or a group within: data.zarr/foo.")
]
Series: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Which image of a collection: a number or a path.")
]


def _factors(text: str) -> int | dict[str, int]:
    try:
        if "=" not in text:
            return int(text)
        return {name: int(factor) for name, _, factor in (part.partition("=") for part in text.split(","))}
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor like z=1,y=2,x=2") from None


@command("")
def info(path: ImagePath, series: Series = None) -> None:
    """Describe an image: levels, voxel sizes, channels, labels.

    Examples
    --------
    $ gzarr ome info slide.zarr
    """
    print_report(_report(_opened(path, series)))


@command("", tells=True)
def validate(
    path: ImagePath,
    data: Annotated[
        bool, typer.Option("--data", help="Decode every chunk, and compare levels with each other.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check an image, a collection or a plate against OME-Zarr.

    Exits with 0 if there are no errors, 1 if there are, 2 if nothing can be opened.

    Examples
    --------
    $ gzarr ome validate slide.zarr --data
    """
    from gzarr.images import validate

    found = validate(path, data=data, progress=in_terminal() if data else None)
    show(found, as_json=as_json)
    return int(not found.ok)


@command("")
def pyramid(
    path: ImagePath,
    levels: Annotated[
        int | None, typer.Option(metavar="N", help="How many. By default, until 256 elements are left.")
    ] = None,
    factors: Annotated[
        Any, typer.Option(parser=_factors, metavar="N", help="2, or by axis: z=1,y=2,x=2. By default, 2.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="How elements become one: mean, nearest, mode, gaussian, ...")
    ] = None,
    skip: Skip = None,
    memory: BlockMemory = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted build.")] = False,
    if_exists: Annotated[IfExists, typer.Option(help="What happens to levels that exist.")] = "raise",
    device: Device = None,
    on: On = None,
    workers: Workers = None,
    part: PartOf = None,
) -> None:
    """Build the smaller levels of an image.

    Examples
    --------
    $ gzarr ome pyramid slide.zarr --factors z=1,y=2,x=2
    """
    from gzarr.images import build_pyramid

    image = build_pyramid(
        path,
        levels,
        factors,
        method,
        skip=skip,
        max_nbytes=None if memory is None else memory << 20,
        resume=resume,
        overwrite=if_exists == "replace",
        progress=in_terminal(),
        device=device,
        **engine(on, workers, part),
    )
    print_report(_report(image))


@command("")
@with_options(CopyOptions)
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A TIFF file, a Zarr array, or an OME-Zarr image of any version.")
    ],
    dest: Annotated[str, typer.Argument(metavar="DST", help="Where the image goes.")],
    options: CopyOptions,
    series: Annotated[
        int | None, typer.Option(metavar="N", help="Which image of a TIFF file. By default, all.")
    ] = None,
    axes: Annotated[str | None, typer.Option(metavar="NAMES", help="Of an array: tczyx or a part of it.")] = None,
    scale: Annotated[
        Any, typer.Option(parser=numbers, metavar="N,N,...", help="Of an array: size of a voxel along the axes.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of an array: unit of the axes of space, such as micrometer.")
    ] = None,
    ome_version: Annotated[
        Literal["0.4", "0.5", "0.6"] | None,
        typer.Option(help="Version of OME-Zarr. By default, that of an image, or 0.5."),
    ] = None,
) -> None:
    """Make an OME-Zarr image of a TIFF file, an array, or another OME-Zarr.

    Examples
    --------
    $ gzarr ome convert slide.tif slide.zarr
    $ gzarr ome convert a.zarr b.zarr --axes zyx --unit um
    """
    if Path(dest).suffix.lower() in WRITERS:
        where = f"{dest!r} would be OME-Zarr, whatever its name ends in"
        raise CopyError(f"{where}; a file is written by: gzarr convert {source} {dest}")
    keywords = options.keywords()
    version: Any = ome_version or ("0.4" if keywords.get("zarr_format") == 2 else None)
    if Path(source).is_file() and gzarr.convert.recognize(source) == "tiff":
        print(_of_tiff(source, dest, version, keywords if series is None else keywords | {"series": series}))
        return
    if series is not None:
        raise misuse("only with TIFF files", "--series")
    node = gzarr.open(source, mode="r", device="cpu")
    if isinstance(node, gzarr.Group):
        from gzarr.convert.microscopy import copy_image

        print(copy_image(node, dest, version, **keywords))
        return
    voxels = {"axes": axes, "scale": scale, "units": unit}
    print_report(_report(_of_array(node, dest, voxels | {"version": version or "0.5"}, keywords)))


@command("")
def thumbnail(
    path: ImagePath,
    out: Annotated[Path, typer.Argument(metavar="PNG", help="The file to write.")],
    size: Annotated[int, typer.Option(metavar="N", help="Pixels of the longer side.")] = 256,
    channels: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which channels. By default, the active ones.")
    ] = None,
    series: Series = None,
) -> None:
    """Draw an image as PNG.

    Examples
    --------
    $ gzarr ome thumbnail slide.zarr slide.png --size 512
    """
    out.write_bytes(_opened(path, series).thumbnail(size, channel_names(channels)))
    print(f"wrote {escaped(out)}")


def _opened(path: str, series: str | None) -> "Image":
    from gzarr.images import open_image

    return open_image(path, "r", series=int(series) if series and series.isdecimal() else series, device="cpu")


def _report(image: "Image") -> "Report":
    """What an image is."""
    from gzarr.display.info import Report

    units = image.units
    items = [
        ("Name", image.name),
        ("Version", f"OME-Zarr {image.version}"),
        ("Axes", ", ".join(f"{name} ({unit})" if (unit := units[name]) else name for name in image.axes)),
        ("Data type", str(image.dtype)),
    ]
    for number, level in enumerate(image):
        scale = ", ".join(f"{size:g}" for size in image.scale(number).values())
        stored = f"chunks {_shape(level.chunks)}" + (f", shards {_shape(level.shards)}" if level.shards else "")
        items.append((f"Level {number}", f"{level.path}: {_shape(level.shape)}, {stored}, scale {scale}"))
    for number, channel in enumerate(image.channels):
        window = "" if channel.window is None else f", {channel.window.start:g} to {channel.window.end:g}"
        items.append((f"Channel {number}", f"{channel.label or 'unnamed'}, {channel.color or 'no colour'}{window}"))
    if image.labels:
        items.append(("Labels", ", ".join(image.labels)))
    return Report(items)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _of_tiff(source: str, dest: str, version: str | None, keywords: dict[str, Any]) -> Any:
    """Make an image, or several, of a TIFF file."""
    if version == "0.6":
        raise misuse("TIFF files become 0.5 (or 0.4), which can be converted to 0.6", "--ome-version")
    if version == "0.4":
        keywords["zarr_format"] = 2
    return gzarr.convert.from_tiff(source, dest, ome=True, **keywords)


def _of_array(array: "gzarr.Array", dest: str, voxels: dict[str, Any], options: dict[str, Any]) -> "Image":
    """Make an image of an array."""
    from gzarr.images import create_image

    if options["dry_run"] or options["if_exists"] == "skip":
        raise CopyError("an array becomes an image without --dry-run and --if-exists skip")
    return create_image(
        dest,
        array,
        overwrite=options["if_exists"] == "replace",
        resume=options["resume"],
        max_nbytes=options.get("budget_nbytes"),
        progress=options["progress"],
        device="cpu",
        **voxels,
        **{name: options[name] for name in ("chunks", "shards", "compressors", "layout") if name in options},
    )
