"""Reads go straight to the device where that pays, and give the right bytes, with files as KvikIO's are.

KvikIO itself reads in `tests/gpu/driver/test_kvikio.py`.
"""

import os
from pathlib import Path
from typing import Any, ClassVar

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import OutOfMemoryError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.reading.kvikio import KvikioReader, Ranges, merged
from gzarr.storage import LocalStore
from gzarr.storage.coalesce import MAX_GAP_NBYTES
from tests.gpu.direct_files import DirectFiles

DATA = np.arange(1, 1 + 64 * 96, dtype="i4").reshape(64, 96)
#: Bytes of a file of an array of whole shards, and of one of its chunks.
SHARD_NBYTES, CHUNK_NBYTES = 32 * 48 * 4, 8 * 12 * 4


def opened(where: Path, reader: KvikioReader, device: EmulatedDevice | None = None) -> gzarr.Array:
    device = EmulatedDevice() if device is None else device
    return gzarr.open_array(LocalStore(where), mode="r", device=GpuBackend(device, reader=reader))


def create(where: Path, **options: Any) -> gzarr.Array:
    options = {"chunks": (8, 12), "compressor": None, "data": DATA} | options
    return gzarr.create_array(LocalStore(where), **options)


@pytest.mark.parametrize(
    ("shards", "selection", "least", "opens"),
    [
        (None, np.s_[:], CHUNK_NBYTES, 64),
        (None, np.s_[:], 2 * CHUNK_NBYTES, 0),
        ((32, 48), np.s_[:], SHARD_NBYTES, 4),
        ((32, 48), np.s_[:], 2 * SHARD_NBYTES, 0),
        ((32, 48), np.s_[:32, 40:60], 9 * CHUNK_NBYTES, 0),  # 4 chunks of one shard, 4 of another
        ((32, 48), np.s_[:32, 36:60], 4 * CHUNK_NBYTES, 2),
    ],
)
def test_files_are_opened_if_enough_is_wanted_of_each(
    tmp_path: Path, shards: Any, selection: Any, least: int, opens: int
) -> None:
    create(tmp_path / "a", shards=shards)
    direct = DirectFiles()
    np.testing.assert_array_equal(opened(tmp_path / "a", direct.reader(least))[selection], DATA[selection])
    assert direct.opened == opens
    assert bool(direct.reads) == bool(opens)


class FromTmpfs(DirectFiles):
    """Files that are read as zeros, as cuFile reads those of tmpfs; those in a folder named "disk" are read."""

    def __call__(self, path: str) -> Any:
        file = super().__call__(path)
        if "disk" not in Path(path).parts:
            os.close(file._fd)
            file._fd = os.open("/dev/zero", os.O_RDONLY)
            file.fileno = lambda: self.numbers.setdefault(path, os.open(path, os.O_RDONLY))
        return file

    numbers: ClassVar[dict[str, int]] = {}


@pytest.mark.parametrize("shards", [None, (32, 48)])
@pytest.mark.parametrize("codecs", [{}, {"compressor": numcodecs.LZ4()}])
def test_a_file_system_that_is_read_as_zeros_is_read_on_the_host(tmp_path: Path, codecs: Any, shards: Any) -> None:
    create(tmp_path / "a", shards=shards, **codecs)
    direct = FromTmpfs()
    reader = direct.reader()
    array = opened(tmp_path / "a", reader)
    assert reader.note == ""
    for _ in range(2):
        np.testing.assert_array_equal(array[:], DATA)
        np.testing.assert_array_equal(array[3, 4:8], DATA[3, 4:8])
        np.testing.assert_array_equal(array.vindex[[3, 60], [4, 90]], DATA[[3, 60], [4, 90]])
    assert len(direct.reads) == 1  # the comparison
    number = (tmp_path / "a" / "zarr.json").stat().st_dev
    says = f"device {os.major(number)}:{os.minor(number)} are read on the host"
    assert says in reader.note
    assert says in array.backend.reader.why
    assert says in " ".join(row.why for row in array.placement)
    assert reader.failure is not None


