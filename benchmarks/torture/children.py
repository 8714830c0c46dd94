"""Forked processes with hard time limits, and memory that outlives them."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import select
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from benchmarks.torture.scenario import REFUSED, Counts

PATIENCE_S = 30.0  # for one child; it has at most some seconds of work
_HEAD = struct.Struct("<Q")
Status = Literal["done", "raised", "died", "killed", "hung"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a child ended.

    Attributes
    ----------
    status : {"done", "raised", "died", "killed", "hung"}
        It returned; it raised; it ended without either; `Child.kill` ended it; it had to be killed.
    value : object
        What it returned, as JSON gives it back.
    own : bool
        Whether what it raised is an error of the library.
    text : str
        The error, or where it hung.
    """

    status: Status
    value: Any = None
    own: bool = False
    text: str = ""

    def counts(self) -> Counts:
        """What this adds to the counts of a scenario, but for the value."""
        match self.status:
            case "raised":
                return Counts(
                    refused=int(self.own), raw_errors=int(not self.own), notes=(REFUSED * self.own + self.text,)
                )
            case "died":
                return Counts(raw_errors=1, notes=(self.text,))
            case "hung":
                return Counts(hung=1, notes=(self.text,))
        return Counts()


def is_own(error: BaseException) -> bool:
    """Whether an error is one that a library raises on purpose. TensorStore has none but ValueError."""
    origins = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return bool(origins & {"gzarr", "zarr"}) or ("tensorstore" in sys.modules and isinstance(error, ValueError))


def error_text(error: BaseException) -> str:
    """One line that names an error."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {' '.join(str(error).split())[:300]}"


class Log:
    """What one process did, call by call, as the result of a child."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self._counts = Counts()

    def attempt(self, name: Any, function: Callable[..., Any], *args: Any) -> bool:
        """Call a function and note how it ended. Returns: whether it returned."""
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - every way to fail is counted
            own = is_own(error)
            note = f"{REFUSED if own else ''}{name}: {error_text(error)}"
            self._counts += Counts(refused=int(own), raw_errors=int(not own), notes=(note,))
            return False
        self._counts += Counts(operations=1)
        self.done.append(name)
        return True

    def count(self, **counts: Any) -> None:
        """Add to the counts."""
        self.add(Counts(**counts))

    def add(self, counts: Counts) -> None:
        """Add counts to these."""
        self._counts += counts

    def __add__(self, other: Log) -> Log:
        both = Log()
        both.done, both._counts = self.done + other.done, self._counts + other._counts
        return both

    def to_json(self) -> dict[str, Any]:
        """What `logged` reads."""
        return {"done": self.done, "counts": self._counts.to_json()}


def logged(outcomes: Sequence[Outcome]) -> tuple[list[list[Any]], Counts]:
    """The calls that returned in every process that gave a `Log` back, and the counts of all processes."""
    total = sum((each.counts() for each in outcomes if each.status != "done"), Counts())
    values = [each.value for each in outcomes if each.status == "done"]
    total = sum((Counts.from_json(value["counts"]) for value in values), total)
    return [value["done"] for value in values], total


