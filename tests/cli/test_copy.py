"""``gzarr copy``: what it does, prints and refuses."""

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main


@pytest.fixture
def source(tmp_path):
    root = gzarr.create_group(tmp_path / "a.zarr", zarr_format=2)
    root.create_array("x", data=np.arange(600).reshape(20, 30), chunks=(5, 30))
    return str(tmp_path / "a.zarr")


def test_copy_rechunks_reencodes_and_converts(source, tmp_path, capsys):
    dest = str(tmp_path / "b.zarr")
    options = ["--chunks", "10,10", "--shards", "20,30", "--compressor", "zstd:3", "--zarr-format", "3"]
    assert main(["copy", source, dest, *options, "--dry-run"]) == 0
    assert "dry run: would copy 1 array (4,800 bytes)" in capsys.readouterr().out
    assert not (tmp_path / "b.zarr").exists()
    assert main(["copy", source, dest, *options]) == 0
    assert "copied 1 array (4,800 bytes) and 1 group" in capsys.readouterr().out
    z = gzarr.open(dest)["x"]
    assert (z.chunks, z.shards, z.zarr_format) == ((10, 10), (20, 30), 3)
    assert "level=3" in repr(z.compressors)
    assert np.array_equal(z[:], np.arange(600).reshape(20, 30))


def test_copy_refuses_replaces_skips_and_resumes(source, tmp_path, capsys):
    dest = str(tmp_path / "b.zip")
    assert main(["copy", source, dest, "--compressor", "none"]) == 0
    assert gzarr.open(dest, mode="r")["x"].compressor is None
    capsys.readouterr()
    assert main(["copy", source, dest]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gzarr: something is already stored")
    assert "pass --if-exists replace, --if-exists skip or" in error
    assert error.count("\n") == 1
    assert main(["copy", source, dest, "--if-exists", "skip"]) == 0
    assert main(["copy", source, dest, "--if-exists", "replace", "--memory", "1", "--chunks", "7"]) == 0
    assert gzarr.open(dest, mode="r")["x"].chunks == (7, 7)
    assert main(["copy", source, dest, "--resume", "--chunks", "7"]) == 0
    assert "1 array existed already" in capsys.readouterr().out
    assert main(["copy", source, source]) == 1
    assert "the destination is the source" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--compressor", "nonsense"], ["--compressor", "zstd:x"], ["--zarr-format", "2", "--shards", "5"]],
)
def test_bad_options_are_one_line(source, tmp_path, capsys, arguments):
    assert main(["copy", source, str(tmp_path / "b.zarr"), *arguments]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize("option", [["--memory", "0"], ["--memory", "x"], ["--chunks", "a"], ["--chunks", ""]])
def test_wrong_numbers_are_misuse_that_is_explained(source, tmp_path, capsys, option):
    with pytest.raises(SystemExit) as stopped:
        main(["copy", str(source), str(tmp_path / "b.zarr"), *option])
    assert stopped.value.code == 2
    assert f"{option[1]!r} is not a" in capsys.readouterr().err


def test_lists_apply_where_they_fit(source, tmp_path, capsys):
    root = gzarr.open_group(source)
    root.create_array("t", data=np.arange(20), chunks=(4,))
    root.create_array("deep/y", data=np.zeros((4, 6)), chunks=(2, 2))
    dest = str(tmp_path / "b.zarr")
    assert main(["copy", source, dest, "--chunks", "4,6", "--each", "x:chunks=20,10"]) == 0
    assert capsys.readouterr().err == "left as they are, of other dimensions: t\n"
    copied = gzarr.open_group(dest, mode="r")
    assert [copied[name].chunks for name in ("x", "t", "deep/y")] == [(20, 10), (4,), (4, 6)]
    with pytest.raises(SystemExit, match="2"):
        main(["copy", source, str(tmp_path / "c.zarr"), "--chunks", "4,6,8"])
    assert "no array has 3 axes" in " ".join(capsys.readouterr().err.split())
