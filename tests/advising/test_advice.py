"""Advice: its findings and changes; taking it leaves nothing to change, and asking for it costs little."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.advising.advice import host_steps, specs_of
from gzarr.cli.main import main
from gzarr.codecs.chain import prepare
from gzarr.codecs.sharding import ShardingCodec
from gzarr.codecs.spec import ArrayRepr
from gzarr.devices import gpu_placement
from gzarr.errors import ChunkError
from gzarr.storage import MemoryStore

ACCESS_PATTERNS = ("batch", "plane", "volume", "random")


def smooth(shape: tuple[int, ...], dtype: str = "i4") -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(3).integers(0, 9, shape)
    return (sum(np.sin(axis / 9) for axis in np.indices(shape, sparse=True)) * 100 + noise).astype(dtype)


DATA = smooth((24, 64, 60))


def stored_as(**keywords: Any) -> gzarr.Array:
    return gzarr.create_array(MemoryStore(), data=keywords.pop("data", DATA), **keywords)


def about(advice: gzarr.Advice) -> set[str]:
    return {finding.about for finding in advice.findings if finding.change}


# -- taking advice -----------------------------------------------------------------------------------------------

SHARDED = ShardingCodec(chunk_shape=(8, 32, 30))
STORED: dict[str, dict[str, Any]] = {
    "one chunk": {"chunks": (24, 64, 60)},
    "slices": {"chunks": (1, 64, 60)},
    "many objects": {"chunks": (4, 8, 10)},
    "v2": {"chunks": (24, 64, 60), "zarr_format": 2},
    "v2 in F order": {"chunks": (1, 64, 60), "zarr_format": 2, "order": "F", "compressor": numcodecs.Zlib(1)},
    "blosclz": {"compressors": numcodecs.Blosc("blosclz"), "chunks": (24, 32, 60)},
    "bz2 and delta": {"compressors": numcodecs.BZ2(1), "filters": numcodecs.Delta("i4"), "chunks": (24, 32, 60)},
    "no shuffle": {"compressors": numcodecs.LZ4(), "chunks": (8, 32, 30)},
    "uncompressed": {"compressors": None, "chunks": (8, 32, 30)},
    "rectilinear": {"chunks": [[14, 10], [32, 32], [60]]},
    "shards in shards": {"shards": (24, 64, 60), "chunks": (8, 64, 60), "codecs": [SHARDED]},
    "codecs around shards": {"chunks": (24, 64, 60), "codecs": [SHARDED, numcodecs.Zstd(1)]},
    "transposed": {"chunks": (8, 32, 30), "order": "F", "data": smooth((24, 64, 60), "f8")},
    "filters of the host": {
        "chunks": (24, 32, 60),
        "zarr_format": 2,
        "filters": [numcodecs.Base64()],
        "compressor": None,
    },
    "with a checksum": {"chunks": (24, 64, 60), "compressors": [numcodecs.BZ2(1), {"name": "crc32c"}]},
    "no dimensions": {"data": np.array(5.0)},
    "empty": {"data": np.zeros((0, 5))},
    "fill value only": {"data": np.zeros((24, 64, 60), "i4"), "chunks": (1, 64, 60)},
    "layout for GPUs": {"layout": "gpu"},
    "texts": {"data": np.array(["a", "bc"] * 50, object), "dtype": str, "chunks": (1,)},
    "records": {"data": np.zeros(40000, [("x", "f4"), ("t", "S4")]), "chunks": (1000,)},
}


@pytest.mark.parametrize("stored", STORED)
def test_taking_advice_leaves_nothing_to_change(stored: str) -> None:
    z = stored_as(**STORED[stored])
    for access in ("plane", ACCESS_PATTERNS[list(STORED).index(stored) % len(ACCESS_PATTERNS)]):
        advice = gzarr.advise(z, access)
        copy = MemoryStore()
        advice.apply(copy)
        taken = gzarr.open_array(copy)
        assert np.array_equal(taken[...], z[...])
        again = gzarr.advise(taken, access)
        assert not again.changes
        assert "nothing to change" in str(again)
        assert not again.gains
        assert bool(advice.changes) == bool(advice.gains) == ("nothing to change" not in str(advice))
        if z.size and z.dtype != object:
            steps = host_steps(taken.metadata.codecs, ArrayRepr(z.dtype, taken.chunks)) if not taken.shards else []
            assert not steps


@pytest.mark.parametrize("access", ACCESS_PATTERNS)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_layout_for_an_access_is_good_for_it(zarr_format: int, access: Any) -> None:
    for shape in [(300, 200), (7, 100, 80, 3), (100000,)]:
        z = stored_as(data=smooth(shape), layout=f"gpu:{access}", zarr_format=zarr_format)
        assert not gzarr.advise(z, access).changes


LARGE = smooth((64, 128, 128))
WHOLE, SLICES, BLOCKS = (64, 128, 128), (1, 128, 128), (32, 64, 64)
BLOSCLZ, BASE64 = numcodecs.Blosc("blosclz"), numcodecs.Base64()


@pytest.mark.parametrize(
    ("stored", "access", "expected"),
    [
        ({"chunks": WHOLE}, "volume", {"chunks"}),
        ({"chunks": WHOLE}, "plane", {"chunks"}),
        ({"chunks": WHOLE, "zarr_format": 2, "compressor": numcodecs.Zstd(1)}, "random", {"chunks"}),
        ({"chunks": SLICES}, "volume", {"shards"}),
        ({"chunks": SLICES}, "plane", {"chunks", "shards"}),
        ({"chunks": SLICES, "zarr_format": 2}, "batch", set()),
        ({"chunks": SLICES, "shards": WHOLE}, "batch", set()),
        ({"chunks": (8, 8, 8)}, "volume", {"shards"}),
        ({"chunks": BLOCKS, "compressors": BLOSCLZ}, "volume", {"codec"}),
        ({"chunks": WHOLE, "compressors": BLOSCLZ, "filters": numcodecs.Delta("i4")}, "plane", {"codec", "chunks"}),
        (
            {"chunks": BLOCKS, "zarr_format": 2, "filters": [numcodecs.Base64()], "compressor": None},
            "volume",
            {"codec"},
        ),
        ({"chunks": WHOLE, "codecs": [ShardingCodec(chunk_shape=BLOCKS), numcodecs.Zstd(1)]}, "volume", {"shards"}),
        ({"chunks": (4, 4, 8)}, "volume", {"chunks", "shards"}),
        ({"chunks": (4, 4, 8), "shards": WHOLE}, "volume", {"chunks"}),
        ({"layout": "gpu"}, "volume", set()),
        ({"layout": "gpu", "zarr_format": 2}, "volume", set()),
    ],
)
def test_what_is_found(stored: dict[str, Any], access: Any, expected: set[str]) -> None:
    advice = gzarr.advise(stored_as(data=LARGE, **stored), access)
    assert about(advice) == expected
    assert math.prod(advice.changes.get("chunks", WHOLE)) * LARGE.itemsize >= 1 << 11


def test_a_shuffle_is_advised_where_it_makes_fewer_bytes() -> None:
    rows = np.arange(400000, dtype="i8").reshape(4, 250, 400) * 977
    advice = gzarr.advise(stored_as(data=rows, chunks=(4, 50, 100), compressors=numcodecs.LZ4()))
    assert "shuffle" in about(advice)
    assert advice.gains["stored_nbytes"].ratio > 1.25
    noise = np.random.default_rng(0).integers(0, 1 << 60, (4, 250, 400))
    assert "shuffle" not in about(gzarr.advise(stored_as(data=noise, chunks=(4, 50, 100), compressors=numcodecs.LZ4())))


def test_checksums_that_a_gpu_verifies_stay() -> None:
    copy = MemoryStore()
    gzarr.advise(stored_as(**STORED["with a checksum"])).apply(copy)
    assert [codec.name for codec in gzarr.open_array(copy).compressors] == ["blosc", "crc32c"]


def test_data_that_no_gpu_has_are_named() -> None:
    advice = gzarr.advise(stored_as(**STORED["texts"]))
    assert "the host reads" in str(advice)


def test_codecs_that_are_not_here_are_named() -> None:
    group = gzarr.group(zarr_format=2)
    group.create_array("a", data=DATA, compressor=numcodecs.Zlib(1))
    group.store["a/.zarray"] = group.store["a/.zarray"].replace(b'"zlib"', b'"strange"')
    assert "strange" in str(gzarr.advise(gzarr.open_group(group.store)))


# -- places ------------------------------------------------------------------------------------------------------


def test_groups_are_advised_member_by_member(tmp_path: Path) -> None:
    group = gzarr.open_group(tmp_path / "a.zarr", mode="w", attributes={"title": "x"})
    group.create_array("deep/a", data=DATA, chunks=(1, 64, 60))
    group.create_array("good", data=DATA, layout="gpu")
    advice = gzarr.advise(tmp_path / "a.zarr")
    assert isinstance(advice, gzarr.GroupAdvice)
    assert set(advice.members) == {"deep/a", "good"}
    assert set(advice.changes) == set(advice.gains) == {"deep/a"}
    dry = advice.apply(tmp_path / "b.zarr", dry_run=True)
    assert dry.dry_run
    assert not (tmp_path / "b.zarr").exists()
    report = advice.apply(tmp_path / "b.zarr")
    assert [array.path for array in report.arrays] == [array.path for array in dry.arrays] == ["deep/a", "good"]
    copy = gzarr.open_group(tmp_path / "b.zarr")
    assert copy["deep/a"].shards is not None
    assert (copy["good"].metadata, copy.attrs["title"]) == (group["good"].metadata, "x")
    assert np.array_equal(copy["deep/a"][...], DATA)
    assert not gzarr.advise(copy).changes
    alone = gzarr.advise(tmp_path / "a.zarr", path="good")
    assert isinstance(alone, gzarr.Advice)
    assert "<pre>" in advice._repr_html_()
    assert "<pre>" in alone._repr_html_()


def test_options_win_over_advice() -> None:
    group = gzarr.group()
    group.create_array("a", data=DATA, chunks=(1, 64, 60))
    chunks = (12, 32, 30)
    assert gzarr.advise(group["a"], "plane").changes["chunks"] != chunks
    for advice, path in ((gzarr.advise(group["a"], "plane"), None), (gzarr.advise(group, "plane"), "a")):
        copy = MemoryStore()
        advice.apply(copy, chunks=chunks, shards=None)
        assert gzarr.open_array(copy, path=path).chunks == chunks
        assert gzarr.open_array(copy, path=path).shards is None


def test_keywords_for_single_arrays_must_name_some() -> None:
    group = gzarr.group()
    group.create_array("a", data=DATA)
    with pytest.raises(gzarr.CopyError, match="no such array"):
        gzarr.transfer(group, MemoryStore(), each={"b": {"chunks": 10}})
    with pytest.raises(TypeError, match="'shape'"):
        gzarr.transfer(group, MemoryStore(), each={"a": {"shape": 10}})


def test_data_go_through_the_device_that_is_asked_for() -> None:
    z = stored_as(data=LARGE, chunks=WHOLE)
    device = z.to("emulated").backend._device
    device.launches.clear()
    copy = MemoryStore()
    gzarr.advise(z).apply(copy, device="emulated")
    assert "zstd" in device.launches
    assert np.array_equal(gzarr.open_array(copy)[...], LARGE)


@pytest.mark.parametrize("stored", STORED)
def test_a_gpu_would_place_steps_as_the_emulated_device_does(stored: str) -> None:
    z = stored_as(**STORED[stored]).to("emulated")
    chunk = z._io.chain((0,) * z.ndim).chunk
    ours = gpu_placement(prepare(specs_of(z.metadata), chunk), chunk)
    rows = [row for row in z.placement if not row.step.startswith("bulk")]  # who takes many chunks, of no step
    theirs = [(p.step, "cuda" if p.where == "emulated" else p.where) for p in rows]
    assert [(p.step, p.where) for p in ours] == theirs


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save(tmp_path / "a.zarr", DATA, chunks=(1, 64, 60))
    source, dest = str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    assert main(["advise", source, "--access", "plane"]) == 0
    assert str(gzarr.advise(source, "plane")) in capsys.readouterr().out
    assert main(["advise", source, "--apply", dest, "--dry-run"]) == 0
    assert "dry run" in capsys.readouterr().out
    assert main(["advise", source, "--access", "plane", "--apply", dest]) == 0
    assert "copied 1 array " in capsys.readouterr().out
    assert main(["advise", dest, "--access", "plane"]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert (main(["advise", str(tmp_path / "missing")]), main(["advise", source, "--apply", dest])) == (1, 1)
    assert "--if-exists" not in capsys.readouterr().out
    assert main(["advise", source, "--apply", dest, "--if-exists", "replace"]) == 0
    for args in (["--access", "sometimes"], ["--dry-run"], ["--if-exists", "replace"], ["--device", "cpu"]):
        with pytest.raises(SystemExit):
            main(["advise", source, *args])
    assert "--device: only with --apply" in capsys.readouterr().err


# -- what asking costs -------------------------------------------------------------------------------------------


class WatchedStore(MemoryStore):
    """Counts requests; listing is an error."""

    versions = MemoryStore.versions
    asked = 0

    def getsize(self, key: str) -> int | None:
        self.asked += 1
        return super().getsize(key)

    def get_many(self, requests: Any) -> Any:
        self.asked += len(requests)
        return super().get_many(requests)

    def get_one(self, request: Any) -> Any:
        return self.get_many((request,))[0]

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        raise AssertionError("listed")

    def list_dir(self, path: str = "") -> Any:
        raise AssertionError("listed")


@pytest.mark.parametrize("access", ACCESS_PATTERNS)
def test_a_million_chunks_are_not_listed(access: Any) -> None:
    store = MemoryStore()
    gzarr.create_array(store, shape=(10**4, 10**4, 10), chunks=(10, 10, 1), dtype="f4")[:50, :50] = 1
    watched = WatchedStore()
    for key in store:
        watched.set(key, store[key])
    advice = gzarr.advise(watched, access)
    assert watched.asked < 5000
    assert bool(advice.changes) is (access != "random")  # the indexes of shards would outweigh single elements


def test_large_chunks_are_not_decoded() -> None:
    store = MemoryStore()
    z = gzarr.create_array(store, shape=(1 << 28,), chunks=(1 << 28,), dtype="u1", compressors=numcodecs.Zstd(1))
    store.set("c/0", b"not read")
    advice = gzarr.advise(z)
    assert "stored_nbytes" not in advice.gains
    assert advice.changes["chunks"] == (1 << 18,)


def test_damaged_chunks_are_errors() -> None:
    z = stored_as(chunks=(24, 64, 60))
    z.store.set("c/0/0/0", b"damaged")
    with pytest.raises(ChunkError):
        gzarr.advise(z)


def test_gains_that_need_stored_chunks_are_left_out_without_them() -> None:
    advice = gzarr.advise(gzarr.create_array(shape=(512, 512), chunks=(8, 8), dtype="i4"))
    assert "stored_nbytes" not in advice.gains
    assert advice.gains["objects"].before == 4096


def test_an_array_in_memory_is_no_place() -> None:
    with pytest.raises(TypeError, match="an array in memory"):
        gzarr.advise(DATA)


def test_an_unknown_access_is_an_error() -> None:
    with pytest.raises(ValueError, match="'batch', 'plane', 'volume', 'random'"):
        gzarr.advise(stored_as(), "sometimes")  # type: ignore[arg-type]
