"""The command ``gzarr``: what it prints, and how it fails."""

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import _made, main
from gzarr.cli.options import colored, print_report
from gzarr.display.info import Report
from gzarr.errors import DeviceError


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gzarr", *args], capture_output=True, text=True, check=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    out = capsys.readouterr().out
    assert re.fullmatch(rf"gzarr {re.escape(gzarr.__version__)} \(compiled loop: (on|off: .+)\)\n", out)


def leaves(group: Any) -> dict[str, Any]:
    """All commands by their names, those of groups too."""
    found = {}
    for name, command in group.commands.items():
        inner = leaves(command) if hasattr(command, "commands") else {}
        found |= {f"{name} {leaf}": made for leaf, made in inner.items()} or {name: command}
    return found


COMMANDS = leaves(_made(None))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_can_be_typed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("ID", "3"), ("MIN", "0"), ("COUNT", "64")):  # those of a task, for --part slurm
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{variable}", value)
    examples = [line.removeprefix("  $ ") for line in COMMANDS[name].epilog.splitlines() if line.startswith("  $ ")]
    assert examples
    for example in examples:
        words = shlex.split(example.removeprefix('eval "$(').split(">")[0].split(")")[0], comments=True)
        assert " ".join(words).startswith(f"gzarr {name}")
        COMMANDS[name].make_context(name, words[1 + len(name.split()) :]).close()


def test_the_documentation_lists_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    assert [name for name in COMMANDS if f"`gzarr {name}" not in page and f"`{name.split()[-1]}`" not in page] == []
    shown = "".join(re.findall(r"```\n(.*?)```", page, re.DOTALL))
    for line in re.findall(r"^gzarr .*$", shown, re.MULTILINE):
        _, name, *words = shlex.split(line)
        COMMANDS[name].make_context(name, words).close()


def test_the_help_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys; from gzarr.cli.main import main; main(['--help']); "
        "sys.exit(bool({'numpy', 'numcodecs', 'pydantic', 'gzarr.api.open'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(name.split()[0] in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(("typed", "meant"), [(["inof"], "info"), (["copy", "--chunk", "1"], "--chunks")])
def test_a_misspelt_word_is_guessed(typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(typed)
    assert stop.value.code == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("command", ["info", "tree", "ls", "stats", "consolidate", "migrate", "bench", "serve"])
def test_a_missing_path_is_one_line_and_exit_code_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path / "missing.zarr")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gzarr: ")
    assert "missing.zarr" in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_looking_changes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    main(["info", str(data)])
    main(["tree", str(data)])
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DeviceError("no CUDA device;\n  install gzarr[gpu]"), "gzarr: no CUDA device; install gzarr[gpu]\n"),
        (PermissionError(13, "Permission denied", "demo-out"), "gzarr: demo-out: Permission denied\n"),
    ],
)
def test_errors_are_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gzarr, "advise", Mock(side_effect=error))
    assert main(["advise", "x"]) == 1
    assert capsys.readouterr().err == line


def test_warnings_are_one_line(tmp_path: Path) -> None:
    gzarr.open_group(tmp_path / "g", mode="w")
    (tmp_path / "g/lost").symlink_to(tmp_path / "gone")
    done = run("copy", str(tmp_path / "g"), str(tmp_path / "h"))
    assert done.returncode == 0
    assert re.fullmatch(r"gzarr: warning: .*symbolic link.*\n", done.stderr)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzarr, "advise", Mock(side_effect=KeyError("bug")))
    with pytest.raises(KeyError):
        main(["advise", "x"])


@pytest.mark.parametrize("args", [[], ["frobnicate"], ["info"], ["tree", "a", "b"]])
def test_misuse_exits_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert "Usage: gzarr" in "".join(capsys.readouterr())


def test_python_m_gzarr_is_the_command(data: Path) -> None:
    done = run("tree", str(data))
    assert (done.returncode, done.stderr) == (0, "")
    assert "bar (10, 20) int32" in done.stdout


@pytest.mark.parametrize("args", [["tree"], ["copy", "--help"]])
def test_a_reader_that_leaves_early_sees_no_traceback(args: list[str], data: Path) -> None:
    command = [sys.executable, "-m", "gzarr", *args, *([str(data)] if args == ["tree"] else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == ""
    assert process.wait() == 0


#: Gets Ctrl-C, as from a terminal, between the chunks and the metadata of an array.
INTERRUPTED_COPY = """
import os, signal, sys
import gzarr.copying.planning
from gzarr.cli.main import main
planning = sys.modules["gzarr.copying.planning"]
real = planning.close_array
def close_array(*args):
    os.kill(os.getpid(), signal.SIGINT)
    real(*args)
planning.close_array = close_array
sys.exit(main())
"""


def test_ctrl_c_is_one_line_that_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    arguments = ["copy", str(data), str(tmp_path / "copy.zarr"), "--chunks", "1,10"]
    command = [sys.executable, "-c", INTERRUPTED_COPY, *arguments]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert re.fullmatch(
        r"gzarr: interrupted: the copy to .*copy\.zarr stopped at .* --resume, or delete .*\n", stopped.stderr
    )
    assert main(["tree", str(tmp_path / "copy.zarr" / "foo" / "bar")]) == 1
    assert main([*arguments, "--resume"]) == 0
    copy = gzarr.open_array(tmp_path / "copy.zarr" / "foo" / "bar", "r")
    assert np.array_equal(copy[...], np.ones((10, 20)))


def test_ctrl_c_in_any_command_exits_with_130(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, args in {"open": ["info", str(data)], "open_group": ["tree", str(data)]}.items():
        monkeypatch.setattr(gzarr, name, Mock(side_effect=KeyboardInterrupt))
        assert main(args) == 130
        assert capsys.readouterr().err == "gzarr: interrupted\n"


def test_a_short_option_asks_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["bench"], ["ome", "info"]):
        assert main([*command, "-h"]) == 0
        assert "Usage: gzarr" in capsys.readouterr().out


# -- completion --------------------------------------------------------------------------------------------------------


def asked(**asking: str) -> str:
    """What the program answers to variables of a shell."""
    command = [sys.executable, "-m", "gzarr"]
    return subprocess.run(command, env={**os.environ, **asking}, capture_output=True, text=True, check=False).stdout


def test_commands_are_completed() -> None:
    """By a script for bash, and as that asks."""
    assert "_GZARR_COMPLETE=complete_bash" in asked(_GZARR_COMPLETE="source_bash")
    assert asked(_GZARR_COMPLETE="complete_bash", COMP_WORDS="gzarr ome thu", COMP_CWORD="2") == "thumbnail\n"


# -- colours -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def test_only_terminals_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert colored("a", "red", stream=io.StringIO()) == "a"
    assert colored("a", "red", bold=True, stream=Terminal()) == "\x1b[31m\x1b[1ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored("a", "red", stream=Terminal()) == "a"


def test_terminals_without_codes_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert colored("a", "red", stream=Terminal()) == "a"


def test_the_names_of_a_report_are_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    print_report(Report([("Name", "/"), ("Order", "C")]))
    assert out.getvalue() == "\x1b[36mName \x1b[0m : /\n\x1b[36mOrder\x1b[0m : C\n"
