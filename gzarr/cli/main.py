"""The command ``gzarr``: puts the commands together and runs one."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated, Any

import typer

import gzarr
from gzarr.cli import advise, compare, convert, copy, demo, info, ome, tree, verify
from gzarr.cli.complaints import complain
from gzarr.errors import GzarrError

#: The commands by the headings of the help, in its order.
_COMMANDS: dict[str, tuple[ModuleType, ...]] = {
    "Look at data": (info, tree),
    "Check data": (verify, compare),
    "Copy and convert": (copy, convert),
    "Speed": (advise, demo),
}
_OME_EXAMPLES: dict[Callable[..., Any], tuple[str, ...]] = {
    ome.info: ("gzarr ome info slide.zarr",),
    ome.validate: ("gzarr ome validate slide.zarr --data",),
    ome.pyramid: ("gzarr ome pyramid slide.zarr --factors z=1,y=2,x=2",),
    ome.convert: ("gzarr ome convert slide.tif slide.zarr", "gzarr ome convert a.zarr b.zarr --axes zyx --unit um"),
    ome.thumbnail: ("gzarr ome thumbnail slide.zarr slide.png --size 512",),
}
#: Commands whose exit code says what they found, 0 or 1: they exit with 2 if they fail, the others with 1.
_TELLING = {"verify", "compare", "validate"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        The arguments after the program's name; None for those of the process.

    Returns
    -------
    int
        What the command returns, or 0; 1 if it failed, which one line on stderr explains (2 for commands whose result
        is 0 or 1); 130 if Ctrl-C stopped it. Misuse exits with 2.
    """
    if "_GZARR_COMPLETE" in os.environ:
        _app()(prog_name="gzarr")
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as rich ends the help
            return 0
        raise
    except BrokenPipeError:
        # The reader (``| head``) has seen enough. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for threads
        complain(": ".join(("interrupted", *getattr(stop, "__notes__", ()))))
        return 130  # 128 + SIGINT, as shells say it


def _run(arguments: list[str]) -> int:
    """Run a command. Misuse raises SystemExit."""
    command = typer.main.get_command(_app())
    try:
        with command.make_context("gzarr", arguments) as context:
            return command.invoke(context) or 0
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        misuse: Any = error  # every one that a command line causes can be shown
        misuse.message = misuse.message.removeprefix("Value error, ")  # which Pydantic adds
        misuse.show()
        raise SystemExit(misuse.exit_code) from None


def _app() -> typer.Typer:
    """All commands. They are put together for every run, because only one is made."""
    app = typer.Typer(
        no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    app.callback(help="Look at, check, copy, convert and serve Zarr arrays, version 2 and 3.")(_options)
    for heading, modules in _COMMANDS.items():
        for module in modules:
            name = module.__name__.rpartition(".")[2]
            _add(app, getattr(module, name), module.EXAMPLES, getattr(module, "EPILOG", ""), heading)
    images = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    for function, examples in _OME_EXAMPLES.items():
        _add(images, function, examples, ome.EPILOG if function is ome.validate else "", None)
    help = "Describe, validate, convert and draw OME-Zarr images; build pyramids."
    app.add_typer(images, name="ome", help=help, rich_help_panel="Images")
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from gzarr.cpu.compiled.library import status

        print(f"gzarr {gzarr.__version__} (compiled loop: {status()})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, expose_value=False),
    ] = False,
) -> None:
    """The options of ``gzarr`` itself."""


def _add(
    app: typer.Typer, function: Callable[..., Any], examples: Sequence[str], epilog: str, heading: str | None
) -> None:
    """Add a command to an app."""
    lines = [*([epilog] if epilog else []), "Examples:", *(f"  $ {example}" for example in examples)]
    name = function.__name__
    command = _reporting(function, failed=2 if name in _TELLING else 1)
    app.command(name, epilog="\n".join(lines), rich_help_panel=heading)(command)


def _reporting(function: Callable[..., Any], failed: int) -> Callable[..., Any]:
    """A command that turns errors of gzarr and of the system into one line and an exit code."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        try:
            return function(**options)
        except BrokenPipeError:
            raise
        except (GzarrError, OSError) as error:
            complain(str(error))
            return failed

    return command
