"""``gzarr copy``: what it does, prints and refuses."""

from contextlib import suppress

import h5py
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
    parts = str(tmp_path / "parts.zarr")
    assert main(["copy", source, parts, "--chunks", "7", "--part", "0/2"]) == 0
    assert "this part copied" in capsys.readouterr().out
    assert main(["info", parts]) == 1
    assert "--resume, or the parts that are left with --part K/N" in capsys.readouterr().err
    assert main(["copy", source, parts, "--chunks", "7", "--part", "1/2"]) == 0
    gzarr.open(parts)["x"].store["x/0.0"] = b"damaged"
    assert main(["stats", f"{parts}/x"]) == 1
    assert "`gzarr verify` finds all that is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--compressor", "nonsense"], 1),
        (["--compressor", "zstd:x"], 1),
        (["--zarr-format", "2", "--shards", "5"], 1),
        *((option, 2) for option in (["--memory", "0"], ["--memory", "x"], ["--chunks", "a"], ["--chunks", ""])),
    ],
)
def test_bad_options_are_explained(source, tmp_path, capsys, arguments, code):
    with suppress(SystemExit):
        assert main(["copy", source, str(tmp_path / "b.zarr"), *arguments]) == code == 1
    error = capsys.readouterr().err
    assert (f"{arguments[1]!r} is not a" in error) if code == 2 else error.count("\n") == 1
    assert not (tmp_path / "b.zarr").exists()


def test_lists_apply_where_they_fit(source, tmp_path, capsys):
    root = gzarr.open_group(source)
    root.create_array("t", data=np.arange(20), chunks=(4,))
    root.create_array("deep/y", data=np.zeros((4, 6)), chunks=(2, 2))
    dest = str(tmp_path / "b.zarr")
    assert main(["copy", source, dest, "--chunks", "4,6", "--each", "x:chunks=20,10"]) == 0
    assert capsys.readouterr().err == "left as they are, of other dimensions: t\n"
    copied = gzarr.open_group(dest, mode="r")
    assert [copied[name].chunks for name in ("x", "t", "deep/y")] == [(20, 10), (4,), (4, 6)]
    assert main(["copy", source, str(tmp_path / "c.zarr"), "--chunks", "4,6,8"]) == 1
    assert "no array has 3 axes" in capsys.readouterr().err
    gzarr.convert.to_hdf5(source, tmp_path / "a.h5")
    assert main(["convert", str(tmp_path / "a.h5"), str(tmp_path / "d.zarr"), "--chunks", "4,6"]) == 0
    assert capsys.readouterr().err == "left as they are, of other dimensions: t\n"
    assert gzarr.open_array(tmp_path / "d.zarr/deep/y").chunks == (4, 6)


# -- convert -----------------------------------------------------------------------------------------------------------


def test_convert_reads_and_writes_files(tmp_path, capsys):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(10)
    zarr = str(tmp_path / "a.zarr")
    assert main(["convert", str(tmp_path / "a.h5"), zarr, "--chunks", "4"]) == 0
    assert gzarr.open(zarr)["x"].chunks == (4,)
    for name in ("b.nc", "b.h5"):
        assert main(["convert", zarr, str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.endswith(f"{name}\n")
        assert main(["convert", zarr, str(tmp_path / name)]) == 1
        assert main(["convert", zarr, str(tmp_path / name), "--if-exists", "replace"]) == 0
        assert main(["convert", zarr, str(tmp_path / name), "--chunks", "4"]) == 1
        assert "takes no options" in capsys.readouterr().err
    kept = (tmp_path / "b.nc").read_bytes()
    (tmp_path / "l.nc").symlink_to("b.nc")
    for dest in ("b.nc", "./b.nc", "l.nc"):
        assert main(["convert", str(tmp_path / "b.nc"), f"{tmp_path}/{dest}", "--if-exists", "replace"]) == 1
        assert f"{dest}' itself; name another file" in capsys.readouterr().err
    with pytest.raises(gzarr.CopyError, match="itself"):
        gzarr.convert.to_hdf5(gzarr.concat([gzarr.open(tmp_path / "b.h5")["x"]]), tmp_path / "b.h5", overwrite=True)
    assert (tmp_path / "b.nc").read_bytes() == kept
    (tmp_path / "text.txt").write_text("hello")
    assert main(["convert", str(tmp_path / "text.txt"), str(tmp_path / "c.zarr")]) == 1
    assert "is unknown" in capsys.readouterr().err
    assert not (tmp_path / "c.zarr").exists()


def test_zarr_is_converted_to_some_formats_only(tmp_path, capsys):
    gzarr.save(tmp_path / "a.zarr", [1])
    assert main(["convert", str(tmp_path / "a.zarr"), str(tmp_path / "a.csv")]) == 1
    assert "can be converted to .h5, .nc or .tif only" in capsys.readouterr().err


def test_tiff_and_npy_are_converted(tmp_path, capsys):
    pixels = np.arange(48, dtype="u1").reshape(6, 8)
    gzarr.save(tmp_path / "a.zarr", pixels)
    np.save(tmp_path / "a.npy", pixels)
    assert main(["convert", str(tmp_path / "a.zarr"), str(tmp_path / "a.tif")]) == 0
    for name in ("a.tif", "a.npy"):
        assert main(["convert", str(tmp_path / name), str(tmp_path / f"{name}.zarr")]) == 0
        assert np.array_equal(gzarr.open(tmp_path / f"{name}.zarr")[:], pixels)
    capsys.readouterr()


def test_chunks_by_axes_and_arrays(tmp_path, capsys):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("t", "u"):
            file[name] = np.zeros((4, 6))
            file[name].dims[0].label = "time"
        file["same"] = file["t"]
    source, dest = str(tmp_path / "a.h5"), str(tmp_path / "a.zarr")
    each = ["--each", "u:chunks=-1,3", "--each", "u:compressor=none"]
    assert main(["convert", source, dest, "--chunks", "time=1", *each]) == 0
    root = gzarr.open(dest, mode="r")
    assert [root["same"].chunks, root["u"].chunks, root["u"].compressors] == [(1, 6), (4, 3), ()]
    assert "t" not in root
    assert main(["convert", source, dest, "--links", "copy", "--if-exists", "replace"]) == 0
    assert "t" in gzarr.open(dest, mode="r")
    capsys.readouterr()
    assert main(["convert", source, dest, "--chunks", "hour=1", "--if-exists", "replace"]) == 1
    assert "no axis named 'hour'; it has time" in capsys.readouterr().err
    for wrong in ("u", "u:chunks", "u:format=3", ":chunks=1"):
        with pytest.raises(SystemExit) as stopped:
            main(["convert", source, dest, "--each", wrong])
        assert stopped.value.code == 2
