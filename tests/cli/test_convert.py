"""``gzarr convert``: what it does, prints and refuses."""

import h5py
import numpy as np

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
    assert main(["convert", str(tmp_path / "a.zarr"), str(tmp_path / "a.npy")]) == 1
    assert "can be converted to .h5 and .nc only" in capsys.readouterr().err
