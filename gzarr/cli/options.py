"""The table of commands, how they print, the arguments and options that several share, and how values are read."""

import functools
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal, NamedTuple, TextIO, TypeAlias, TypeVar, get_type_hints

import typer

import gzarr
from gzarr.errors import ArrayNotFoundError
from gzarr.errors.escaping import escaped

#: How many arrays an error names.
_NAMED = 10
#: What most commands look at.
NodePath: TypeAlias = Annotated[
    str, typer.Argument(metavar="PATH", help="A folder, a zip file, a URL, or an array or group within: data.zarr/foo.")
]
ArrayPath: TypeAlias = Annotated[
    str, typer.Argument(metavar="PATH", help="An array: a folder, a zip file, a URL, or a path within: data.zarr/foo.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Device: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where chunks are decoded and encoded: cpu, cuda, cuda:1 or auto.")
]
IfExists: TypeAlias = Literal["raise", "replace"]


def with_options(options: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for every field of a dataclass.

    Parameters
    ----------
    options : type
        A dataclass whose fields are annotated as options. The command is given an instance as ``options``.

    Returns
    -------
    callable
        A decorator.
    """
    hints = get_type_hints(options, include_extras=True)
    shared = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(options)
    }

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def given(**values: Any) -> Any:
            return command(options=options(**{name: values.pop(name) for name in shared}), **values)

        own = inspect.signature(command, eval_str=True).parameters
        kept = [p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items() if name != "options"]
        parameters = [*kept, *shared.values()]
        given.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        given.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return given

    return decorate


def lengths(text: str) -> int | tuple[int, ...] | dict[str, int]:
    """Read a shape: ``100,1000``; a single number counts for every axis, unless a comma follows it.

    Or read lengths by the names of axes: ``time=1,lat=73``, where -1 is a whole axis.
    """
    parts = [part for part in text.split(",") if part]
    try:
        if parts and all("=" in part for part in parts):
            return {name: int(number) for name, _, number in (part.rpartition("=") for part in parts)}
        numbers = tuple(map(int, parts))
    except ValueError:
        numbers = ()
    if not numbers:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 100,1000, or of time=1,lat=73")
    from gzarr.copying.sources import WhereTheyFit  # with NumPy, which the help does without

    return WhereTheyFit(numbers) if len(numbers) > 1 or text.endswith(",") else numbers[0]


def numbers(text: str) -> list[float]:
    """Read numbers: ``2,0.5,0.5``."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 2,0.5,0.5") from None


def channel_names(text: str | None) -> list[int | str] | None:
    """Read labels and numbers of channels."""
    return None if text is None else [int(part) if part.isdecimal() else part for part in text.split(",")]


def skipped(text: str) -> Any:
    """Read an element that is missing: a number, nan, or none for False."""
    if text == "none":
        return False
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number, nan or none") from None


Skip: TypeAlias = Annotated[
    Any,
    typer.Option(
        parser=skipped,
        metavar="N",
        help="What is missing, as it is stored: a number, nan, or none. By default, what the data name.",
    ),
]


def mebibytes(text: str | int) -> int:
    """Read a size in MiB."""
    if not str(text).isdecimal() or not int(text):
        raise typer.BadParameter(f"{text!r} is not a number of MiB, at least 1")
    return int(text)


Memory: TypeAlias = Annotated[int, typer.Option(parser=mebibytes, metavar="MIB", help="How much memory data may take.")]
#: Where blocks may need more than by default.
BlockMemory: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=mebibytes, metavar="MIB", help="How much memory data may take. By default 256, or what one block needs."
    ),
]


def _part(text: str) -> tuple[int, int]:
    """Read which part of a job is done: ``3/64``, or ``slurm`` for what the task of an array is told."""
    try:
        if text == "slurm":
            task, first, n = (int(os.environ[f"SLURM_ARRAY_TASK_{name}"]) for name in ("ID", "MIN", "COUNT"))
            step = int(os.environ.get("SLURM_ARRAY_TASK_STEP", "1"))
            if (task - first) % step or (task - first) // step >= n:
                raise typer.BadParameter("slurm: the tasks of the array are no range; give --part K/N for each")
            return (task - first) // step, n
        k, n = map(int, text.split("/"))
    except (ValueError, KeyError):
        raise typer.BadParameter(f"{text!r} is neither like 3/64 nor slurm, in a task of an array") from None
    if not 0 <= k < n:
        raise typer.BadParameter(f"{text!r}: parts are counted from 0, so that the last of 64 is 63/64")
    return k, n


