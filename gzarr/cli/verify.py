"""The command ``gzarr verify``."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import typer

import gzarr
from gzarr.cli.options import AsJson, NodePath, misuse
from gzarr.display.progress import in_terminal

EXAMPLES = (
    "gzarr verify data.zarr",
    "gzarr verify data.zarr --repair chunks,strays",
    "gzarr verify data.zarr --repair chunks,strays --apply",
)
EPILOG = "Exits with 0 if nothing is wrong, 1 if something is, 2 if nothing can be opened."


def _kinds(text: str) -> list[Any]:
    from gzarr.checking.repair import Repairable

    kinds = text.split(",")
    for kind in kinds:
        if kind not in get_args(Repairable):
            raise typer.BadParameter(f"{kind!r} is not one of {', '.join(get_args(Repairable))}")
    return kinds


def verify(
    path: NodePath,
    as_json: AsJson = False,
    repair: Annotated[
        Any,
        typer.Option(
            parser=_kinds,
            metavar="KIND,...",
            help="Say what a repair would do: chunks (drop bad ones), strays (delete what killed writers have left, and"
            " chunks outside of arrays), consolidated (consolidate metadata again).",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Delete this stray, as the report lists it.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do what --repair and --remove say.")] = False,
) -> int:
    """Read and check everything that is stored, and repair what is asked for."""
    if apply and not repair and not remove:
        raise misuse("only with --repair or --remove", "--apply")
    if repair or remove:
        return _repair(path, repair or [], remove or [], as_json=as_json, apply=apply)
    found = gzarr.verify(path, progress=in_terminal())
    print(json.dumps(found.to_json(), indent=2) if as_json else found)
    return int(not found.ok)


def _repair(path: str, kinds: list[Any], remove: list[str], *, as_json: bool, apply: bool) -> int:
    """Repair, and return 0 if nothing is wrong any more."""
    try:
        report = gzarr.repair(path, *kinds, remove=remove, apply=apply, progress=in_terminal())
    except ValueError as error:
        if isinstance(error, gzarr.GzarrError):
            raise
        raise misuse(str(error), "--remove") from error
    print(json.dumps(report.to_json(), indent=2) if as_json else report)
    return int(not report.ok or bool(report.left) or (report.dry_run and bool(report.actions)))
