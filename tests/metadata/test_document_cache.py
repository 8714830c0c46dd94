"""Documents parsed before, and chains prepared before, are used again only where nothing differs."""

import gc
import json
import weakref

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BytesCodec
from gzarr.codecs.spec import Codec
from gzarr.cpu.backend import CpuBackend
from gzarr.storage import MemoryStore

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])


def stored(fill: float = 0.0, zarr_format: int = 3) -> MemoryStore:
    store = MemoryStore()
    options = {"fill_value": fill, "compressors": None, "zarr_format": zarr_format}
    gzarr.create_array(store, shape=(4,), chunks=(2,), dtype="f8", **options)
    return store


def test_equal_documents_of_format_2_are_parsed_once() -> None:
    one, two = (gzarr.open_array(stored(zarr_format=2)).metadata for _ in range(2))
    assert one == two
    assert one.codecs is two.codecs


def test_unknown_fields_of_equal_documents_of_format_2_are_their_own() -> None:
    store = stored(zarr_format=2)
    store[".zarray"] = json.dumps({**json.loads(store[".zarray"]), "more": [1]}).encode()
    gzarr.open_array(store).metadata.extra["more"].append(2)
    assert gzarr.open_array(store).metadata.extra == {"more": [1]}


@FORMATS
def test_attributes_of_arrays_with_equal_documents_are_their_own(zarr_format: int) -> None:
    one, two = stored(zarr_format=zarr_format), stored(zarr_format=zarr_format)
    a, b = gzarr.open_array(one), gzarr.open_array(two)
    a.attrs["units"] = "m"
    a.attrs["list"] = [1]
    assert dict(b.attrs) == {}
    again = gzarr.open_array(one)
    again.metadata.attributes["list"].append(2)
    assert gzarr.open_array(one).attrs["list"] == [1]


@FORMATS
def test_equal_fill_values_with_other_bits_stay_apart(zarr_format: int) -> None:
    plus, minus = (gzarr.open_array(stored(fill, zarr_format)) for fill in (0.0, -0.0))
    assert not np.signbit(plus[...]).any()
    assert np.signbit(minus[...]).all()
    assert not np.signbit(gzarr.open_array(stored(0.0, zarr_format))[...]).any()


def test_a_view_with_another_fill_value_has_a_chain_of_its_own() -> None:
    array = gzarr.open_array(stored(1.0))
    assert (array[0], array.view(fill_value=7.0)[0]) == (1, 7)
    assert gzarr.open_array(array.store)[0] == 1


def test_chains_that_are_kept_do_not_keep_their_backend() -> None:
    backend = CpuBackend()
    gone = weakref.ref(backend)
    array = gzarr.open_array(stored(), device=backend)
    assert array[0] == 0
    del array, backend
    gc.collect()
    assert gone() is None


def test_errors_name_the_document_each_time() -> None:
    store = stored()
    document = json.loads(store["zarr.json"])
    document["codecs"] = [{"name": "no such codec"}]
    store["zarr.json"] = json.dumps(document).encode()
    for _ in range(2):
        with pytest.raises(gzarr.GzarrError, match=r"zarr\.json"):
            gzarr.open_array(store)


def test_a_registration_counts_for_what_is_opened_after_it() -> None:
    class ShiftedCodec(BytesCodec):
        """Bytes under another name."""

        name = "tests.shifted"

    def factory(step: object) -> Codec:
        return Codec(
            lambda items: [np.frombuffer(item, "f8") + factory.shift for item in items],
            lambda items: [(item - factory.shift).tobytes() for item in items],
        )

    factory.shift = 1.0
    gzarr.register_codec(ShiftedCodec, cpu=factory)
    store = MemoryStore()
    gzarr.create_array(store, shape=(2,), chunks=(2,), dtype="f8", codecs=[ShiftedCodec()])[...] = [5.0, 6.0]
    assert gzarr.open_array(store)[...].tolist() == [5.0, 6.0]

    def other(step: object) -> Codec:
        return Codec(lambda items: [np.full(2, 9.0) for _ in items], lambda items: [b"" for _ in items])

    gzarr.register_codec(ShiftedCodec, cpu=other)
    assert gzarr.open_array(store)[...].tolist() == [9.0, 9.0]


def test_members_with_equal_documents_are_listed_with_their_names() -> None:
    root = gzarr.group(store=MemoryStore())
    for name in "ab":
        root.create_array(name, shape=(2,), dtype="i4")
    root["a"].attrs["x"] = 1
    assert {name: dict(array.attrs) for name, array in root.arrays()} == {"a": {"x": 1}, "b": {}}
