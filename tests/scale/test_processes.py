"""Processes with a pipe each: what they raise, and that none is left."""

import os
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from functools import partial
from multiprocessing import active_children, get_context
from pickle import PicklingError
from typing import Any

import pytest

from gzarr.scale import processes
from gzarr.scale.processes import Processes


class Unloadable:
    """What is pickled, and cannot be unpickled."""

    def __reduce__(self) -> Any:
        return divmod, (1, 0)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_go_on_after_errors_and_none_is_left(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_END_S", 120.0)  # which is waited for if one does not end by itself
    before = {*active_children()}
    errors = [
        (Unloadable, ZeroDivisionError),
        (partial(repr, Unloadable()), ZeroDivisionError),
        (partial(repr, lambda: 0), (PicklingError, AttributeError)),
        (partial(sys.exit, 3), SystemExit),
        (partial(os._exit, 3), BrokenExecutor),
    ]
    with closing(Processes(2, get_context(method))) as opened:
        for function, error in errors:
            with pytest.raises(error):
                opened.submit(function).result(60)
        made = [opened.submit(partial(bytes, 3_000_000)) for _ in range(4)]
        assert [len(one.result(60)) for one in made] == [3_000_000] * 4
        assert len({*active_children()} - before) == 2
        began = time.perf_counter()
    assert time.perf_counter() - began < processes._END_S
    assert {*active_children()} <= before


def test_an_interrupt_while_they_are_closed_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    before, opened = {*active_children()}, Processes(1, get_context("spawn"))
    futures = [opened.submit(partial(time.sleep, 600)) for _ in range(2)]
    while not futures[0].running() or {*active_children()} <= before:
        time.sleep(0.01)
    monkeypatch.setattr(processes, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        opened.close()
    assert [type(one.exception(60)).__name__ for one in futures] == ["BrokenProcessPool", "CancelledError"]
    assert {*active_children()} <= before


def test_a_process_ends_whose_parent_is_killed_meanwhile() -> None:
    script = """
import os, time
from multiprocessing import get_context
from gzarr.scale.processes import Processes
def late():
    os.write(w, b"1")
    time.sleep(0.5)
    return bytes(3_000_000)
r, w = os.pipe()
Processes(1, get_context("fork")).submit(late)
os.read(r, 1)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=300, check=False)  # until all end
