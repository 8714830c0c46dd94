"""``gzarr bench``."""

import json
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main


def test_every_kind_of_read_is_timed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(data / "foo/bar"), "--seconds", "0", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(read["what"], read["shape"]) for read in found["reads"]] == [
        ("one element", [1, 1]),
        ("one chunk's worth", [5, 10]),
        ("across axis 0", [1, 20]),
        ("across axis 1", [10, 1]),
        ("as much as fits", [10, 20]),
    ]
    assert all(read["seconds"] > 0 and read["runs"] >= 3 for read in found["reads"])
    assert main(["bench", str(data / "foo/bar"), "--seconds", "0"]) == 0
    assert "MB/s" in capsys.readouterr().out


def test_reads_fit_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a.zarr", shape=(1 << 10, 1 << 12), dtype="u1", chunks=(64, 64))
    assert main(["bench", str(tmp_path / "a.zarr"), "--seconds", "0", "--memory", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reads"][-1]["shape"] == [1024, 1024]


@pytest.mark.parametrize(("shape", "code"), [((), 0), ((7,), 0), ((0, 3), 1)])
def test_odd_arrays(tmp_path: Path, shape: tuple[int, ...], code: int) -> None:
    gzarr.save_array(tmp_path / "a.zarr", np.zeros(shape))
    assert main(["bench", str(tmp_path / "a.zarr"), "--seconds", "0"]) == code
