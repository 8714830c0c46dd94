"""What arrays and groups show in notebooks: the facts, escaped, without a request to the store for arrays."""

from html.parser import HTMLParser

import numpy as np
import pytest

import gzarr
from gzarr.display.info import size_text
from gzarr.storage import CountingStore


class Checker(HTMLParser):
    """Collects the text; notes tags that do not close in order, and tags that nothing here writes."""

    def __init__(self):
        super().__init__()
        self.text, self.open, self.tags = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(node):
    checker = Checker()
    checker.feed(node._repr_html_())
    assert checker.open == []
    assert not checker.tags & {"script", "style", "link", "b", "i", "img"}
    return "\n".join(checker.text)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_shows_what_it_is(zarr_format):
    z = gzarr.create_array({}, name="foo", shape=(1000, 700), chunks=(100, 130), dtype="i4", zarr_format=zarr_format)
    z.attrs["units"] = "K"
    text = read(z)
    for fact in (
        "/foo",
        "(1000, 700)",
        "(100, 130)",
        "2.7 MiB",
        "50.8 KiB",
        "60",
        "int32",
        "cpu",
        "MemoryStore",
        "units",
    ):
        assert fact in text
    assert f"Zarr v{zarr_format}" in text
    assert ("BloscCodec(" if zarr_format == 2 else "ZstdCodec(") in text
    assert "Shards" not in text
    assert "<svg" in z._repr_html_()


def test_shards_axes_and_read_only():
    z = gzarr.create_array({}, shape=(8, 6), chunks=(2, 2), shards=(4, 6), dimension_names=["y", None])
    text = read(gzarr.open_array(z.store, "r"))
    assert "Shards\n" in text
    for fact in ("(4, 6)", "192 B", "y, None", "read-only"):
        assert fact in text


@pytest.mark.parametrize(
    "array",
    [
        gzarr.array(3.5),
        gzarr.zeros((0, 3)),
        gzarr.create_array(shape=(60, 50), chunks=[[10, 30, 20], [25, 25]]),
        gzarr.array(np.array(["a", "b"], object)),
        gzarr.zeros((2,) * 8, chunks=1),
        gzarr.zeros(5, dtype=[("a", "i4"), ("b", "f8")]),
    ],
    ids=["no axes", "empty", "several chunk shapes", "text", "many axes", "structure"],
)
def test_unusual_arrays(array):
    assert str(array.shape) in read(array)


def test_an_array_of_an_unknown_codec_shows_itself(tmp_path):
    z = gzarr.create_array(tmp_path / "x.zarr", shape=3, zarr_format=2, compressor=None)
    key = ".zarray"
    z.store[key] = z.store[key].replace(b'"compressor": null', b'"compressor": {"id": "nobody-has-it"}')
    assert "nobody-has-it" in read(gzarr.open_array(tmp_path / "x.zarr", "r"))


def test_showing_an_array_asks_nothing_of_the_store():
    store = CountingStore(gzarr.zeros(1000, chunks=10).store)
    z = gzarr.open_array(store, "r")
    store.reset()
    read(z)
    assert (store.requests, store.listed, store.sized) == ([], [], [])


def test_a_group_lists_its_members():
    root = gzarr.group({})
    root["foo/bar/baz"] = np.arange(4)
    root.create_array("sharded", shape=100, chunks=5, shards=50, dtype="i2")
    root.attrs["title"] = 1
    text = read(root)
    for fact in ("foo", "bar", "baz", "(4,)", "int64", "MemoryStore", "title"):
        assert fact in text
    assert read(gzarr.group({}))


def test_large_and_deep_groups_are_cut():
    root = gzarr.group({})
    for i in range(60):
        root.create_group(f"g{i:02}")
    root.create_group("a/b/c/d/e")
    text = read(root)
    assert "g30" in text
    assert "g59" not in text
    assert "── b" in text
    assert "── d" not in text
    assert "Truncated" in text


def test_names_from_files_bring_no_markup():
    root = gzarr.group({}, attributes={"<script>alert(1)</script>": 1})
    root.create_array("<b onmouseover='x'>", shape=3, attributes={"<i>": 2}, dimension_names=["<img src=x>"])
    for node in (root, root["<b onmouseover='x'>"]):
        html = node._repr_html_()
        assert "<script>" not in html
        assert "<img" not in html
        assert "<b " not in html
        read(node)


def test_sizes():
    assert [size_text(n) for n in (0, 1023, 1024, 400_000_000, 3 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "381.5 MiB",
        "3.0 EiB",
    ]
