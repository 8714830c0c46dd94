"""Short runs of the cells of some scenarios, as tests."""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.torture import stores
from benchmarks.torture.catalogue import BY_NAME
from benchmarks.torture.cell import LIMIT_S, ROOT, Cell, cells
from benchmarks.torture.scenario import Counts, Scenario, Setting

SEED = 1
#: Cells are forked from a process that has imported everything and run nothing, as imports take longer than they do.
_FORKED = multiprocessing.get_context("forkserver")


def cells_of(scenarios: Iterable[Scenario]) -> list[object]:
    """The cells of scenarios, as parameters of a test."""
    names = {each.name for each in scenarios}
    return [pytest.param(cell, id=cell.name) for cell in cells() if cell.scenario.name in names]


def run_briefly(cell: Cell, budget_s: float) -> None:
    """Fail if a cell loses something; one that is not promised must only end by itself."""
    if cell.absence:
        pytest.skip(cell.absence)
    counts = run_forked(cell, budget_s * cell.scenario.weight)
    assert cell.unsafe or counts.operations, f"nothing ran: {counts}"
    again = f"python -m benchmarks.torture --only '{cell.scenario.name}' --store {cell.store} --seed {SEED}"
    assert cell.unsafe or not counts.losses, f"{counts}\nRepeat it with: {again}"


def run_forked(cell: Cell, budget_s: float) -> Counts:
    """What `benchmarks.torture.cell.run` does, without starting Python again."""
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}):
        _FORKED.set_forkserver_preload([__name__, "gzarr"])
        forkserver.ensure_running()
    receiver, sender = _FORKED.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="gzarr-torture-", ignore_cleanup_errors=True) as folder, receiver:
        setting = Setting(budget_s, SEED, cell.store, cell.writer, Path(folder))
        process = _FORKED.Process(target=_run, args=(sender, cell.scenario.name, setting))
        process.start()
        sender.close()
        assert process.pid is not None
        with _ended(process.pid):
            if not receiver.poll(2 * budget_s + LIMIT_S):
                return Counts(hung=1, notes=(f"{cell.scenario.name} itself did not end",))
            found = receiver.recv()  # an EOFError if it died
            process.join(LIMIT_S)
        process.join()
    assert isinstance(found, dict), found
    return Counts.from_json(found)


def _run(sender: Connection, name: str, setting: Setting) -> None:
    os.setsid()
    multiprocessing.set_start_method("fork", force=True)  # as ever: libraries that are imported make locks
    try:
        stores.import_client(setting.store)
        with stores.served(setting.store, setting.folder):
            counts = BY_NAME[name].run(setting)
        sender.send(counts.to_json())
    except BaseException:  # noqa: BLE001 - the test fails with whatever it was
        sender.send(traceback.format_exc())


@contextlib.contextmanager
def _ended(pid: int) -> Iterator[None]:
    """Kill a process that leads a session, and all processes it left."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
