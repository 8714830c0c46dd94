"""Which reads and writes the device does in pieces, and the reasons that placements give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZMA

import gzarr
from gzarr.cpu.compiled import library
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.batches import Crossover
from gzarr.gpu.pipeline.eligibility import DeviceJobs

DATA = np.arange(600, dtype="i4").reshape(30, 20)
LEFT = "by the reference path: "


def opened(where: Any, reading: dict[str, Any] | None = None, **options: Any) -> gzarr.Array:
    stored = gzarr.create_array(where, **{"data": DATA, "chunks": (7, 6), **options}, device="cpu")
    return gzarr.open_array(stored.store, mode="r", **{"device": GpuBackend(EmulatedDevice()), **(reading or {})})


def reason(array: gzarr.Array) -> str:
    """How placements say that many chunks are read."""
    (row,) = (row for row in array.placement if row.step == "bulk reads")
    return row.why


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why reads were left to the reference path; nothing if they were not."""
    found: list[str] = []
    take: Callable[..., Any] = DeviceJobs.take_read

    def watched(*args: Any) -> Any:
        answer = take(*args)
        found.append(answer if isinstance(answer, str) else "")
        return answer

    monkeypatch.setattr(DeviceJobs, "take_read", watched)
    return found


def test_without_the_extension_the_reference_path_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of other stores than files go through it, too."""
    monkeypatch.setattr(library, "_loaded", lambda: (None, "the extension was not built"))
    array = opened({})
    assert reason(array) == LEFT + "the extension was not built"
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize("options", [{}, {"shards": (14, 12)}, {"compressor": None}, {"order": "F", "zarr_format": 2}])
def test_files_are_read_by_tables(tmp_path: Path, answers: list[str], options: dict[str, Any]) -> None:
    array = opened(tmp_path, **options)
    assert reason(array) == "by tables"
    np.testing.assert_array_equal(array[:], DATA)
    np.testing.assert_array_equal(array[3:29:5, ::-1], DATA[3:29:5, ::-1])
    np.testing.assert_array_equal(array.oindex[[9, 2, 2], :], DATA[[9, 2, 2]])
    np.testing.assert_array_equal(array.vindex[[29, 2, 2], [0, 19, 19]], DATA[[29, 2, 2], [0, 19, 19]])
    np.testing.assert_array_equal(array[DATA % 7 == 3], DATA[DATA % 7 == 3])
    records = np.zeros(DATA.shape, [("a", ">i2"), ("b", "f4")])
    records["a"], records["b"] = DATA, DATA / 3
    array = opened(tmp_path / "records", data=records, **options)
    np.testing.assert_array_equal(array["b"], records["b"])
    np.testing.assert_array_equal(array.get_coordinate_selection(([3, 1], [9, 2]), fields="a"), DATA[[3, 1], [9, 2]])
    np.testing.assert_array_equal(array[4:], records[4:])
    assert set(answers) == {""}
    assert [row.where for row in array.placement if row.step == "bulk reads"] == ["host"]


def test_objects_of_other_stores_are_read_by_tables_but_not_their_shards(answers: list[str]) -> None:
    array = opened({})
    assert reason(array) == "by tables"
    np.testing.assert_array_equal(array[:], DATA)
    sharded = opened({}, shards=(14, 12))
    assert "it has no files" in reason(sharded)
    np.testing.assert_array_equal(sharded[:], DATA)
    assert answers == ["", reason(sharded).removeprefix(LEFT)]


@pytest.mark.parametrize(
    ("why", "options", "reading"),
    [
        ("codecs run on the host", {"compressor": LZMA(), "zarr_format": 2}, {}),
        ("chunks differ in shape", {"chunks": ([10, 20], [20])}, {}),
    ],
)
def test_placement_says_why_an_array_is_left(
    tmp_path: Path, answers: list[str], why: str, options: dict[str, Any], reading: dict[str, Any]
) -> None:
    array = opened(tmp_path, reading, **options)
    assert reason(array) == LEFT + why
    np.testing.assert_array_equal(array[:], DATA)
    assert answers == [why]


def test_what_lives_on_the_host_is_read_there() -> None:
    array = gzarr.array(["a", "b"], chunks=1, dtype=str, device=GpuBackend(EmulatedDevice()))
    assert {row.where for row in array.placement} == {"host"}


def test_single_reads_are_left_for_reasons_of_their_own(tmp_path: Path, answers: list[str]) -> None:
    array = opened(tmp_path)
    np.testing.assert_array_equal(array[1:3, 2:4], DATA[1:3, 2:4])
    np.testing.assert_array_equal(array.vindex[[1, 20], [2, 3]], DATA[[1, 20], [2, 3]])
    np.testing.assert_array_equal(array.get_basic_selection(..., out=np.empty((30, 20), "f8")), DATA)
    assert answers == ["", "", ""]
    small = opened(tmp_path / "b", {"device": GpuBackend(EmulatedDevice(), small_reads=Crossover(4, 2000))})
    np.testing.assert_array_equal(small[:9, :9], DATA[:9, :9])
    np.testing.assert_array_equal(small[:], DATA)
    assert answers[3:] == ["reads of at most 4 chunks and 2000 bytes are decoded on the host", ""]


def test_the_setting_for_compiled_code_is_obeyed(tmp_path: Path, answers: list[str]) -> None:
    array = opened(tmp_path)
    with gzarr.config.set({"cpu.native": False}):
        np.testing.assert_array_equal(array[:], DATA)
    np.testing.assert_array_equal(array[:], DATA)
    assert ("cpu.native" in answers[0], answers[1]) == (True, "")
