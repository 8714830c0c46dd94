"""Repairs: nothing happens unasked, what is asked for happens, and nothing else is touched."""

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError
from gzarr.storage import MemoryStore, SQLiteStore

DATA = np.arange(1, 101.0)


@pytest.fixture(params=["local", "memory", "sqlite"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Group:
    stores: dict[str, Any] = {
        "local": lambda: tmp_path / "x.zarr",
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "x.sqlite"),
    }
    root = gzarr.open_group(stores[request.param](), "w")
    root.create_array("x", data=DATA, chunks=10)
    root.create_array("s", data=DATA, chunks=10, shards=50)
    gzarr.consolidate_metadata(root)
    store = root.store
    store["x/c/3"] = b"damaged"
    store["s/c/0"] = b"damaged" + bytes(store["s/c/0"])[7:]
    store["s/c/1"] = bytes(store["s/c/1"])[:-1] + b"\0"
    store["x/c/20"] = bytes(store["x/c/0"])
    store["README"] = b"text"
    store["zarr.json"] = bytes(store["zarr.json"]).replace(b"100", b"99")
    return root


ALL = ("chunks", "leftovers", "consolidated")


def snapshot(root: gzarr.Group) -> dict[str, bytes]:
    return {key: bytes(root.store[key]) for key in root.store}


def test_a_dry_run_changes_nothing(root: gzarr.Group) -> None:
    before = snapshot(root)
    report = gzarr.repair(root, *ALL, remove=["README"])
    assert report.dry_run
    assert report.ok
    assert sorted((action.what, action.key) for action in report.actions) == [
        ("consolidate again", "zarr.json"),
        ("delete", "README"),
        ("delete", "x/c/20"),
        ("drop chunk (0,)", "s/c/0"),
        ("drop chunk (3,)", "x/c/3"),
        ("drop the whole shard", "s/c/1"),
    ]
    assert not any(action.done for action in report.actions)
    assert "dry run" in repr(report)
    assert snapshot(root) == before
    assert not gzarr.repair(root, apply=True).actions
    assert snapshot(root) == before


def test_what_is_asked_for_is_done(root: gzarr.Group) -> None:
    report = gzarr.repair(root, *ALL, remove=["README"], apply=True)
    assert (report.ok, report.left, report.to_json()["ok"]) == (True, (), True)
    assert gzarr.verify(root).ok
    assert not gzarr.verify(root).leftover_files
    expected = DATA.copy()
    expected[30:40] = 0
    assert root["x"][...].tolist() == expected.tolist()
    expected = DATA.copy()
    expected[:10] = expected[50:] = 0
    assert root["s"][...].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("kinds", "changed"),
    [(["chunks"], {"x/c/3", "s/c/0", "s/c/1"}), (["leftovers"], {"x/c/20"}), (["consolidated"], {"zarr.json"})],
)
def test_nothing_else_is_touched(root: gzarr.Group, kinds: Any, changed: set[str]) -> None:
    before = snapshot(root)
    report = gzarr.repair(root, *kinds, apply=True)
    after = snapshot(root)
    assert {key for key in before | after if before.get(key) != after.get(key)} == changed
    assert {problem.key for problem in report.left} == {
        key for key in ("x/c/3", "s/c/0", "s/c/1", "x/c/20", "zarr.json") if key not in changed
    }


