"""``gzarr convert``: what it does, prints and refuses."""

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main


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
