"""Zarr v2 becomes v3 without a chunk being touched, and other libraries read it."""

from pathlib import Path

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.copying.migrating import migrate
from gzarr.errors import MetadataError, NodeNotFoundError

DATA = np.arange(150).reshape(10, 15)


def fill(root: gzarr.Group) -> None:
    """Arrays of several forms."""
    root.attrs["title"] = "old"
    root.create_array("c", data=DATA, chunks=(3, 4), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    root.create_array("f", data=DATA, chunks=(3, 4), order="F", dimension_separator="/")
    root.create_array("s/delta", data=DATA, filters=[numcodecs.Delta("i8")], compressor=numcodecs.Blosc())
    root.create_array("s/none", shape=(4,), dtype="f4", fill_value=None)
    root.create_array("s/scalar", data=np.float32(7))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(gzarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2))
    return tmp_path / "a.zarr"


def chunks(path: Path) -> dict[str, int]:
    """The objects that hold chunks, with the time of their last change."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name[0] not in ".z"]
    return {str(file): file.stat().st_mtime_ns for file in files}


def test_chunks_stay_as_they_are(path: Path) -> None:
    before, stored = gzarr.load(path), chunks(path)
    done = migrate(path)
    assert done.written[-1] == "zarr.json"
    assert not done.removed
    root = gzarr.open_group(path, mode="r")
    assert (root.metadata.zarr_format, dict(root.attrs)) == (3, {"title": "old"})
    assert root["c"].dimension_names == ("y", "x")
    assert chunks(path) == stored
    after = gzarr.load(path)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
    for name in ("c", "f", "s/delta", "s/scalar"):
        np.testing.assert_array_equal(root[name][...], gzarr.open_array(path / name, mode="r", zarr_format=2)[...])


def test_the_reference_reads_what_was_migrated(path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    migrate(path, remove_v2=True)
    root = zarr.open_group(path, mode="r")
    for name in ("c", "f"):
        np.testing.assert_array_equal(root[name][...], DATA)


def test_nothing_of_v2_is_left_if_one_wants(path: Path) -> None:
    gzarr.consolidate_metadata(path)
    assert (path / ".zmetadata").exists()
    assert ".zmetadata" in migrate(path, remove_v2=True).removed
    assert not [file for file in path.rglob("*") if file.name.startswith(".z")]
    assert sorted(gzarr.open_consolidated(path)) == ["c", "f", "s"]
    assert gzarr.verify(path).ok
    with pytest.raises(NodeNotFoundError, match="nothing of Zarr v2"):
        migrate(path)


def test_what_was_migrated_keeps_its_changes(path: Path) -> None:
    migrate(path)
    gzarr.open_group(path).attrs["title"] = "new"
    gzarr.open_array(path / "c").resize((20, 15))
    assert migrate(path, remove_v2=True).written == ()
    assert gzarr.open_group(path, mode="r").attrs["title"] == "new"
    assert gzarr.open_array(path / "c", mode="r").shape == (20, 15)


def test_a_dry_run_writes_nothing(path: Path) -> None:
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert "dry run" in repr(migrate(path, dry_run=True, remove_v2=True))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_what_v3_cannot_say_is_refused_before_anything_is_written(path: Path) -> None:
    gzarr.open_group(path).create_array("o", data=np.array([1, "b"], object), object_codec=numcodecs.JSON())
    with pytest.raises(MetadataError, match="/o"):
        migrate(path)
    assert not list(path.rglob("zarr.json"))


def test_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(path), "--dry-run"]) == 0
    assert "dry run" in capsys.readouterr().out
    assert main(["migrate", str(path), "--remove-v2"]) == 0
    assert "deleted" in capsys.readouterr().out
    assert main(["migrate", str(path)]) == 1
