"""How iterations end: exceptions, Ctrl-C, the interpreter's exit; and what other processes make of them.

Every case runs in a process of its own with a limit of time, so that a hang is one failing test.
"""

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import gzarr

def slow(batch):
    time.sleep(0.002)
    return batch

data = np.arange(1200 * 50).reshape(1200, 50)

def new_loader(**keywords):
    z = gzarr.array(data, chunks=(8, 50))
    return gzarr.Loader(z, 16, shuffle=True, memory=100_000, **keywords)
"""


def run(code):
    """Run a program. Returns: what it printed."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + textwrap.dedent(code)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout.split()


def test_break_and_exceptions_end_the_thread_and_another_iteration_begins():
    assert run(
        """
        loader = new_loader(transform=slow)
        for i, batch in enumerate(loader):
            if i == 3:
                break
        try:
            for batch in loader:
                raise ValueError
        except ValueError:
            pass
        print(sum(len(batch) for batch in loader))
        loader.close()
        del loader, batch

        def runs(frame):
            return frame is not None and ("producing" in frame.f_code.co_filename or runs(frame.f_back))

        end = time.time() + 60
        while any(map(runs, sys._current_frames().values())) and time.time() < end:
            time.sleep(0.01)
        print("ended" if time.time() < end else "goes on")
        """
    ) == ["1200", "ended"]


def test_the_interpreter_exits_amid_an_iteration():
    assert run(
        """
        loader = new_loader(transform=slow)
        batches = iter(loader)
        next(batches)
        print("exits")
        """
    ) == ["exits"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_goes_on_where_its_parent_stood():
    assert run(
        """
        loader = new_loader(transform=slow)
        expected = [loader.batch_ids(step).tolist() for step in range(len(loader))]
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        idle = os.fork()
        if not idle:
            del batches, loader
            sys.exit(0)
        pid = os.fork()
        ok = all((batch == data[ids]).all() for batch, ids in zip(batches, expected[3:], strict=True))
        again = sum(len(batch) for batch in loader)
        if not pid:
            os._exit(0 if ok and again == 1200 else 1)
        print(os.waitpid(pid, 0)[1], os.waitpid(idle, 0)[1], ok, again)
        """
    ) == ["0", "0", "True", "1200"]
