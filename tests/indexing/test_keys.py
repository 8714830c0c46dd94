"""Keys of chunks in both encodings, there and back; paths of nodes."""

import pytest

from gzarr.errors import MetadataError
from gzarr.indexing.keys import KeyEncoding, normalize_path

ENCODINGS = [KeyEncoding(name, separator) for name in ("default", "v2") for separator in ("/", ".")]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.name + e.separator)
@pytest.mark.parametrize("coords", [(), (0,), (10,), (0, 0), (3, 0, 120)], ids=str)
def test_keys_come_back_as_coordinates(encoding: KeyEncoding, coords: tuple[int, ...]) -> None:
    key = encoding.encode(coords)
    assert encoding.decode(key, len(coords)) == coords
    assert encoding.decode(key, len(coords) + 2) is None
    assert encoding.under("a/b%s", len(coords))(coords) == f"a/b%s/{key}"


def test_keys_are_those_of_the_specifications() -> None:
    assert [encoding.encode((1, 20)) for encoding in ENCODINGS] == ["c/1/20", "c.1.20", "1/20", "1.20"]
    assert [encoding.encode(()) for encoding in ENCODINGS] == ["c", "c", "0", "0"]


@pytest.mark.parametrize("name", ["", "-1", "+1", "1 ", "a", "1_0", "²", "٣", "01", "00", "zarr.json"])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.name + e.separator)
def test_other_names_are_no_chunks(encoding: KeyEncoding, name: str) -> None:
    assert encoding.decode(encoding.prefix + name, 1) is None
    assert encoding.decode(f"{encoding.prefix}1{encoding.separator}{name}", 2) is None


def test_paths_have_one_form() -> None:
    assert [normalize_path(path) for path in ("", "/", "a/b", "/a//b/", "a\\b")] == ["", "", "a/b", "a/b", "a/b"]
    with pytest.raises(MetadataError, match="half of a surrogate pair"):
        normalize_path("a/\ud800")
    assert normalize_path("a/\udcff") == "a/\udcff"
    for path in ("a/../b", ".", "a/..."):
        with pytest.raises(MetadataError, match="periods only"):
            normalize_path(path)
