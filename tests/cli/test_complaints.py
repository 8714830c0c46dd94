"""What a command says of an error."""

from pathlib import Path

import pytest

import gzarr
from gzarr.cli.complaints import complain, guess
from gzarr.cli.main import main
from gzarr.errors import OVERWRITE, REPLACE, RESUME, SKIP


def test_a_list_of_reasons_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    complain("device 'cuda' cannot be used:\n- no driver: install one\n- no CuPy\nUse device='cpu'.")
    assert capsys.readouterr().err == (
        "gzarr: device 'cuda' cannot be used: no driver: install one; no CuPy. Use device='cpu'.\n"
    )


def test_remedies_are_spelled_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"{OVERWRITE}, {REPLACE}, {SKIP}, {RESUME}; not_resume=1 is no remedy")
    assert capsys.readouterr().err == (
        "gzarr: --if-exists replace, --if-exists replace, --if-exists skip, --resume; not_resume=1 is no remedy\n"
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tmeperature.zarr", "temperature.zarr"),
        ("tmeperature.zarr/a", "temperature.zarr/a"),
        ("temperature.zarr/foo/baar", "temperature.zarr/foo/bar"),
        ("temperature.zarr/file/x", None),
        ("other", None),
        ("temperature.zarr", None),
    ],
)
def test_a_misspelt_path_is_guessed(typed: str, meant: str | None, tmp_path: Path) -> None:
    (tmp_path / "temperature.zarr/foo/bar").mkdir(parents=True)
    (tmp_path / "temperature.zarr/file").touch()
    expected = "" if meant is None else f"; did you mean {str(tmp_path / meant)!r}?"
    assert guess([7, "s3://bucket/x", str(tmp_path / typed)]) == expected


def test_a_missing_array_is_guessed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(data / "foo/bra")]) == 1
    assert capsys.readouterr().err.endswith(f"did you mean {str(data / 'foo/bar')!r}?\n")


def test_only_what_is_read_is_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "copy.zarr").mkdir()
    assert main(["copy", str(tmp_path / "other"), str(tmp_path / "copi.zarr")]) == 1
    assert "did you mean" not in capsys.readouterr().err


def test_errors_of_the_system_name_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tmp_path / "a.nc"), str(tmp_path / "a.zarr")]) == 1
    assert capsys.readouterr().err == f"gzarr: {tmp_path / 'a.nc'}: No such file or directory\n"


# -- consolidate -------------------------------------------------------------------------------------------------------


def test_a_group_is_consolidated(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consolidate", str(data)]) == 0
    assert "2 members" in capsys.readouterr().out
    assert list(gzarr.open_consolidated(data, mode="r")) == ["foo"]
    assert main(["consolidate", str(data / "foo/bar")]) == 0
    assert "nothing to consolidate" in capsys.readouterr().out
    assert main(["consolidate", str(data / "none")]) == 1
