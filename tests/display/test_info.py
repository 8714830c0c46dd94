"""Reports for people: names, order and alignment of lines."""

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.display.info import human_size
from gzarr.storage import LocalStore


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0"),
        (21, "21"),
        (382, "382"),
        (1023, "1023"),
        (1024, "1024 (1.0K)"),
        (33240, "33240 (32.5K)"),
        (400000000, "400000000 (381.5M)"),
        (800000000, "800000000 (762.9M)"),
        (2**40, "1099511627776 (1.0T)"),
        (2**70, "1180591620717411303424 (1024.0E)"),
    ],
)
def test_sizes(nbytes, text):
    assert human_size(nbytes) == text


def test_format_3(tmp_path):
    store = LocalStore(tmp_path / "x.zarr")
    z = gzarr.create_array(
        store, name="a", shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="f4", filters=[numcodecs.Delta("f4")]
    )
    z[:50, :50] = 1
    stored = sum(f.stat().st_size for f in (tmp_path / "x.zarr" / "a").rglob("*") if f.is_file())
    assert str(z.info) == (
        "Name               : /a\n"
        "Type               : gzarr.Array\n"
        "Zarr format        : 3\n"
        "Data type          : float32\n"
        "Shape              : (100, 100)\n"
        "Chunk shape        : (10, 10)\n"
        "Shard shape        : (50, 50)\n"
        "Order              : C\n"
        "Read-only          : False\n"
        "Filter [0]         : NumcodecsCodec(id='delta', config={'dtype': '<f4',\n"
        "                   : 'astype': '<f4'})\n"
        "Serializer         : BytesCodec(endian='little')\n"
        "Compressor         : ZstdCodec(level=0, checksum=False)\n"
        "Store type         : gzarr.storage.LocalStore\n"
        "No. bytes          : 40000 (39.1K)\n"
        f"No. bytes stored   : {human_size(stored)}\n"
        f"Storage ratio      : {40000 / stored:.1f}\n"
        "Chunks initialized : 25/100"
    )


def test_format_2_without_compressor():
    z = gzarr.zeros((3,), zarr_format=2, compressor=None, order="F")
    names = [line.partition(" : ")[0].strip() for line in str(z.info).splitlines()]
    assert names == [
        *("Type", "Zarr format", "Data type", "Shape", "Chunk shape", "Order", "Read-only", "Store type"),
        *("No. bytes", "No. bytes stored", "Storage ratio", "Chunks initialized"),
    ]
    assert "Chunks initialized : 0/1" in str(z.info)


def test_every_line_is_aligned_and_none_is_wide():
    z = gzarr.zeros(
        (3,) * 10, zarr_format=2, dtype="u1", filters=[numcodecs.FixedScaleOffset(0, 1000000, "u1", "u1")] * 3
    )
    for line in str(z.info).splitlines():
        assert line[18:21] == " : "
        assert len(line) <= 80


def test_read_only_views_show_the_store_they_view(tmp_path):
    for store, name in (({}, "MemoryStore"), (tmp_path / "x.zarr", "LocalStore"), (tmp_path / "x.zip", "ZipStore")):
        root = gzarr.open(store, mode="w")
        root["a"] = np.arange(3)
        root.store.close()
        for node in (gzarr.open(store, mode="r"), gzarr.open(store, path="a", mode="r")):
            assert f"gzarr.storage.{name}" in str(node.info)
            assert "Read-only" in str(node.info)
            assert ": True" in str(node.info)
            node.store.close()
    store = gzarr.MemoryStore()
    gzarr.zeros(3, store=store)
    assert "Store type         : gzarr.storage.MemoryStore" in str(gzarr.open(store, mode="r").info)


def test_html_is_escaped():
    root = gzarr.group()
    root.create_array("<b>", shape=3)
    assert "&lt;b&gt;" in root.tree()._repr_html_()
    assert "<b>" not in root.info._repr_html_()
    assert "<tr><th align='left'>Type</th><td align='left'>gzarr.Array</td></tr>" in root["<b>"].info._repr_html_()


def test_variable_length_elements_and_rectilinear_chunks():
    assert "Data type          : string" in str(gzarr.array(["a"], dtype=str).info)
    assert "Chunk shape        : ((1, 2),)" in str(gzarr.zeros(3, chunks=[[1, 2]]).info)
