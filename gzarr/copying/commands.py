"""The command ``gzarr copy``, and the options that it shares with ``gzarr convert``."""

from __future__ import annotations

import argparse
from typing import Any

from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.copying.transfer import transfer
from gzarr.display.progress import in_terminal
from gzarr.errors import MetadataError
from gzarr.hierarchy.presets import ACCESS_PATTERNS


def add_command(commands: Any) -> None:
    """Add ``gzarr copy`` to the commands of a parser."""
    parser = commands.add_parser("copy", help="copy an array or a group; rechunk, re-encode, convert v2 <-> v3")
    parser.add_argument("source", metavar="SRC", help="a directory, a zip file, a URL, or a path within: data.zarr/foo")
    parser.add_argument("dest", metavar="DST", help="where the copy goes")
    add_options(parser)
    parser.set_defaults(command=_copy)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``gzarr copy`` and ``gzarr convert`` share."""
    parser.add_argument("--chunks", type=_lengths, metavar="N,N,...", help="shape of the chunks")
    parser.add_argument("--shards", type=_lengths, metavar="N,N,...", help="shape of the shards (v3)")
    parser.add_argument("--compressor", metavar="NAME[:LEVEL]", help="zstd:3, gzip, lz4, ..., or none")
    accesses = ", ".join(ACCESS_PATTERNS)
    text = "chunks, shards and compressor that suit GPUs; use gpu:ACCESS if you know how the data will be read:"
    parser.add_argument("--layout", metavar="gpu", help=f"{text} {accesses}")
    parser.add_argument("--zarr-format", type=int, choices=[2, 3], help="default: as the source")
    parser.add_argument("--if-exists", choices=["raise", "replace", "skip"], default="raise", help="default: raise")
    parser.add_argument(
        "--memory", type=_mebibytes, default=BUDGET_NBYTES >> 20, metavar="MIB", help="default: %(default)s"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted copy")


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `transfer` that the shared options stand for. Raises MetadataError."""
    options: dict[str, Any] = {
        "if_exists": args.if_exists,
        "dry_run": args.dry_run,
        "resume": args.resume,
        "budget_nbytes": args.memory << 20,
        "progress": in_terminal(),
    }
    given = {name: getattr(args, name) for name in ("chunks", "shards", "layout", "zarr_format")}
    options |= {name: value for name, value in given.items() if value is not None}
    if args.compressor is not None:
        options["compressors"] = _compressor(args.compressor)
    return options


def _lengths(text: str) -> int | tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        lengths = ()
    if not lengths:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 100,1000")
    return lengths if len(lengths) > 1 or text.endswith(",") else lengths[0]


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB, at least 1")
    return int(text)


def _compressor(text: str) -> Any:
    """A compressor by its numcodecs name, with a level: ``zstd:3``; None for "none". Raises MetadataError."""
    import numcodecs

    name, _, level = text.partition(":")
    if name == "none":
        return None
    blosc = {"id": "blosc", "cname": name.removeprefix("blosc-")} if name.startswith("blosc-") else {"id": name}
    field = {"blosc": "clevel", "lz4": "acceleration", "lzma": "preset"}.get(blosc["id"], "level")
    try:
        return numcodecs.get_codec({**blosc, **({field: int(level)} if level else {})})
    except (ValueError, TypeError) as error:
        why = str(error).replace("''", "'")
        raise MetadataError(f"--compressor {text}: {why}; use for instance zstd:3, gzip, lz4, blosc-lz4") from error


def _copy(args: argparse.Namespace) -> None:
    print(transfer(args.source, args.dest, **options_of(args)))
