"""Malformed metadata is refused with a `MetadataError` that names the store, the key and the field."""

import json
import re
from typing import Any

import pytest

import gzarr
from gzarr.errors import MetadataError, UnknownCodecError, UnknownDataTypeError
from gzarr.storage import LocalStore, MemoryStore

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
V3: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 6],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [BYTES],
}
V2: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 3],
    "dtype": "<i4",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
}
KEYS = {3: "zarr.json", 2: ".zarray"}
MISSING = object()
JUNK = (None, True, -1, 1.5, "x", [], {}, [[]], [None], [True], {"a": 1})
#: Junk that is a legal value of a field after all.
LEGAL: dict[str, tuple[Any, ...]] = {
    "fill_value": (None, -1),
    "compressor": (None,),
    "filters": (None, []),
    "attributes": ({}, {"a": 1}),
    "dimension_names": (None,),
    "storage_transformers": (None, []),
    "dimension_separator": (None,),
}


def stored(document: Any, key: str = "zarr.json", path: str = "a/b") -> MemoryStore:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return MemoryStore({f"{path}/{key}": data})


def refusal(document: Any, key: str = "zarr.json", error: type[Exception] = MetadataError) -> str:
    """The message with which a document is refused; it names store and key, once, and nothing is written."""
    store = stored(document, key)
    before = dict(store)
    with pytest.raises(error) as caught:
        gzarr.open(store, mode="a", path="a/b")
    message = str(caught.value)
    assert message.startswith(f"{store}: a/b/{key}: "), message
    assert message.count("memory://") == 1, message
    assert dict(store) == before
    return message


def changed(version: int, /, **fields: Any) -> dict[str, Any]:
    document = {**(V3 if version == 3 else V2), **fields}
    return {name: value for name, value in document.items() if value is not MISSING}


def test_the_documents_that_are_changed_below_are_fine_themselves() -> None:
    for key, document in (("zarr.json", V3), (".zarray", V2)):
        assert gzarr.open(stored(document, key), mode="r", path="a/b")[...].tolist() == [[0] * 6] * 4


@pytest.mark.parametrize("key", ["zarr.json", ".zarray", ".zgroup"])
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"zarr_format": 3', b"\xff\xfe{}", b"{} x", b'{"a": 01}', b"[" * 100_000],
    ids=lambda b: repr(b[:20]),
)
def test_what_is_no_json(key: str, data: bytes) -> None:
    assert "not valid JSON" in refusal(data, key)


@pytest.mark.parametrize("key", ["zarr.json", ".zarray", ".zgroup"])
@pytest.mark.parametrize("data", [b"[]", b"null", b'"zarr"', b"3", b"NaN"])
def test_what_is_no_object(key: str, data: bytes) -> None:
    assert "expected a JSON object, got" in refusal(data, key)


@pytest.mark.parametrize("data", [b"{", b"[1]"])
def test_attributes_of_v2_that_are_malformed_name_their_own_document(data: bytes) -> None:
    for key, document in ((".zarray", V2), (".zgroup", {"zarr_format": 2})):
        store = MemoryStore({f"a/{key}": json.dumps(document).encode(), "a/.zattrs": data})
        with pytest.raises(MetadataError, match=rf"^{store}: a/\.zattrs: (not valid JSON|expected a JSON object)"):
            gzarr.open(store, mode="r", path="a")


def test_the_store_is_named_as_users_know_it(tmp_path) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "zarr.json").write_text("{")
    with pytest.raises(MetadataError, match=r"^file://.*x\.zarr: zarr\.json: not valid JSON"):
        gzarr.open(tmp_path / "x.zarr", mode="r")
    assert LocalStore(tmp_path / "x.zarr")["zarr.json"] == b"{"


@pytest.mark.parametrize("field", list(V3))
def test_missing_fields_of_v3(field: str) -> None:
    assert f"field '{field}' is missing" in refusal(changed(3, **{field: MISSING}))


