"""Ranges of files that the compiled loop reads by itself: no chunk goes through the store."""

import base64
import json
import os
import zipfile
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.cpu.compiled import library
from gzarr.errors import ReplacedError, StoreError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.storage.rules import DOCUMENTS
from gzarr.virtual.opening import _FINDERS
from gzarr.virtual.store import VirtualStore
from tests.gpu.direct_files import DirectFiles
from tests.virtual.hdf5_filters import DATA

pytestmark = pytest.mark.skipif(library.problem() is not None, reason="the compiled loop was not built")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of chunks that stores are asked for."""
    keys: list[str] = []
    original = VirtualStore.get_many

    def get_many(self, requests):
        keys.extend(key for key, *_ in requests if key.rpartition("/")[2] not in DOCUMENTS)
        return original(self, requests)

    monkeypatch.setattr(VirtualStore, "get_many", get_many)
    monkeypatch.setattr(VirtualStore, "get_one", lambda self, request: get_many(self, (request,))[0])
    return keys


def check(array, data):
    rows, columns = np.arange(0, data.shape[0], 3), np.arange(data.shape[1])[::-2]
    np.testing.assert_array_equal(array[...], data)
    np.testing.assert_array_equal(array[5], data[5])
    np.testing.assert_array_equal(array[5:40:3, 1:3], data[5:40:3, 1:3])
    np.testing.assert_array_equal(array.oindex[rows, columns], data[np.ix_(rows, columns)])
    np.testing.assert_array_equal(array.vindex[[3, 60], [1, 70]], data[[3, 60], [1, 70]])
    assert array[7, 8] == data[7, 8]
    assert [step.why for step in array.placement if step.step == "bulk reads"] == ["by the compiled loop"]


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (16, 16), "compression": "gzip", "shuffle": True, "fletcher32": True},
        {"chunks": (16, 30), "compression": "gzip"},
        {"chunks": (64, 40)},
        {"chunks": (16, 16), "fletcher32": True},
    ],
)
def test_hdf5(tmp_path: Path, asked: list[str], options) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=DATA, **options)
        file.create_dataset("behind", data=np.zeros(1 << 18))
    check(gzarr.open(tmp_path / "a.h5/x", mode="r"), DATA)
    assert asked == []


def test_data_without_chunks_at_the_end_of_their_file(tmp_path: Path) -> None:
    data = np.arange(3 << 18, dtype=">i4").reshape(3, 1 << 18)[:, : (1 << 18) - 9]
    np.save(tmp_path / "a.npy", data)
    check_some = gzarr.open(tmp_path / "a.npy", mode="r")
    np.testing.assert_array_equal(check_some[...], data)
    np.testing.assert_array_equal(check_some[:, -5:], data[:, -5:])


def test_chunks_that_were_never_written(tmp_path: Path, asked: list[str]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        sparse = file.create_dataset("sparse", (64, 80), "i2", chunks=(10, 10), fillvalue=7, compression="gzip")
        sparse[5:25, 15:25] = 3
        data = sparse[...]
        file.create_dataset("none", (64, 80), "i2", chunks=(10, 10), fillvalue=7)
    group = gzarr.open(tmp_path / "a.h5", mode="r")
    check(group["sparse"], data)
    assert (group["none"][...] == 7).all()
    assert asked == []


def references(folder: Path, n: int) -> tuple[Path, np.ndarray]:
    """References to chunks in several files, in one, inline, missing, and to whole files."""
    data = np.arange(n * 64 * 80, dtype="<i4").reshape(n * 64, 80)
    document = {"zarr_format": 2, "shape": data.shape, "chunks": [16, 40], "dtype": "<i4", "compressor": None}
    refs = {"x/.zarray": json.dumps({**document, "fill_value": 9, "filters": None, "order": "C"})}
    for number in range(n):
        with (folder / f"{number}.bin").open("wb") as file:
            for at, (local, column) in enumerate(np.ndindex(4, 2)):
                row = 4 * number + local
                chunk = np.ascontiguousarray(data[16 * row : 16 * row + 16, 40 * column : 40 * column + 40]).tobytes()
                key = f"x/{row}.{column}"
                if at == 1:
                    (folder / f"{number}.chunk").write_bytes(chunk)
                    refs[key] = [f"{number}.chunk"]
                elif at == 2:
                    data[16 * row : 16 * row + 16, 40 * column : 40 * column + 40] = 9
                elif at == 3 and number == 1:
                    refs[key] = "base64:" + base64.b64encode(chunk).decode()
                else:
                    refs[key] = [f"{number}.bin", file.tell() + 3, len(chunk)]
                    file.write(b"---" + chunk)
    (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": {".zgroup": '{"zarr_format":2}', **refs}}))
    return folder / "refs.json", data


def test_references_to_many_files(tmp_path: Path, asked: list[str]) -> None:
    path, data = references(tmp_path, 5)
    check(gzarr.open(path, mode="r")["x"], data)
    assert set(asked) == {"x/5.1"}  # the one that is in no file


def test_a_file_of_many_that_was_replaced_or_is_missing_is_named(tmp_path: Path) -> None:
    path, data = references(tmp_path, 3)
    array = gzarr.open(path, mode="r")["x"]
    np.testing.assert_array_equal(array[...], data)
    other = tmp_path / "other"
    other.write_bytes(b"\1" + (tmp_path / "1.bin").read_bytes()[1:])
    other.replace(tmp_path / "1.bin")
    np.testing.assert_array_equal(array[:64], data[:64])
    for selection in (..., 70, (70, 2)):
        with pytest.raises(ReplacedError, match=r"1\.bin.*was replaced; open it again"):
            array[selection]
    (tmp_path / "2.bin").unlink()
    with pytest.raises((ReplacedError, StoreError), match=r"2\.bin"):
        array[130]
    with pytest.raises(StoreError, match=r"2\.bin.*missing"):
        gzarr.open(path, mode="r")["x"][...]


@pytest.mark.parametrize("native", [True, False])
def test_what_is_in_no_file_is_read_through_the_store(tmp_path: Path, native: bool) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("a.npy", "w") as file:
        np.save(file, DATA)
    store = VirtualStore(partial(_FINDERS["npy"], gzarr.storage.ZipStore(tmp_path / "a.zip", mode="r"), "a.npy"), "npy")
    np.save(tmp_path / "a.npy", DATA)
    with gzarr.config.set({"cpu.native": native}):
        for source in (store, tmp_path / "a.npy"):
            array = gzarr.open_array(source, mode="r")
            np.testing.assert_array_equal(array[...], DATA)
            np.testing.assert_array_equal(array.oindex[[3, 60], [1, 70]], DATA[np.ix_([3, 60], [1, 70])])


def test_a_file_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    path, _ = references(tmp_path, 2)
    os.truncate(tmp_path / "1.bin", 4000)
    with pytest.raises(StoreError, match=r"1\.bin.*cut off"):
        gzarr.open(path, mode="r")["x"][...]


@pytest.mark.parametrize("reader", ["host", "kvikio"])
def test_devices_are_given_the_ranges(tmp_path: Path, asked: list[str], reader: str) -> None:
    path = tmp_path / "a.h5"
    options = {"chunks": (16, 16), "compression": "gzip", "shuffle": True}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, **options)
        sparse = file.create_dataset("sparse", DATA.shape, DATA.dtype, fillvalue=7, **options)
        sparse[10:30, 5:50] = DATA[10:30, 5:50]
        file.create_dataset("raw", data=DATA)
        expected = {name: file[name][...] for name in file}
    direct = DirectFiles()
    backend = GpuBackend(EmulatedDevice(), reader=direct.reader(0) if reader == "kvikio" else "host")
    with gzarr.config.set({"gpu.strict": True}):
        group = gzarr.open_group(path, mode="r", device=backend)
        for name, data in expected.items():
            for selection in (..., np.s_[3:40:5, ::7], 5):
                np.testing.assert_array_equal(np.asarray(group[name][selection]), data[selection])
    assert asked == []
    assert bool(direct.reads) == (reader == "kvikio")
    if reader == "kvikio":  # headers of deflate are read on the host, of files of Zarr too
        with h5py.File(path) as file:
            assert (os.fspath(path), file["raw"].id.get_offset(), DATA.nbytes) in direct.reads


@pytest.mark.parametrize("reader", ["host", "kvikio"])
def test_devices_read_references_and_notice_files_that_are_replaced(tmp_path: Path, reader: str) -> None:
    path, data = references(tmp_path, 3)
    direct = DirectFiles()
    backend = GpuBackend(EmulatedDevice(), reader=direct.reader(0) if reader == "kvikio" else "host")
    array = gzarr.open_group(path, mode="r", device=backend)["x"]
    np.testing.assert_array_equal(np.asarray(array[...]), data)
    other = tmp_path / "other"
    other.write_bytes(b"\1" + (tmp_path / "1.bin").read_bytes()[1:])
    other.replace(tmp_path / "1.bin")
    np.testing.assert_array_equal(np.asarray(array[:64]), data[:64])
    with pytest.raises(ReplacedError, match=r"1\.bin.*was replaced; open it again"):
        array[...]
