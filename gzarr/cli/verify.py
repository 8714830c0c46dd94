"""The commands ``gzarr verify`` and ``compare``."""

from typing import Annotated, Any, get_args

import typer

import gzarr
from gzarr.cli.options import AsJson, NodePath, On, PartOf, Workers, command, engine, misuse, show
from gzarr.display.progress import in_terminal


def _kinds(text: str) -> list[Any]:
    from gzarr.checking.repair import Repairable

    kinds = text.split(",")
    for kind in kinds:
        if kind not in get_args(Repairable):
            raise typer.BadParameter(f"{kind!r} is not one of {', '.join(get_args(Repairable))}")
    return kinds


@command("Check data", tells=True)
def verify(
    path: NodePath,
    as_json: AsJson = False,
    repair: Annotated[
        Any,
        typer.Option(
            parser=_kinds,
            metavar="KIND,...",
            help="Say what a repair would do: chunks (drop bad ones), leftovers (delete what killed writers have left,"
            " and chunks outside of arrays), consolidated (consolidate metadata again).",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Delete this leftover file, as the report lists it.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do what --repair and --remove say.")] = False,
    locks: Annotated[
        bool,
        typer.Option("--locks", help="Check that locks of this folder exclude another run, on another host or mount."),
    ] = False,
    on: On = None,
    workers: Workers = None,
    part: PartOf = None,
) -> int:
    """Read and check everything that is stored, and repair what is asked for.

    Exits with 0 if nothing is wrong, 1 if something is, 2 if nothing can be opened.

    Examples
    --------
    $ gzarr verify data.zarr
    $ gzarr verify data.zarr --repair chunks,leftovers
    $ gzarr verify data.zarr --repair chunks,leftovers --apply
    $ gzarr verify --locks /shared/folder
    """
    if locks:
        from gzarr.cli.lock_check import check_locks

        return check_locks(path)
    if (repair or remove) and engine(on, workers, part):
        raise misuse("a repair runs here alone", "--repair")
    if apply and not repair and not remove:
        raise misuse("only with --repair or --remove", "--apply")
    if repair or remove:
        report = gzarr.repair(path, *(repair or []), remove=remove or [], apply=apply, progress=in_terminal())
        show(report, as_json=as_json)
        return int(not report.ok or bool(report.left) or (report.dry_run and bool(report.actions)))
    found = gzarr.verify(path, progress=in_terminal(), **engine(on, workers, part))
    show(found, as_json=as_json)
    return int(not found.ok)


@command("Check data", tells=True)
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A folder, a zip file, a URL, or a path within: data.zarr/foo.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    as_json: AsJson = False,
    rtol: Annotated[
        float, typer.Option(help="Numbers are equal if abs(a - b) <= ATOL + RTOL * abs(b). By default, exactly.")
    ] = 0.0,
    atol: Annotated[float, typer.Option(help="See --rtol.")] = 0.0,
    strict: Annotated[bool, typer.Option("--strict", help="Chunks, codecs and format count as well.")] = False,
    metadata_only: Annotated[bool, typer.Option("--metadata-only", help="Leave values out.")] = False,
    on: On = None,
    workers: Workers = None,
    part: PartOf = None,
) -> int:
    """Compare two arrays or groups: members, metadata, values.

    Exits with 0 if they are equal, 1 if they differ, 2 if one cannot be opened.

    Examples
    --------
    $ gzarr compare data.zarr copy.zarr
    $ gzarr compare data.zarr copy.zarr --rtol 1e-6 --json
    """
    found = gzarr.compare(
        a,
        b,
        progress=in_terminal(),
        rtol=rtol,
        atol=atol,
        strict=strict,
        metadata_only=metadata_only,
        **engine(on, workers, part),
    )
    show(found, as_json=as_json)
    return int(not found.equal)
