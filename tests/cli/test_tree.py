"""``gzarr tree``."""

import json
from pathlib import Path

import pytest

import gzarr
from gzarr.cli.main import main


def test_tree_draws_the_group(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", str(data)]) == 0
    out = capsys.readouterr().out
    assert out == "/\n└── foo\n    └── bar (10, 20) int32, chunks (5, 10), 800 B\n"
    assert main(["tree", str(data), "--level", "1"]) == 0
    assert capsys.readouterr().out == "/\n└── foo\n"
    assert main(["tree", str(data / "foo/bar"), "--stored"]) == 0
    assert "B stored" in capsys.readouterr().out


def test_tree_says_what_has_shards_and_needs_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a.zarr", shape=(8,), chunks=(2,), shards=(4,), dtype="u1")
    with gzarr.config.set(device="cuda:99"):
        assert main(["tree", str(tmp_path / "a.zarr")]) == 0
    assert "chunks (2,), shards (4,), 8 B" in capsys.readouterr().out


# -- ls ----------------------------------------------------------------------------------------------------------------


def test_members_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(data)]) == 0
    assert capsys.readouterr().out == "foo/\n"
    assert main(["ls", str(data), "-r"]) == 0
    assert capsys.readouterr().out == "foo/\nfoo/bar\n"
    assert main(["ls", str(data / "foo"), "--long"]) == 0
    assert capsys.readouterr().out == "bar  (10, 20) int32, chunks (5, 10), 800 B\n"
    assert main(["ls", str(data / "foo/bar"), "--stored"]) == 0
    assert capsys.readouterr().out.endswith("B stored\n")
    assert main(["ls", str(data / "foo/bar")]) == 0
    assert capsys.readouterr().out == f"{data / 'foo/bar'}\n"


def test_members_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(data), "-r", "--json"]) == 0
    group, array = json.loads(capsys.readouterr().out)
    assert group == {"name": "foo", "type": "group"}
    assert (array["name"], array["shape"], array["nbytes"]) == ("foo/bar", [10, 20], 800)


# -- info --------------------------------------------------------------------------------------------------------------


def test_info_says_what_programs_want_to_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = gzarr.open_group(tmp_path / "a.zarr", mode="w", attributes={"title": "x"})
    named = {"dimension_names": ("y", None), "attributes": {"units": "K"}, "fill_value": float("nan")}
    root.create_array("t", shape=(4, 6), shards=(4, 4), chunks=(2, 2), dtype="f4", **named)
    assert main(["info", str(tmp_path / "a.zarr"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["type"], found["arrays"], found["attributes"]) == ("group", ["t"], {"title": "x"})
    assert main(["info", str(tmp_path / "a.zarr/t"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shape"], found["chunks"], found["shards"]) == ([4, 6], [2, 2], [4, 4])
    assert (found["dimension_names"], found["fill_value"], found["attributes"]) == (["y", None], "NaN", {"units": "K"})
    assert found["document"]["codecs"][0]["name"] == "sharding_indexed"
    assert main(["info", str(tmp_path / "a.zarr/t")]) == 0
    out = capsys.readouterr().out
    for line in ("Fill value         : nan", "Dimensions         : y, -", 'Attribute          : units: "K"'):
        assert line in out


def test_damaged_metadata_is_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "foo" / "bar" / "zarr.json").write_text('{"zarr_format": 3,\n "node_type": "array"}')
    assert main(["info", str(data / "foo" / "bar")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_store_of_a_user_has_its_own_module() -> None:
    class Kept(gzarr.MemoryStore):
        pass

    assert dict(gzarr.zeros(3, store=Kept()).info.items)["Store type"].startswith(f"{__name__}.")
    assert dict(gzarr.group(Kept()).info.items)["Store type"].endswith(".Kept")
    assert dict(gzarr.group().info.items)["Store type"] == "gzarr.storage.MemoryStore"


def test_accessors_show_their_array() -> None:
    z = gzarr.zeros(3)
    for accessor in (z.oindex, z.vindex, z.blocks):
        assert repr(z) in repr(accessor)


def test_info_needs_no_device(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzarr.config.set(device="cuda:99"):
        assert main(["info", str(data / "foo" / "bar")]) == 0
    assert "int32" in capsys.readouterr().out


def test_fill_values_are_numbers_and_long_attributes_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = {"_FillValue": "AAAAgB2vFUQ=", "text": "µ" * 5_000, "unit": "µm"}
    gzarr.create_array(tmp_path / "a.zarr", shape=3, dtype="f4", attributes=attributes)
    assert main(["info", str(tmp_path / "a.zarr")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "_FillValue: 1e+20" in shown
    assert 'unit: "µm"' in shown
    assert "(5,002 characters: --json shows all)" in shown
    assert shown.count("µ") < 1_100
