"""The commands ``gzarr ome``: describe, validate, convert and draw OME-Zarr images, and build their pyramids."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gzarr
from gzarr.copying.commands import add_options, options_of
from gzarr.display.info import Report
from gzarr.display.progress import in_terminal
from gzarr.errors import CopyError, GzarrError

if TYPE_CHECKING:
    from gzarr.images import Image

_PATH = "an image: a directory, a zip file, a URL, or a group within: data.zarr/foo"


def add_command(commands: Any) -> None:
    """Add ``gzarr ome`` to the commands of a parser."""
    parser = commands.add_parser("ome", help="describe, validate, convert and draw OME-Zarr images; build pyramids")
    actions = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_info(actions)
    _add_validate(actions)
    _add_pyramid(actions)
    _add_convert(actions)
    _add_thumbnail(actions)


def _add_info(actions: Any) -> None:
    parser = actions.add_parser("info", help="describe an image: levels, voxel sizes, channels, labels")
    parser.add_argument("path", help=_PATH)
    _add_series(parser)
    parser.set_defaults(command=_info)


def _add_series(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--series", metavar="N", help="which image of a collection: a number or a path")


def _add_validate(actions: Any) -> None:
    parser = actions.add_parser(
        "validate",
        help="check an image, a collection or a plate against OME-Zarr",
        epilog="Exits with 0 if there are no errors, 1 if there are, 2 if nothing can be opened.",
    )
    parser.add_argument("path", help=_PATH)
    parser.add_argument("--data", action="store_true", help="decode every chunk, and compare levels with each other")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(command=_validate, failed=2)


def _add_pyramid(actions: Any) -> None:
    parser = actions.add_parser("pyramid", help="build the smaller levels of an image")
    parser.add_argument("path", help=_PATH)
    parser.add_argument("--levels", type=int, metavar="N", help="how many; default: until 256 elements are left")
    parser.add_argument("--factors", type=_factors, metavar="N", help="2, or by axis: z=1,y=2,x=2; default: 2")
    parser.add_argument("--method", help="mean, nearest, mode, min, max, median or gaussian; default: mean")
    parser.add_argument("--memory", type=int, default=256, metavar="MIB", help="default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted build")
    parser.add_argument(
        "--if-exists", choices=["raise", "replace"], default="raise", help="of levels that exist; default: raise"
    )
    parser.add_argument("--device", help="where chunks are decoded, reduced and encoded; default: the best")
    parser.set_defaults(command=_pyramid, refuse=parser.error)


def _add_convert(actions: Any) -> None:
    parser = actions.add_parser("convert", help="make an OME-Zarr image of a TIFF file, an array, or another OME-Zarr")
    parser.add_argument("source", metavar="SRC", help="a TIFF file, a Zarr array, or an OME-Zarr image of any version")
    parser.add_argument("dest", metavar="DST", help="where the image goes")
    parser.add_argument("--series", type=int, metavar="N", help="which image of a TIFF file; default: all")
    parser.add_argument("--axes", help="of an array: tczyx or a part of it")
    parser.add_argument("--scale", type=_numbers, metavar="N,N,...", help="of an array: size of a voxel along the axes")
    parser.add_argument("--unit", help="of an array: unit of the axes of space, such as micrometer")
    add_options(parser)
    parser.set_defaults(command=_convert, refuse=parser.error)


def _add_thumbnail(actions: Any) -> None:
    parser = actions.add_parser("thumbnail", help="draw an image as PNG")
    parser.add_argument("path", help=_PATH)
    parser.add_argument("out", metavar="PNG", help="the file to write")
    parser.add_argument(
        "--size", type=int, default=256, metavar="N", help="pixels of the longer side; default: %(default)s"
    )
    parser.add_argument(
        "--channels", type=lambda text: text.split(","), metavar="NAME,...", help="default: the active ones"
    )
    _add_series(parser)
    parser.set_defaults(command=_thumbnail, refuse=parser.error)


def _factors(text: str) -> int | dict[str, int]:
    try:
        if "=" not in text:
            return int(text)
        return {name: int(factor) for name, _, factor in (part.partition("=") for part in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor like z=1,y=2,x=2") from None


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 2,0.5,0.5") from None


def _opened(args: argparse.Namespace) -> Image:
    from gzarr.images import open_image

    series = args.series
    return open_image(args.path, "r", series=int(series) if series and series.isdecimal() else series, device="cpu")


def _info(args: argparse.Namespace) -> None:
    print(_report(_opened(args)))


def _report(image: Image) -> Report:
    """What an image is."""
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


def _validate(args: argparse.Namespace) -> int:
    from gzarr.images import validate

    found = validate(args.path, data=args.data, progress=in_terminal() if args.data else None)
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return int(not found.ok)


def _pyramid(args: argparse.Namespace) -> None:
    from gzarr.images import build_pyramid

    try:
        image = build_pyramid(
            args.path,
            args.levels,
            args.factors,
            args.method,
            max_nbytes=args.memory << 20,
            resume=args.resume,
            overwrite=args.if_exists == "replace",
            progress=in_terminal(),
            device=args.device,
        )
    except ValueError as error:
        if isinstance(error, GzarrError):
            raise
        args.refuse(str(error))
    print(_report(image))


def _convert(args: argparse.Namespace) -> None:
    source = Path(args.source)
    options = options_of(args)
    if source.is_file() and gzarr.convert.recognize(source) == "tiff":
        of_tiff = {} if args.series is None else {"series": args.series}
        print(gzarr.convert.from_tiff(source, args.dest, ome=True, **of_tiff, **options))
        return
    if args.series is not None:
        args.refuse("argument --series: only with TIFF files")
    node = gzarr.open(args.source, mode="r", device="cpu")
    if isinstance(node, gzarr.Group):
        from gzarr.convert.versions import copy_image

        print(copy_image(node, args.dest, **options))
    else:
        print(_report(_of_array(node, args, options)))


def _of_array(array: gzarr.Array, args: argparse.Namespace, options: dict[str, Any]) -> Image:
    """Make an image of an array."""
    from gzarr.images import create_image

    if options["dry_run"] or options["if_exists"] == "skip":
        raise CopyError("an array becomes an image without --dry-run and --if-exists skip")
    names = array.dimension_names
    axes = args.axes or ("".join(map(str, names)) if names and all(name in tuple("tczyx") for name in names) else None)
    version: Any = "0.4" if options.get("zarr_format") == 2 else "0.5"
    try:
        return create_image(
            args.dest,
            array,
            axes=axes,
            scale=args.scale,
            units=args.unit,
            version=version,
            overwrite=options["if_exists"] == "replace",
            resume=options["resume"],
            max_nbytes=options["budget_nbytes"],
            progress=options["progress"],
            device="cpu",
            **{name: options[name] for name in ("chunks", "shards", "compressors", "layout") if name in options},
        )
    except ValueError as error:
        if isinstance(error, GzarrError):
            raise
        args.refuse(str(error))
        raise  # which it does not come to


def _thumbnail(args: argparse.Namespace) -> None:
    channels = None if args.channels is None else [int(n) if n.isdecimal() else n for n in args.channels]
    Path(args.out).write_bytes(_opened(args).thumbnail(args.size, channels))
    print(f"wrote {args.out}")
