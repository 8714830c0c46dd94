"""cuFile is timed and compared with the operating system; `tests.gpu.device.test_cuda` rehearses the rest."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from benchmarks.gpu import deciding, questions
from benchmarks.gpu.streams import Gpu

GPU = Gpu(None, SimpleNamespace(zeros=np.zeros, asnumpy=np.asarray), None)


class File:
    """A file that is read as KvikIO reads it; zeros, as from tmpfs, if so wanted."""

    opened = 0

    def __init__(self, path: str, *, zeros: bool = False) -> None:
        self._path, self._zeros = Path(path), zeros
        File.opened += 1

    def pread(self, target: Any, nbytes: int) -> Any:
        if not self._zeros:
            target[:nbytes] = np.frombuffer(self._path.read_bytes()[:nbytes], np.uint8)
        return SimpleNamespace(get=lambda: nbytes)

    def close(self) -> None:
        File.opened -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def test_opening_and_reading_are_timed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "N_FILES", 8)
    found = deciding.opens(GPU, File, tmp_path)
    assert set(found) == {"1 threads", "16 threads"}
    assert all(set(row) == {"open_us", "read_us", "close_us"} for row in found.values())
    assert File.opened == 0


@pytest.mark.parametrize("zeros", [True, False])
def test_zeros_from_a_file_system_are_seen(tmp_path: Path, zeros: bool) -> None:
    found = deciding.content(GPU, lambda path: File(path, zeros=zeros), tmp_path)
    assert found["right"] is not zeros
    assert found["zeros"] is zeros
    assert found["file system"]
    assert json.dumps(found)


def test_what_decides_is_asked_first() -> None:
    assert list(questions.QUESTIONS)[: len(deciding.QUESTIONS)] == list(deciding.QUESTIONS)


def test_later_answers_join_those_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "ask", lambda name, timeout_s: {"answer": name})
    out = tmp_path / "answers.json"
    first = questions.ask_all(["wave_sizes"], out, 1, 60)
    both = questions.ask_all(["machine"], out, 1, 60, first)
    assert list(both) == ["wave_sizes", "machine"]
    assert json.loads(out.read_text()) == both
