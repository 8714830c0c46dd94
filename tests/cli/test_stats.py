"""``gzarr stats`` and ``gzarr histogram``."""

import json
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

Capture = pytest.CaptureFixture[str]
VALUES = np.random.default_rng(0).normal(size=(30, 40))


@pytest.fixture
def path(tmp_path: Path) -> str:
    values = VALUES.copy()
    values[0, 0] = np.nan
    gzarr.save_array(tmp_path / "a.zarr", values, chunks=(7, 40))
    return str(tmp_path / "a.zarr")


def test_stats(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["count"], found["n_nan"]) == (1199, 1)
    assert found["mean"] == pytest.approx(VALUES.reshape(-1)[1:].mean())
    assert main(["stats", path, "--memory", "1"]) == 0
    assert "Elements           : 1,199" in capsys.readouterr().out


def test_elements_to_skip(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save_array(path, np.array([-9999, 1, 2, 3], "i4"))
    assert main(["stats", path, "--skip", "-9999", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["count"], found["n_missing"], found["min"]) == (3, 1, 1)
    assert main(["histogram", path, "--bins", "2", "--skip", "-9999", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == [1, 2]
    gzarr.open_array(path).attrs["nodata"] = -9999
    assert main(["stats", path, "--skip", "none", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["min"] == -9999
    assert "-9999, which the data name" in told.err
    assert main(["stats", path, "--skip", "1"]) == 0
    assert "counted, as --skip says what is missing: -9999, which the data name" in capsys.readouterr().err
    for wrong in ("x", "0.5"):
        with pytest.raises(SystemExit) as stop:
            main(["stats", path, "--skip", wrong])
        assert stop.value.code == 2
    assert "or none for" in capsys.readouterr().err


def test_stats_of_nothing_are_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save_array(tmp_path / "b.zarr", np.full(3, np.nan))
    assert main(["stats", str(tmp_path / "b.zarr"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] is None


def test_numbers_are_those_of_the_type_and_spreads_of_times_have_no_origin(path: str, capsys: Capture) -> None:
    said = {"units": "hours since 2000-01-01", "missing_value": -9.0}
    gzarr.create_array(path, data=np.array([-9, -2.5, 1.1], "f4"), attributes=said, overwrite=True)
    assert main(["stats", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.partition(" : ")[2].replace(said["units"], "since") for line in lines[3:]]
    assert shown == ["-2.5 since", "1.1 since", "-0.7 since", "1.8 hours"]
    assert main(["histogram", path, "--bins", "1"]) == 0
    bar, missing = capsys.readouterr().out.splitlines()
    assert bar.startswith("-2.5 to 1.1 hours since 2000-01-01  █")
    assert missing.split() == ["missing", "1"]
    gzarr.create_array(path, data=[1], attributes={"units": "K\x1b[31m"}, overwrite=True)
    assert main(["histogram", path, "--bins", "1"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    cases = {"missing  3\n": np.full(3, -9, "i2"), "NaN  3\n": np.full(3, np.nan), "0 to 1  0\n": np.ones(0)}
    for out, data in cases.items():
        gzarr.create_array(path, data=data, attributes={"_FillValue": -9}, overwrite=True)
        assert main(["histogram", path, "--bins", "1"]) == 0
        assert capsys.readouterr().out == out


def test_histogram(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["histogram", path, "--bins", "4", "--range", "-2,2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == np.histogram(VALUES.reshape(-1)[1:], 4, (-2, 2))[0].tolist()
    assert found["edges"] == [-2, -1, 0, 1, 2]
    assert main(["histogram", path, "--bins", "4"]) == 0
    *lines, nan = capsys.readouterr().out.splitlines()
    assert (len(lines), nan) == (4, "NaN  1")
    assert max(line.count("█") for line in lines) == 50


@pytest.mark.parametrize("options", [["--range", "2,1"], ["--range", "1"], ["--range", "a,b"], ["--bins", "0"]])
def test_misuse(path: str, options: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["histogram", path, *options])
    assert stop.value.code == 2


def test_times_are_shown_as_times(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"units": "days since 2000-01-01", "scale_factor": 2.0}
    data = np.array(["2020-01-01", "NaT", "2020-01-03"], "M8[D]")
    gzarr.create_array(path, data=data, overwrite=True, attributes=said)
    assert main(["stats", path]) == 0
    shown = capsys.readouterr().out
    assert "NaT                : 1" in shown
    assert "Mean               : 2020-01-02" in shown
    assert main(["histogram", path, "--bins", "2"]) == 0
    assert "2020-01-02 to 2020-01-03" in capsys.readouterr().out
    assert main(["stats", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max"] == "2020-01-03"


def test_a_group_and_text_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save(tmp_path / "g.zarr", a=[1])
    gzarr.save_array(tmp_path / "t.zarr", ["text"])
    for name, why in {"g.zarr": "is a group: give the path", "t.zarr": "real numbers"}.items():
        assert main(["stats", str(tmp_path / name)]) == 1
        assert why in capsys.readouterr().err


def test_packed_data_are_unpacked_and_missing_ones_left_out(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = {"scale_factor": [-0.5], "add_offset": 10, "units": ["K"], "_FillValue": -1}  # as in HDF5
    gzarr.create_array(path, data=np.array([-1, 2, 4], "i2"), attributes=attributes, overwrite=True)
    assert main(["stats", path]) == 0
    assert " : 8.0 K\nMaximum            : 9.0 K\nMean               : 8.5 K" in capsys.readouterr().out
    assert main(["stats", path, "--raw", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["min"] == -1
    assert main(["histogram", path, "--bins", "2", "--range", "8,9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"counts": [1, 1], "edges": [8.0, 8.5, 9.0]}
    gzarr.create_array(path, data=np.array([-1, -2, 4], "i2"), overwrite=True)
    gzarr.open_array(path).attrs.update(_Unsigned="true", _FillValue=-1, valid_range=[0, -2])
    assert main(["stats", path]) == 0
    assert "Missing            : 1\nMinimum            : 4\nMaximum            : 65534" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["stats", "histogram"])
def test_parts_bring_together_what_one_process_makes(
    path: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, path, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    for part in ("2/3", "0/3"):
        assert main([command, path, "--json", "--part", part, "--notes", str(tmp_path / "notes")]) == 0
        told = capsys.readouterr()
        assert not told.out
        assert "parts" in told.err
    assert main([command, path, "--json", "--part", "1/3", "--notes", str(tmp_path / "notes")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        assert value is None or found[name] == pytest.approx(value)
    with pytest.raises(SystemExit):
        main([command, path, "--part", "1/3", "--workers", "2"])