def test_what_another_batch_finds_meanwhile_counts(tmp_path: Path) -> None:
    create(tmp_path / "a")

    class Meanwhile(FromTmpfs):
        def __call__(self, path: str) -> Any:
            reader._is_sound[Path(path).stat().st_dev] = False
            return super().__call__(path)

    reader = Meanwhile().reader()
    np.testing.assert_array_equal(opened(tmp_path / "a", reader)[:], DATA)


def test_zeros_of_a_file_decide_nothing(tmp_path: Path) -> None:
    data = DATA.copy()
    data[:8] = 0
    create(tmp_path / "a", data=data, fill_value=1)
    direct = FromTmpfs()
    reader = direct.reader()
    array = opened(tmp_path / "a", reader)
    np.testing.assert_array_equal(array[:8], data[:8])
    assert (reader.note, len(direct.reads)) == ("", 0)
    assert "begin with zeros" in (reader.failure or "")
    np.testing.assert_array_equal(array[:], data)
    assert reader.note


@pytest.mark.parametrize("shards", [None, (32, 48)])
def test_a_file_that_is_replaced_before_it_is_opened_is_read_on_the_host(tmp_path: Path, shards: Any) -> None:
    """Where its chunks are was found out in the old one."""
    create(tmp_path / "a", shards=shards)
    replaced = []

    class Replacing(DirectFiles):
        def __call__(self, path: str) -> Any:
            if not replaced:
                replaced.append(path)
                gzarr.open_array(LocalStore(tmp_path / "a"), mode="r+", device="cpu")[:] = DATA + 1
            return super().__call__(path)

    direct = Replacing()
    reader = direct.reader()
    np.testing.assert_array_equal(opened(tmp_path / "a", reader)[:], DATA + 1)
    assert replaced
    assert "was replaced while it was opened" in (reader.failure or "")


@pytest.mark.parametrize("shards", [None, (32, 48)])
def test_no_objects_are_made_of_chunks(tmp_path: Path, shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "a", shards=shards)
    direct = DirectFiles()
    array = opened(tmp_path / "a", direct.reader())
    monkeypatch.setattr(CpuBackend, "load", None)
    np.testing.assert_array_equal(array[:], DATA)
    assert direct.opened == (4 if shards else 64)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 200_000), st.integers(0, 30_000)), max_size=30))
def test_ranges_are_merged_across_short_gaps(drawn: list[tuple[int, int, int]]) -> None:
    drawn = [(file, start, nbytes) for file, start, nbytes in drawn]
    files = np.array([file for file, _, _ in drawn], np.int64)
    starts, sizes = (np.array(column, np.int64) for column in zip(*[(0, 0), *[d[1:] for d in drawn]], strict=True))
    runs, run, inside = merged(Ranges({}, files, starts[1:], sizes[1:]))
    for number, (file, start, nbytes) in enumerate(drawn):
        assert runs.files[run[number]] == file
        assert runs.starts[run[number]] + inside[number] == start
        assert inside[number] + nbytes <= runs.sizes[run[number]]
    wanted = {(file, at) for file, start, nbytes in drawn for at in (start, start + nbytes)}
    for file, start, nbytes in zip(runs.files, runs.starts, runs.sizes, strict=True):
        assert {(file, start), (file, start + nbytes)} <= wanted
    order = np.lexsort((runs.starts, runs.files))
    assert (order == np.arange(order.size)).all()
    same = runs.files[1:] == runs.files[:-1]
    assert (runs.starts[1:] - (runs.starts + runs.sizes)[:-1] > MAX_GAP_NBYTES)[same].all()


def test_files_are_read_on_the_host_if_others_hold_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "a", shards=(32, 48))
    device, direct = EmulatedDevice(), DirectFiles()
    reader, allocate = direct.reader(), device.allocate

    def allocate_little(nbytes: int) -> Any:
        if nbytes > DATA.nbytes // 2:
            raise OutOfMemoryError("none left")
        return allocate(nbytes)

    monkeypatch.setattr(device, "allocate", allocate_little)
    np.testing.assert_array_equal(opened(tmp_path / "a", reader, device)[:], DATA)
    assert not direct.opened
    assert reader.failure == "none left"
