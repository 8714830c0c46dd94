"""How many Python calls reading and writing one chunk takes: what a call costs besides its bytes."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import library

PACKAGE = str(Path(gzarr.__file__).parent)
#: Since Python 3.12 these are no calls.
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}
#: Ten of a write are those of a lock whose file object owns its descriptor, so that an interrupt cannot leave it open.
READ_LIMIT, WRITE_LIMIT = 60, 90
#: Where the compiled loop takes what stands between the brackets.
BASIC_READ_LIMIT, BASIC_WRITE_LIMIT = 5, 16
CHUNK = (slice(20, 40), slice(20, 40))
VALUE = np.random.default_rng(0).integers(0, 100, (20, 20), "i4")


def calls_of(function: Callable[[], Any]) -> list[str]:
    """The calls of Python functions of gzarr that a call makes, once it is warm."""
    for _ in range(3):
        function()
    names = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in COMPREHENSIONS:
            names.append(f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_name}")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


@pytest.fixture(params=["memory", "local"])
def array(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Array:
    store = {"memory": gzarr.storage.MemoryStore, "local": lambda: gzarr.storage.LocalStore(tmp_path)}[request.param]()
    made = gzarr.create_array(store, name="a", shape=(80, 80), chunks=(20, 20), dtype="i4")
    made[...] = np.arange(6400, dtype="i4").reshape(80, 80)
    return made


@pytest.fixture(params=["compiled", "reference"])
def loop(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled" and library.status() != "on":
        pytest.skip("the compiled loop is not there")
    with config.set({"cpu.native": request.param == "compiled"}):
        yield


@pytest.mark.usefixtures("loop")
def test_a_read_of_one_chunk_makes_few_calls(array: gzarr.Array) -> None:
    calls = calls_of(lambda: array[CHUNK])
    assert len(calls) <= READ_LIMIT, calls


@pytest.mark.usefixtures("loop")
def test_an_aligned_write_of_one_chunk_makes_few_calls(array: gzarr.Array) -> None:
    calls = calls_of(lambda: array.__setitem__(CHUNK, VALUE))
    assert len(calls) <= WRITE_LIMIT, calls
    assert np.array_equal(array[CHUNK], VALUE)


def test_the_loop_takes_a_basic_selection_as_it_is(tmp_path: Path) -> None:
    if library.status() != "on":
        pytest.skip("the compiled loop is not there")
    array = gzarr.create_array(tmp_path, shape=(80, 80), chunks=(20, 20), dtype="i4")
    reads = calls_of(lambda: array[CHUNK])
    writes = calls_of(lambda: array.__setitem__(CHUNK, VALUE))
    assert len(reads) <= BASIC_READ_LIMIT, reads
    assert len(writes) <= BASIC_WRITE_LIMIT, writes