class Child:
    """A forked process that calls a function, whose result must be JSON values."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._pipe, write = os.pipe()
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes to it
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._run(write, function, args)
        os.close(write)
        self._status: int | None = None
        self._killed = False

    def _run(self, write: int, function: Callable[..., Any], args: Sequence[Any]) -> NoReturn:
        try:
            faulthandler.register(signal.SIGUSR1, self._trace, all_threads=True)
            faulthandler.enable(self._trace)
            try:
                reply = {"status": "done", "value": function(*args)}
            except BaseException as error:  # noqa: BLE001 - every way to end is reported
                reply = {"status": "raised", "own": is_own(error), "text": error_text(error)}
            body = json.dumps(reply).encode()
            body = _HEAD.pack(len(body)) + body
            while body:
                body = body[os.write(write, body) :]
        finally:
            os._exit(0)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._killed = True
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal; one that ended meanwhile gets none."""
        if self._ended() is None:
            os.kill(self.pid, number)

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._ended() is None

    def wait(self, timeout_s: float = PATIENCE_S) -> Outcome:
        """Wait for its end, and kill it after the timeout."""
        end = time.monotonic() + timeout_s
        body = self._read(end)
        while self._ended() is None and time.monotonic() < end:
            time.sleep(0.001)
        trace = ""
        if hung := self._ended() is None:
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
            trace = self._traced()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        elif self._status:
            trace = self._traced()
        os.close(self._pipe)
        self._trace.close()
        if hung:
            return Outcome("hung", text=f"hung for {timeout_s:.0f} s: {trace}")
        if self._killed:
            return Outcome("killed")
        if body is None:
            return Outcome("died", text=f"died with status {self._status}: {trace}")
        return Outcome(**json.loads(body))

    def _ended(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def _read(self, end: float) -> bytes | None:
        """The reply, or None if there is none. Its length is sent first, as a grandchild may keep the pipe open."""
        data = b""
        while len(data) < _HEAD.size or len(data) < _HEAD.size + _HEAD.unpack_from(data)[0]:
            over = (
                self._ended() is not None or time.monotonic() >= end
            )  # asked first: what it sent before is still read
            ready, _, _ = select.select([self._pipe], [], [], 0 if over else 0.05)
            if ready:
                more = os.read(self._pipe, 1 << 16)
                if not more:
                    return None
                data += more
            elif over:
                return None
        return data[_HEAD.size :]

    def _traced(self) -> str:
        self._trace.seek(0)
        lines = self._trace.read().decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines if line.strip())[:600]


def shared(shape: int | tuple[int, ...], dtype: npt.DTypeLike = "i8") -> npt.NDArray[Any]:
    """Zeros that this process and the children that it forks later see; they survive a killed child."""
    size = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, size * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype, size).reshape(shape)


def together(functions: Sequence[Callable[[], Any]], timeout_s: float = PATIENCE_S) -> list[Outcome]:
    """Call each function in a child of its own, all started at the same moment."""
    gate = shared(len(functions) + 1)

    def enter(number: int, function: Callable[[], Any]) -> Any:
        gate[number] = 1
        while not gate[-1]:
            time.sleep(0.0002)
        return function()

    children = [Child(enter, number, function) for number, function in enumerate(functions)]
    end = time.monotonic() + timeout_s
    while not gate[:-1].all() and time.monotonic() < end:
        time.sleep(0.0005)
    gate[-1] = 1
    return [child.wait(max(0.1, end - time.monotonic())) for child in children]


def killed(function: Callable[..., Any], *args: Any, begun: npt.NDArray[Any], after_s: float) -> Outcome:
    """Call a function in a child that is killed some time after it changed a number of ``begun``."""
    before = begun.copy()
    child = Child(function, *args)
    end = time.monotonic() + PATIENCE_S
    while child.alive() and (begun == before).all() and time.monotonic() < end:
        time.sleep(0.0002)
    time.sleep(after_s)
    child.kill()
    return child.wait()


def apart(function: Callable[..., Any], *args: Any, timeout_s: float = PATIENCE_S) -> Outcome:
    """Call a function in a child."""
    return Child(function, *args).wait(timeout_s)


def found(outcome: Outcome) -> Counts:
    """What a check says: it returns counts as JSON; that it raises is damage."""
    if outcome.status == "done":
        return Counts.from_json(outcome.value)
    hung = int(outcome.status == "hung")
    return Counts(damaged=1 - hung, hung=hung, notes=(outcome.text,))


@contextlib.contextmanager
def ended(children: Sequence[Child]) -> Any:
    """Kill whatever still runs when the block ends."""
    try:
        yield
    finally:
        for child in children:
            if child.alive():
                child.kill()
                child.wait()