@pytest.mark.parametrize("field", ["zarr_format", "shape", "chunks", "dtype"])
def test_missing_fields_of_v2(field: str) -> None:
    assert f"field '{field}' is missing" in refusal(changed(2, **{field: MISSING}), ".zarray")


def test_missing_fields_of_v2_that_may_be_null_are_null() -> None:
    document = changed(2, **dict.fromkeys(("compressor", "fill_value", "order", "filters"), MISSING))
    array = gzarr.open(stored(document, ".zarray"), mode="r", path="a/b")
    assert (array.compressor, array.fill_value, array.order, array.filters) == (None, None, "C", None)


OPTIONAL = {3: ("attributes", "dimension_names", "storage_transformers"), 2: ("dimension_separator",)}


@pytest.mark.parametrize(
    ("zarr_format", "field"), [(f, field) for f, fields in ((3, V3), (2, V2)) for field in (*fields, *OPTIONAL[f])]
)
def test_values_of_the_wrong_type(zarr_format: int, field: str) -> None:
    legal = [json.dumps(v) for v in LEGAL.get(field, ())]
    if field == "fill_value" and zarr_format == 3:
        legal.remove("null")
    for junk in JUNK:
        document = changed(zarr_format, **{field: junk})
        if json.dumps(junk) in legal:
            gzarr.open(stored(document, KEYS[zarr_format]), mode="r", path="a/b")
            continue
        message = refusal(document, KEYS[zarr_format])
        words = {"shape": "chunk", "storage_transformers": "storage transformer"}.get(field, field)
        known = field in message or words in message or field.replace("_", " ") in message or "data type" in message
        assert known, f"{field}={junk!r}: {message}"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"zarr_format": 2}, "field 'zarr_format' must be 3, got 2"),
        ({"node_type": "dataset"}, "field 'node_type' must be 'array' or 'group', got 'dataset'"),
        ({"shape": [-1, 6]}, "field 'shape' must be a list of integers >= 0, got [-1, 6]"),
        ({"shape": [4.0, 6]}, "field 'shape' must be a list of integers >= 0"),
        ({"shape": [True, 6]}, "field 'shape' must be a list of integers >= 0"),
        ({"shape": [4]}, "field 'chunk_grid.configuration.chunk_shape' has 2 dimensions, the shape 1"),
        ({"data_type": "int33"}, "data type 'int33' is unknown"),
        ({"data_type": "r12"}, "data_type: expected 'r' and a multiple of 8 bits, got 'r12'"),
        ({"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 3}}}, "length_bytes"),
        ({"fill_value": 2**31}, "fill_value: expected an integer in the range of int32"),
        ({"data_type": "uint8", "fill_value": "NaN"}, "fill_value: expected an integer in the range of uint8"),
        ({"data_type": "float32", "fill_value": "0x7fc0"}, "fill_value: expected a number in the range of float32"),
        ({"data_type": "float32", "fill_value": "nan"}, "fill_value: expected a number in the range of float32"),
        ({"dimension_names": ["x"]}, "field 'dimension_names' must be a list of 2 names or nulls"),
        ({"dimension_names": ["x", 1]}, "field 'dimension_names' must be a list of 2 names or nulls"),
        ({"codecs": []}, "field 'codecs' must be a list of at least one codec"),
        ({"codecs": [BYTES, {}]}, "codecs[1]: a codec must have a 'name'"),
        ({"codecs": [{**BYTES, "x": 1}]}, "codecs[0]: codec 'bytes': unknown field 'x'"),
        ({"codecs": [{"name": "bytes", "configuration": []}]}, "codecs[0]: codec 'bytes': configuration must be"),
        ({"codecs": [BYTES, {"name": "gzip", "configuration": {"level": 99}}]}, "codecs[1]: codec 'gzip': level must"),
        ({"codecs": [BYTES, {"name": "gzip", "configuration": {"levle": 9}}]}, "codecs[1]: codec 'gzip': unknown conf"),
        ({"codecs": [{"name": "gzip"}]}, "codecs: codec 'gzip' encodes bytes, but it is given an array"),
        ({"codecs": [BYTES, BYTES]}, "codecs: codec 'bytes' encodes arrays"),
        (
            {"codecs": [{"name": "transpose", "configuration": {"order": [0, 1, 2]}}, BYTES]},
            "codecs: codec 'transpose'",
        ),
        (
            {"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, BYTES]},
            "codecs[0]: codec 'transpose'",
        ),
    ],
    ids=str,
)
def test_values_that_v3_does_not_have(fields: dict, expected: str) -> None:
    assert expected in refusal(changed(3, **fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"zarr_format": 3}, "field 'zarr_format' must be 2, got 3"),
        ({"shape": [-1, 6]}, "field 'shape' must be a list of integers >= 0, got [-1, 6]"),
        ({"chunks": [0, 3]}, "field 'chunks' must be a list of integers >= 1, got [0, 3]"),
        ({"chunks": [3]}, "field 'chunks' has 1 dimensions, the shape 2"),
        ({"order": "A"}, "field 'order' must be 'C' or 'F', got 'A'"),
        ({"dimension_separator": "-"}, "field 'dimension_separator' must be '.' or '/', got '-'"),
        ({"dtype": "<q9"}, "data type '<q9' is unknown"),
        ({"dtype": "<i4,<i4"}, "data type '<i4,<i4' is unknown"),
        ({"fill_value": 2**40}, "fill_value: expected an integer in the range of int32"),
        ({"compressor": {"id": "gzip", "level": 99}}, "compressor: codec 'gzip': level must be between 0 and 9"),
        ({"compressor": {"level": 9}}, "compressor: a Zarr v2 codec must be an object with an 'id'"),
        ({"filters": [{"id": "shuffle"}, 1]}, "filters[1]: a Zarr v2 codec must be an object with an 'id', got 1"),
        ({"filters": [{"id": "delta", "dtype": "<x9"}]}, "codec 'numcodecs.delta': astype '<x9' is not a NumPy"),
        ({"filters": [{"id": "packbits"}]}, "codec 'numcodecs.packbits' encodes booleans, not data type int32"),
        ({"dtype": "|O", "fill_value": None}, "cannot encode data type object"),
    ],
    ids=str,
)
def test_values_that_v2_does_not_have(fields: dict, expected: str) -> None:
    assert expected in refusal(changed(2, **fields), ".zarray")


