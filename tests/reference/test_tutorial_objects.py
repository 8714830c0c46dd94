"""The tutorial's object and ragged arrays, call for call, with what it prints."""

import numcodecs
import numpy as np
import pytest

import gzarr as zarr
from gzarr.errors import ChunkError, MetadataError
from tests.conformance import golden
from tests.conformance.peers import bits

TEXT = ["¡Hola mundo!", "Hej Världen!", "Servus Woid!", "Hei maailma!", "Xin chào thế giới", "Njatjeta Botë!"]

pytestmark = pytest.mark.usefixtures("zarr_format")


@pytest.mark.parametrize("codec", [numcodecs.JSON(), numcodecs.MsgPack(), numcodecs.Pickle()], ids=repr)
def test_any_objects(codec, tmp_path):
    trust = {"allow_pickle": True} if codec.codec_id == "pickle" else {}
    z = zarr.empty(5, dtype=object, object_codec=codec, store=tmp_path / "x.zarr", **trust)
    z[0], z[1], z[2], z[3] = 42, "foo", ["bar", "baz", "qux"], {"a": 1, "b": 2.2}
    for array in (z, zarr.open(tmp_path / "x.zarr", mode="r", **trust)):
        assert (
            repr(array[:])
            == "array([42, 'foo', list(['bar', 'baz', 'qux']), {'a': 1, 'b': 2.2}, None],\n      dtype=object)"
        )


@pytest.mark.parametrize(
    "options", [{"dtype": object, "object_codec": numcodecs.VLenArray(int)}, {"dtype": "array:int"}]
)
def test_ragged_arrays(options):
    z = zarr.empty(4, **options)
    assert repr(z.filters) == "[VLenArray(dtype='<i8')]"
    z[0], z[1], z[2] = np.array([1, 3, 5]), np.array([4]), np.array([7, 9, 14])
    assert repr(z[:]) == (
        "array([array([1, 3, 5]), array([4]), array([ 7,  9, 14]),\n       array([], dtype=int64)], dtype=object)"
    )


@pytest.mark.parametrize("item", ["i8", "<f4", ">u2", "float16", "bool"])
def test_ragged_arrays_of_other_types(item):
    rows = [np.arange(n).astype(item) for n in (3, 0, 5, 3)]
    z = zarr.array(rows, dtype=f"array:{item}", chunks=3)
    assert all((a == b).all() and a.dtype == np.dtype(item) for a, b in zip(z[:], rows, strict=True))
    equal = zarr.array([[1, 2], [3, 4]], dtype=f"array:{item}")
    assert [row.tolist() for row in equal[:]] == [np.array(row, item).tolist() for row in ([1, 2], [3, 4])]


def test_a_ragged_array_of_nothing_known():
    with pytest.raises(MetadataError, match=r"'array:nothing'.*'array:i4'"):
        zarr.empty(4, dtype="array:nothing")
    with pytest.raises(MetadataError, match="zarr_format=2"):
        zarr.empty(4, dtype="array:i4", zarr_format=3)


# -- pickles: only for who asks ------------------------------------------------------------------------------------


class Bomb:
    """What a hostile pickle could be."""

    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


def test_pickles_are_refused_unless_allowed(tmp_path):
    path = tmp_path / "x.zarr"
    with pytest.raises(MetadataError, match="allow_pickle=True"):
        zarr.empty(3, dtype=object, object_codec=numcodecs.Pickle(), store=path)
    assert not path.exists()
    trusted = zarr.group(path, zarr_format=2, allow_pickle=True)
    trusted.empty("a", shape=3, dtype=object, object_codec=numcodecs.Pickle())[1] = Bomb()
    Bomb.exploded = False
    for refusing in (
        lambda: zarr.open(path)["a"][...],
        lambda: zarr.open_array(path, path="a")[1],
        lambda: zarr.load(path, path="a"),
        lambda: zarr.open_group(path, "r")["a"][...],
        lambda: zarr.open(path, allow_pickle=False)["a"].astype(object)[...],
        lambda: zarr.open_array(path, path="a", mode="r+").__setitem__(0, 1),
    ):
        with pytest.raises(ChunkError, match=r"pickle.*run any code.*allow_pickle=True"):
            refusing()
    assert not Bomb.exploded
    zarr.load(path, path="a", allow_pickle=True)
    assert Bomb.exploded


def test_trust_goes_along_with_a_group_and_its_copies():
    import pickle

    group = zarr.group(zarr_format=2, allow_pickle=True)
    group.create_array("a/b", shape=3, dtype=object, object_codec=numcodecs.Pickle())[...] = [1, {2}, (3,)]
    again = pickle.loads(pickle.dumps(group))
    for array in (group["a/b"], group["a"]["b"], group["a/b"].to("cpu"), again["a/b"], dict(group["a"].arrays())["b"]):
        assert array[...].tolist() == [1, {2}, (3,)]
        array.refresh()
        assert array[...].tolist() == [1, {2}, (3,)]


def test_a_pickle_of_something_else_is_an_error():
    import pickle

    store = {}
    z = zarr.empty(3, dtype=object, object_codec=numcodecs.Pickle(), compressor=None, store=store, allow_pickle=True)
    for wrong in ([1, 2, 3], np.arange(3), np.empty(4, object)):
        store["0"] = pickle.dumps(wrong)
        with pytest.raises(ChunkError, match=r"key '0'.*expected an array of shape \(3,\) of object"):
            z[...]


def test_pickles_of_zarr_2_are_read_when_allowed():
    arrays = golden.read("zarr2")["arrays"]
    for order in "CF":
        found = zarr.open_array(golden.stored_objects(arrays[f"object Pickle {order}"]), "r", allow_pickle=True)
        same = zarr.open_array(golden.stored_objects(arrays[f"object MsgPack {order}"]), "r")
        assert bits(found[...]) == bits(same[...])
