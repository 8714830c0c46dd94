"""The command ``gzarr``: puts the commands together and runs one."""

import functools
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import gzarr

# Commands register themselves.
from gzarr.cli import advise, copy, gpu, ome, quicklook, serve, stats, tree, verify  # noqa: F401
from gzarr.cli.complaints import as_typed, complain, guess, said
from gzarr.cli.options import COMMANDS, Command
from gzarr.errors import GzarrError
from gzarr.errors.escaping import escaped

#: The headings of the help, in its order.
_HEADINGS = ("Look at data", "Check data", "Copy and convert", "Speed", "Set up")
#: Parameters that name what a command writes, which need not exist.
_WRITTEN = {"dest", "out", "apply"}
_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


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
        _app(None)(prog_name="gzarr")
    if argv is None:
        warnings.showwarning = _warn  # type: ignore[assignment]
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


@functools.cache  # that of a reader may come for each of its ways to the same file
def _warn_once(message: str) -> None:
    complain(f"warning: {message}")


def _warn(message: Warning | str, *_where: object) -> None:
    """Show a warning as one line, once, without the source of gzarr that Python adds."""
    _warn_once(str(message))


def _run(arguments: list[str]) -> int:
    """Run a command. Misuse raises SystemExit."""
    names = {command.function.__name__ for command in COMMANDS if command.heading}
    command = _made(arguments[0] if arguments and arguments[0] in names else None)
    try:
        with command.make_context("gzarr", arguments) as context:
            return command.invoke(context) or 0
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        misuse: Any = error  # every one that a command line causes can be shown
        misuse.message = escaped(misuse.message.removeprefix("Value error, "))  # which Pydantic adds
        misuse.show()
        raise SystemExit(misuse.exit_code) from None


@functools.cache
def _made(name: str | None) -> Any:
    """Make all commands, or only the one with a name: Typer takes milliseconds for each."""
    return typer.main.get_command(_app(name))


def _app(name: str | None) -> typer.Typer:
    """All commands, or the one with a name."""
    completing = "_GZARR_COMPLETE" in os.environ
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=completing,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    help = "Look at, check, copy, convert and serve Zarr arrays, version 2 and 3."
    app.callback(help=help, context_settings=_HELP)(_options)
    for heading in _HEADINGS:
        for command in COMMANDS:
            if command.heading == heading and name in (None, command.function.__name__):
                _add(app, command)
    if name is not None:
        return app
    images = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", context_settings=_HELP)
    for command in COMMANDS:
        if not command.heading:
            _add(images, command)
    help = "Describe, validate, convert and draw OME-Zarr images; build pyramids."
    app.add_typer(images, name="ome", help=help, rich_help_panel="Images", context_settings=_HELP)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from gzarr.cpu.compiled.library import status

        print(f"gzarr {gzarr.__version__} (compiled loop: {status()})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, expose_value=False)
    ] = False,
) -> None:
    """The options of ``gzarr`` itself."""


def _add(app: typer.Typer, command: Command) -> None:
    """Add a command to an app. Its docstring becomes the help, and the examples in it the epilog."""
    name, panel = command.function.__name__, command.heading or None
    text, _, examples = inspect.cleandoc(command.function.__doc__ or "").partition("\n\nExamples\n--------\n")
    function = _reporting(command.function, failed=2 if command.tells else 1)
    help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))  # Typer breaks lines anew
    epilog = "\n".join(["Examples:", *(f"  {line}" for line in examples.splitlines())])
    app.command(name, help=help, epilog=epilog, rich_help_panel=panel, context_settings=_HELP)(function)


def _reporting(function: Callable[..., Any], failed: int) -> Callable[..., Any]:
    """A command that turns errors of gzarr, of the system and of arguments into one line and an exit code."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        try:
            return function(**options)
        except BrokenPipeError:
            raise
        except gzarr.PartsMissingError as error:
            print(error, file=sys.stderr)
            return 0
        except (GzarrError, OSError) as error:
            read = [value for name, value in options.items() if name not in _WRITTEN]
            hint = guess(read) if isinstance(error, FileNotFoundError) else ""
            complain(f"{said(error)}{hint}")
            return failed
        except ValueError as error:  # of an argument
            raise typer.BadParameter(as_typed(str(error))) from error

    return command
