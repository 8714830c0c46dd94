"""Gzip and zlib chunks are decoded, and refused, alike by libdeflate and by the standard library."""

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.cpu.codecs import compressors

LIBRARIES = "deflate", "zlib"
DATA = bytes(i * i % 251 for i in range(5000)) + bytes(3000)
DECODERS = {compressors.GZIP: compressors.DECODERS["gzip"], compressors.ZLIB: compressors.DECODERS["zlib"]}


def outcome(library: str, wbits: int, data: bytes, expected: int | None) -> bytes | None:
    """What a chunk decodes to; None if it is refused."""
    with pytest.MonkeyPatch.context() as patch:
        if library == "zlib":
            patch.setitem(sys.modules, "deflate", None)
        try:
            return bytes(DECODERS[wbits](expected)(data))
        except Exception:  # noqa: BLE001 - whatever the library raises becomes a CodecError
            return None


@pytest.mark.parametrize("wbits", DECODERS)
def test_one_stream_of_known_size_is_not_decoded_by_zlib(wbits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = zlib.compress(DATA, wbits=wbits)
    monkeypatch.setattr(zlib, "decompressobj", None)
    assert bytes(DECODERS[wbits](len(DATA))(memoryview(encoded))) == DATA


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("wbits", DECODERS)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_streams_are_decoded(library: str, wbits: int, level: int) -> None:
    for data in (b"", b"x", DATA):
        encoded = zlib.compress(data, level, wbits=wbits)
        for expected in (len(data), None):
            assert outcome(library, wbits, encoded, expected) == data
            assert outcome(library, wbits, encoded + bytes(5), expected) == data
        assert outcome(library, wbits, encoded, len(data) + 1) is None
        assert outcome(library, wbits, encoded + b"more", len(data)) is None
        assert outcome(library, wbits, encoded, 1 << 40) is None
    half = len(DATA) // 2
    members = b"".join(zlib.compress(part, level, wbits=wbits) for part in (DATA[:half], b"", DATA[half:]))
    assert outcome(library, wbits, members, len(DATA)) == (DATA if wbits == compressors.GZIP else None)
    assert outcome(library, wbits, zlib.compress(DATA, level, wbits=wbits), half) is None


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("wbits", DECODERS)
def test_streams_that_are_cut_off_are_refused(library: str, wbits: int) -> None:
    encoded = zlib.compress(DATA[:300], 6, wbits=wbits)
    for n in range(len(encoded)):
        assert outcome(library, wbits, encoded[:n], 300) is None
        assert outcome(library, wbits, encoded[:n], None) is None


@given(st.data())
def test_what_was_changed_decodes_alike_or_is_refused(data: st.DataObject) -> None:
    wbits = data.draw(st.sampled_from(sorted(DECODERS)))
    encoded = bytearray(zlib.compress(DATA, data.draw(st.sampled_from([0, 1, 9])), wbits=wbits))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for library in LIBRARIES:
        assert outcome(library, wbits, bytes(encoded), len(DATA)) in (None, DATA)


@pytest.mark.parametrize("wbits", DECODERS)
def test_chunks_are_encoded_where_libdeflate_is_not_installed(wbits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in (-1, 0, 9):
        assert zlib.decompress(compressors.deflate_encoder(wbits, level)(DATA), wbits) == DATA
    monkeypatch.setitem(sys.modules, "deflate", None)
    assert zlib.decompress(compressors.deflate_encoder(wbits, 9)(DATA), wbits) == DATA
