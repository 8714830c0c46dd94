"""Strings and bytes of variable length by compiled code, beside numcodecs."""

import random
import sysconfig

import numpy as np
import pytest
from numcodecs.vlen import VLenBytes, VLenUTF8

import gzarr
from gzarr.cpu.codecs.objects import decode_items, encode_items
from gzarr.cpu.compiled import library

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: A free-threaded Python leaves encoding to numcodecs: another thread could change the elements meanwhile.
ENCODES = not sysconfig.get_config_var("Py_GIL_DISABLED")
TEXTS = ["", "a", "\0", "ß" * 70, "東京", "\U0001f600", None, "x" * 1000, "end"]


def objects(items):
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize("text", [True, False])
def test_items_are_those_of_numcodecs(text) -> None:
    items = objects(TEXTS if text else [None if item is None else item.encode() for item in TEXTS])
    codec = VLenUTF8() if text else VLenBytes()
    encoded = codec.encode(items)
    assert encode_items(items, text=text) == (encoded if ENCODES else None)
    wanted = codec.decode(encoded).tolist()
    for first, stop in ((0, len(items)), (2, 5), (8, 9), (4, 4)):
        out = np.empty(stop - first, object)
        assert decode_items(encoded, len(items), first, out, text=text)
        assert out.tolist() == wanted[first:stop]


@pytest.mark.parametrize(("item", "text"), [(1, True), (b"a", True), ("\ud800", True), ("a", False), ([], False)])
def test_what_cannot_be_encoded_is_left(item, text) -> None:
    assert encode_items(objects([None, item]), text=text) is None


def test_damage_is_left() -> None:
    n, rng = len(TEXTS), random.Random(1)
    sound = bytes(VLenUTF8().encode(objects(TEXTS)))
    out = np.empty(n, object)
    assert not any(decode_items(sound[:end], n, 0, out, text=True) for end in range(len(sound)))
    assert not decode_items(sound, n - 1, 0, out[:-1], text=True)
    assert not decode_items(sound, n, 1, out, text=True)
    assert not decode_items(sound, n, -1, out, text=True)
    assert not decode_items(sound.replace("ß".encode(), b"\xff\xff", 1), n, 0, out, text=True)
    for _ in range(300):
        damaged = bytearray(sound)
        damaged[rng.randrange(200)] = rng.randrange(256)
        decode_items(damaged, n, 0, out, text=True)


def test_other_arrays_are_refused() -> None:
    module = library.extension()
    with pytest.raises(TypeError, match="objects"):
        module.decode_items(b"", 0, 0, np.zeros(1, "i8"), True)
    if ENCODES:
        with pytest.raises(TypeError, match="objects"):
            module.encode_items(np.zeros(1, "i8"), True)
        with pytest.raises((ValueError, BufferError)):
            module.encode_items(np.empty(4, object)[::2], True)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_parts_of_chunks_are_those_of_the_whole(zarr_format) -> None:
    array = gzarr.create_array({}, shape=(11, 5), chunks=(4, 3), dtype="string", zarr_format=zarr_format)
    values = np.array([f"{i}ß" * (i % 4) for i in range(55)], object).reshape(11, 5)
    array[:] = values
    for selection in (np.s_[...], np.s_[3:9], np.s_[2], np.s_[::3, 1:4], np.s_[1:2, 4], np.s_[:, 2:], np.s_[10:]):
        assert np.array_equal(array[selection], values[selection])
    assert np.array_equal(array.oindex[[1, 7], 1:4], values[[1, 7], 1:4])
    assert np.array_equal(array.vindex[[0, 9], [4, 1]], values[[0, 9], [4, 1]])