def test_a_chunk_that_was_written_again_stays(root: gzarr.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr.api import checking

    verify = checking.verify_place

    def verify_and_write(*args: Any) -> Any:
        report = verify(*args)
        root["x"][30:40] = 7
        root["s"][:50] = 7
        return report

    monkeypatch.setattr(checking, "verify_place", verify_and_write)
    report = gzarr.repair(root, "chunks", apply=True)
    assert {action.key for action in report.actions if action.error} == {"x/c/3", "s/c/0"}
    assert root["x"][30:40].tolist() == [7] * 10
    assert root["s"][:50].tolist() == [7] * 50


def test_folders_of_leftover_files_lose_nothing_else(tmp_path: Path) -> None:
    for kind in (lambda: tmp_path / "x.zarr", MemoryStore):
        root = gzarr.open_group(kind(), "w")
        root.create_array("a/x", data=DATA, chunks=10)
        store = root.store
        for key in ("a/x/c/notes.txt", "a/x/c/old/4", "lost/README", "a/x/backup/1"):
            store[key] = b"text"
        for name in ("zarr.json", "c/0"):
            store[f"lost/deep/x/{name}"] = bytes(store[f"a/x/{name}"])
        keys = [leftover.key for leftover in gzarr.verify(root).leftover_files]
        assert sorted(keys) == ["a/x/backup/", "a/x/c/", "lost/"]
        before = set(store)
        report = gzarr.repair(root, remove=keys, apply=True)
        assert report.ok
        assert before - set(store) == {"a/x/c/notes.txt", "a/x/c/old/4", "lost/README", "a/x/backup/1"}
        assert not gzarr.verify(root).leftover_files


def test_leftover_files_at_the_root(tmp_path: Path) -> None:
    """The root is no group here: removing what lies in it must not remove the nodes below."""
    gzarr.create_array(tmp_path / "a" / "x.zarr", data=DATA)
    (tmp_path / "a" / "README").write_text("text")
    assert [leftover.key for leftover in gzarr.verify(tmp_path / "a").leftover_files] == ["/"]
    gzarr.repair(tmp_path / "a", remove=["/"], apply=True)
    assert not (tmp_path / "a" / "README").exists()
    assert gzarr.verify(tmp_path / "a" / "x.zarr").nobjects == 1


def test_chunks_of_an_array_that_grew_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that are appended are written before the shape."""
    from gzarr.api import checking

    z = gzarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=10)
    z.store["c/10"] = bytes(z.store["c/0"])
    verify = checking.verify_place

    def verify_and_grow(*args: Any) -> Any:
        report = verify(*args)
        document = z.store["zarr.json"]
        z.store["zarr.json"] = document.replace(b"100", b"110")
        return report

    monkeypatch.setattr(checking, "verify_place", verify_and_grow)
    report = gzarr.repair(tmp_path / "x.zarr", "leftovers", apply=True)
    assert [action.error for action in report.actions] == ["it has changed since it was verified"]
    assert gzarr.open_array(tmp_path / "x.zarr")[100:].tolist() == DATA[:10].tolist()


def test_what_is_refused(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=10)
    (tmp_path / "x.zarr" / "README").write_text("text")
    with pytest.raises(ValueError, match="'README2' is no leftover file"):
        gzarr.repair(tmp_path / "x.zarr", remove=["README2"])
    with pytest.raises(ValueError, match="'c/0' is no leftover file"):
        gzarr.repair(tmp_path / "x.zarr", remove=["c/0"], apply=True)
    with pytest.raises(ValueError, match="'chunk' is not one of 'chunks'"):
        gzarr.repair(tmp_path / "x.zarr", "chunk")  # type: ignore[arg-type]
    with pytest.raises(ReadOnlyError):
        gzarr.repair(gzarr.LocalStore(tmp_path / "x.zarr", read_only=True), remove=["README"], apply=True)
    assert (tmp_path / "x.zarr" / "README").exists()


def test_leftovers_of_killed_writers(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=10)
    (tmp_path / "x.zarr/c/.__gzarr_tmp_3").touch()
    (tmp_path / "x.zarr/.__gzarr_tmp_deleted_y/c").mkdir(parents=True)
    report = gzarr.repair(tmp_path / "x.zarr", "leftovers", apply=True)
    assert [action.done for action in report.actions] == [True, True]
    assert not list((tmp_path / "x.zarr").rglob(".__gzarr*"))
    assert gzarr.open(tmp_path / "x.zarr")[...].tolist() == DATA.tolist()


def test_a_lost_group_is_left_to_the_user(tmp_path: Path) -> None:
    root = gzarr.open_group(tmp_path / "x.zarr", "w")
    root.create_array("a/x", data=DATA)
    (tmp_path / "x.zarr/a/zarr.json").unlink()
    report = gzarr.repair(root, "chunks", "leftovers", "consolidated", apply=True)
    assert [problem.kind for problem in report.left] == ["group"]
    assert not report.actions


def test_a_broken_shard_within_a_shard_costs_its_own_chunks_only() -> None:
    from gzarr.codecs import BytesCodec, ShardingCodec

    inner = ShardingCodec((4,), codecs=[BytesCodec()])
    z = gzarr.create_array(shape=64, chunks=64, dtype="i4", codecs=[ShardingCodec((16,), codecs=[inner])])
    z[...] = np.arange(1, 65)
    shard = bytearray(z.store["c/0"])
    size = len(shard[:-68]) // 4  # of a shard within the shard, whose last bytes are a checksum
    shard[size - 1] ^= 1
    z.store["c/0"] = bytes(shard)
    problems = z.verify().problems
    assert [(p.kind, p.chunk_coords) for p in problems] == [("chunk", (i,)) for i in range(4)]
    assert gzarr.repair(z, "chunks", apply=True).ok
    assert z[...].tolist() == [0] * 16 + list(range(17, 65))
    assert z.verify().ok


@pytest.mark.parametrize("reason", [ImportError("no module"), AttributeError("no class"), OSError(28, "disk is full")])
def test_chunks_stay_that_lack_something_else_to_be_decoded(reason: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(numcodecs.abc.Codec):  # type: ignore[misc]
        codec_id = "gzarr_test_fails"
        reason: Exception | None = None

        def encode(self, buf: Any) -> bytes:
            return bytes(buf)

        def decode(self, buf: Any, out: Any = None) -> bytes:
            if self.reason:
                raise self.reason
            return bytes(buf)

    numcodecs.registry.register_codec(Fails)
    z = gzarr.create(4, chunks=2, dtype="i4", compressor=Fails(), store=MemoryStore(), zarr_format=2)
    z[:] = [1, 2, 3, 4]
    with monkeypatch.context() as patch:
        patch.setattr(Fails, "reason", reason)
        done = gzarr.repair(z, "chunks", apply=True)
    assert (done.actions, [(p.kind, p.key) for p in done.left]) == ((), [("codec", "0"), ("codec", "1")])
    assert z[:].tolist() == [1, 2, 3, 4]