On: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ENGINE", help="What does the work: dask://HOST:PORT, ray or ray://HOST:PORT.")
]
Workers: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Processes of this machine that do the work.")
]
PartOf: TypeAlias = Annotated[
    Any,
    typer.Option(
        parser=_part,
        metavar="K/N",
        help="Do one part of the work, from 0/N to N-1/N, as a task of a job array; slurm takes it from there.",
    ),
]


Notes: TypeAlias = Annotated[
    str | None, typer.Option(metavar="PATH", help="Where parts find each other's results: a folder.")
]


def engine(on: str | None, workers: int | None, part: Any = None, notes: str | None = None) -> dict[str, Any]:
    """The keywords ``on``, ``part`` and ``notes`` of an operation. Raises BadParameter if they do not fit together."""
    given = {name: one for name, one in (("--on", on), ("--workers", workers), ("--part", part)) if one is not None}
    if len(given) > 1:
        raise misuse("only one of --on, --workers and --part", list(given)[1])
    noted = {} if notes is None else {"notes": notes}
    return noted if not given else {"part": part, **noted} if part is not None else {"on": on or workers, **noted}


def open_array(path: str, device: str) -> "gzarr.Array":
    """Open an array for reading. Raises ArrayNotFoundError, for a group with the names of its arrays."""
    node = gzarr.open(path, mode="r", device=device)
    if isinstance(node, gzarr.Group):
        raise no_array(path, node)
    return node


def no_array(path: str, group: "gzarr.Group") -> ArrayNotFoundError:
    """An error for a group where an array is wanted, with the names of the first of its arrays."""
    arrays = (name for name, member in group.members(None) if isinstance(member, gzarr.Array))
    names = list(itertools.islice(arrays, _NAMED + 1))
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return ArrayNotFoundError(f"{path!r} is a group: give the path of one of its arrays: {listed or 'there is none'}")


def misuse(message: str, option: str) -> typer.BadParameter:
    """An error for options that do not fit together, which exits with 2 and names one of them."""
    return typer.BadParameter(message, param_hint=option)


# -- commands ----------------------------------------------------------------------------------------------------------

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(NamedTuple):
    """A command.

    Attributes
    ----------
    function : callable
        What it does. It returns an exit code, or None for 0.
    heading : str
        Where the help lists it; "" for commands below ``gzarr ome``.
    tells : bool
        Whether its exit code says what it found, 0 or 1: it exits with 2 if it fails, others with 1.
    """

    function: Callable[..., Any]
    heading: str
    tells: bool


#: All commands, as they were imported.
COMMANDS: list[Command] = []


def command(heading: str, *, tells: bool = False) -> Callable[[Function], Function]:
    """Register a function as a command; the parameters are those of `Command`."""

    def register(function: Function) -> Function:
        COMMANDS.append(Command(function, heading, tells))
        return function

    return register


def show(report: Any, *, as_json: bool) -> None:
    """Print a report, or what its ``to_json`` gives."""
    print(json.dumps(report.to_json(), indent=2) if as_json else report)


def colored(text: str, color: str | None = None, *, bold: bool = False, stream: TextIO | None = None) -> str:
    """Return a text, escaped, with the codes of a colour; without for files and pipes, and if ``NO_COLOR`` is set.

    Source: no-color.org, and ``TERM=dumb`` of terminals without codes.
    """
    shown, plain = sys.stdout if stream is None else stream, escaped(text)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not shown.isatty():
        return plain
    return typer.style(plain, fg=color, bold=bold or None)


def print_report(report: object) -> None:
    """Print the lines of a report, their names in colour."""
    lines = repr(report).splitlines()
    width = lines[0].find(" : ") if lines else 0
    for line in lines:
        print(colored(line[:width], "cyan") + line[width:])
