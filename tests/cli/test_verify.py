"""``gzarr verify``."""

import json
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main


def test_status_and_report(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(data)]) == 0
    assert "no problems" in capsys.readouterr().out
    (data / "foo/bar/c/0/1").write_bytes(b"damaged")
    assert main(["verify", str(data / "foo")]) == 1
    assert "bar/c/0/1" in capsys.readouterr().out
    assert main(["verify", "--json", str(data)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert report["problems"][0]["chunk_coords"] == [0, 1]
    assert main(["verify", str(data / "none")]) == 2
    assert "neither an array nor a group" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["verify"], ["compare", "COPY"]])
def test_a_path_that_is_no_zarr_says_what_is_there(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    other = tmp_path / "a.sqlite"
    other.write_bytes(b"SQLite format 3\0")
    words = [str(data) if word == "COPY" else word for word in command]
    assert main([*words, str(other)]) == 2
    assert "a database: open it with SQLiteStore" in capsys.readouterr().err


def test_repairs_need_apply(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, readme = data / "foo/bar/c/0/1", data / "README"
    bad.write_bytes(b"damaged")
    readme.write_text("text")
    assert main(["verify", str(data), "--repair=chunks,leftovers", "--remove", "README"]) == 1
    assert "dry run: would do 2 repairs" in capsys.readouterr().out
    assert bad.exists()
    assert readme.exists()
    assert main(["verify", str(data), "--repair", "chunks", "--remove=README", "--apply", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == []
    assert not bad.exists()
    assert not readme.exists()
    assert gzarr.verify(data).ok


@pytest.mark.parametrize("options", [["--apply"], ["--repair=all"], ["--remove=c/0"]])
def test_misuse(data: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", str(data), *options])
    assert caught.value.code == 2


# -- compare -----------------------------------------------------------------------------------------------------------


def test_status_and_report_of_a_comparison(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.zarr"
    gzarr.transfer(data, other, zarr_format=2)
    assert main(["compare", str(data), str(other)]) == 0
    assert "equal" in capsys.readouterr().out
    assert main(["compare", str(data), str(other), "--strict"]) == 1
    capsys.readouterr()
    array = gzarr.open(other / "foo/bar")
    array[9, 19] = 3
    assert main(["compare", str(data), str(other), "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["equal"]
    assert main(["compare", str(data), str(other), "--atol=2"]) == 0
    assert main(["compare", str(data), str(other), "--metadata-only"]) == 0
    assert main(["compare", str(data), str(tmp_path / "none")]) == 2


def test_parts_of_a_comparison_report_their_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.arange(24).reshape(4, 6)
    gzarr.save_array(tmp_path / "a", values, chunks=(1, 6))
    values[2, 3] = 0
    gzarr.save_array(tmp_path / "b", values, chunks=(1, 6))
    codes = [main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--part", f"{k}/4"]) for k in range(4)]
    assert sorted(codes) == [0, 0, 0, 1]
    assert capsys.readouterr().out