# -- chunk grids and keys ----------------------------------------------------------------------------------------------


def rectilinear(*axes: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(axes), **fields}}


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ({"name": "hexagonal", "configuration": {}}, "chunk grid 'hexagonal' is not supported"),
        ({"name": "regular", "configuration": {}}, "field 'chunk_shape' is missing"),
        ({"name": "regular", "configuration": []}, "field 'chunk_grid.configuration' must be an object"),
        ({"name": "regular", "configuration": {"chunk_shape": [0, 3]}}, "chunk_shape' must be a list of integers >= 1"),
        ({"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_shape' has 1 dimensions, the shape 2"),
        (
            {"name": "regular", "configuration": {"chunk_shape": [2, 3], "origin": [1, 1]}},
            "chunk_grid.configuration' has an unknown field 'origin'",
        ),
        (
            {"name": "regular", "configuration": {"chunk_shape": [2, 3]}, "x": 1},
            "field 'chunk_grid' has an unknown field 'x'",
        ),
        (rectilinear([4]), "chunk_shapes' must list 2 axes"),
        (rectilinear([1, 2], 3), "chunk_shapes': chunks cover 3 of 4 elements"),
        (rectilinear([0, 4], 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear([4.0], 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear([True, 3], 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear([[2, -1]], 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear([[2, 2, 2]], 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear(0, 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear("4", 3), "chunk_shapes' must hold lengths >= 1"),
        (rectilinear([], 3), "chunk_shapes': chunks cover 0 of 4 elements"),
        (rectilinear([4], 3, kind="implicit"), "kind' must be 'inline', got 'implicit'"),
        (rectilinear([4], 3, offset=1), "chunk_grid.configuration' has an unknown field 'offset'"),
        (rectilinear([[1, 10**15]], 3), "chunk_shapes' lists more than"),
        (rectilinear([[1, 9 * 10**6], [1, 9 * 10**6]], 3), "chunk_shapes' lists more than"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_chunk_grids(grid: Any, expected: str) -> None:
    assert expected in refusal(changed(3, chunk_grid=grid))


def test_a_rectilinear_bomb_in_a_huge_array_is_refused_at_once() -> None:
    message = refusal(changed(3, shape=[10**15, 6], chunk_grid=rectilinear([[1, 10**15]], 3)))
    assert "field 'chunk_grid.configuration.chunk_shapes' lists more than" in message


def test_an_axis_without_elements_needs_a_chunk_length_all_the_same() -> None:
    message = refusal(changed(3, shape=[0, 6], chunk_grid=rectilinear([], 3)))
    assert "chunk_shapes' must hold at least one length" in message
    assert gzarr.open(stored(changed(3, shape=[0, 6], chunk_grid=rectilinear([2], 3))), path="a/b").shape == (0, 6)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ({"name": "zorder"}, "field 'chunk_key_encoding.name' must be 'default' or 'v2', got 'zorder'"),
        ({"name": "default", "configuration": {"separator": "-"}}, "separator' must be '/' or '.', got '-'"),
        ({"name": "default", "configuration": {"separator": None}}, "separator' must be '/' or '.', got None"),
        ({"name": "v2", "configuration": {"seperator": "/"}}, "chunk_key_encoding.configuration' has an unknown field"),
        ({"configuration": {}}, "field 'chunk_key_encoding' must be an object with a 'name'"),
    ],
    ids=str,
)
def test_chunk_key_encodings(encoding: Any, expected: str) -> None:
    assert expected in refusal(changed(3, chunk_key_encoding=encoding))


# -- shards ------------------------------------------------------------------------------------------------------------


def sharding(**configuration: Any) -> list[Any]:
    index = [BYTES, {"name": "crc32c"}]
    return [
        {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": [1, 3], "codecs": [BYTES], "index_codecs": index, **configuration},
        }
    ]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"chunk_shape": [1]}, "codecs: codec 'sharding_indexed': chunk_shape (1,) does not have 2 dimensions"),
        ({"chunk_shape": [3, 3]}, "codecs: codec 'sharding_indexed': a shard of 2 elements on axis 0"),
        ({"chunk_shape": [0, 3]}, "codecs[0]: codec 'sharding_indexed': chunk_shape[0] must be at least 1"),
        ({"chunk_shape": None}, "codecs[0]: codec 'sharding_indexed': chunk_shape must be a list of integers"),
        ({"codecs": []}, "codecs"),
        ({"codecs": [{"name": "unheard"}]}, "codecs[0]: codec 'unheard' is not known"),
        ({"codecs": [{"name": "gzip"}]}, "codecs: codec 'gzip' encodes bytes, but it is given an array"),
        (
            {"index_codecs": [BYTES, {"name": "gzip"}]},
            "codecs: codec 'sharding_indexed': index_codecs ['bytes', 'gzip'] make an index whose size is not fixed",
        ),
        ({"index_codecs": [{"name": "crc32c"}]}, "codecs: codec 'crc32c' encodes bytes"),
        (
            {"index_location": "middle"},
            "codecs[0]: codec 'sharding_indexed': index_location must be one of 'start', 'end'",
        ),
        ({"foo": 1}, "codecs[0]: codec 'sharding_indexed': unknown configuration field 'foo'"),
    ],
    ids=str,
)
def test_shards(configuration: dict, expected: str) -> None:
    assert expected in refusal(changed(3, codecs=sharding(**configuration)))


# -- what must be understood -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [1, "x", None, {}, {"must_understand": True}, {"must_understand": 0}, [False]], ids=str
)
@pytest.mark.parametrize("node", ["array", "group"])
def test_unknown_fields_must_be_understood_unless_they_say_otherwise(node: str, value: Any) -> None:
    document = {**V3, "future": value} if node == "array" else {"zarr_format": 3, "node_type": "group", "future": value}
    assert "field 'future' is not known and must be understood" in refusal(document)
    document["future"] = {"must_understand": False, "x": 1}
    assert gzarr.open(stored(document), path="a/b").metadata.extra == {"future": {"must_understand": False, "x": 1}}


def test_storage_transformers_are_refused_by_name() -> None:
    transformers = [{"name": "indirection", "configuration": {}}, "striping"]
    message = refusal(changed(3, storage_transformers=transformers))
    assert "storage transformer 'indirection', 'striping' is not supported" in message


@pytest.mark.parametrize(
    ("zarr_format", "fields", "name"),
    [
        (3, {"codecs": [BYTES, {"name": "imaginary", "configuration": {}}]}, "imaginary"),
        (3, {"codecs": [BYTES, "imaginary"]}, "imaginary"),
        (3, {"codecs": [BYTES, {"name": "numcodecs.imaginary", "configuration": {}}]}, "imaginary"),
        (2, {"compressor": {"id": "imaginary"}}, "imaginary"),
        (2, {"filters": [{"id": "imaginary"}]}, "imaginary"),
    ],
)
def test_unknown_codecs_are_named_and_the_remedy_too(zarr_format: int, fields: dict, name: str) -> None:
    document = changed(zarr_format, **fields)
    if "numcodecs" in str(fields) or zarr_format == 2:
        # the name is one that a registry could have: what the array is can be seen, but not what it holds
        store = stored(document, KEYS[zarr_format])
        array = gzarr.open(store, path="a/b")
        assert array.shape == (4, 6)
        for use in (lambda: array[...], lambda: array.__setitem__(..., 1)):
            with pytest.raises(UnknownCodecError) as caught:
                use()
        message = str(caught.value)
        assert message.startswith(f"{store}: a/b/{KEYS[zarr_format]}: ")
        assert message.count("memory://") == 1
        assert len(store) == 1
    else:
        message = refusal(document, KEYS[zarr_format], UnknownCodecError)
    assert f"codec '{name}'" in message
    assert "register_codec" in message
    assert "codecs" in message or "compressor" in message or "filters" in message


@pytest.mark.parametrize(
    ("zarr_format", "fields"),
    [(3, {"data_type": "int128"}), (3, {"data_type": {"name": "int128", "configuration": {}}}), (2, {"dtype": "<j16"})],
)
def test_unknown_data_types_are_named_and_the_remedy_too(zarr_format: int, fields: dict) -> None:
    message = refusal(changed(zarr_format, **fields), KEYS[zarr_format], UnknownDataTypeError)
    assert repr(fields.get("dtype", "int128")) in message
    assert "register_data_type" in message


@pytest.mark.parametrize(
    ("own", "damaged"),
    [
        ({"zarr.json": {"zarr_format": 3, "node_type": "group"}}, "zarr.json"),
        ({".zgroup": {"zarr_format": 2}}, ".zarray"),
        ({".zgroup": {"zarr_format": 2}}, ".zgroup"),
    ],
    ids=["v3", "v2 array", "v2 group"],
)
def test_a_malformed_member_is_listed_by_name_and_named_by_whatever_reads_it(own: dict, damaged: str) -> None:
    store = MemoryStore({key: json.dumps(document).encode() for key, document in own.items()})
    root = gzarr.open_group(store, "a")
    root.create_group("b")
    store[f"a/{damaged}"] = b"{"
    assert list(root) == list(root.keys()) == ["a", "b"]
    assert len(root) == 2
    assert "a" in root
    for use in (
        lambda: root["a"],
        lambda: root.get("a"),
        lambda: list(root.items()),
        lambda: list(root.values()),
        root.members,
        lambda: list(root.arrays()),
        lambda: list(root.array_keys()),
        lambda: list(root.group_keys()),
        root.tree,
        lambda: root.info,
    ):
        with pytest.raises(MetadataError, match=rf"^{store}: a/{re.escape(damaged)}: not valid JSON"):
            use()
    del root["a"]
    assert list(root) == ["b"]
    assert "a" not in root
