"""Documents that promise too much: opening stays fast and small, and what cannot be done is refused by name.

Each runs in a process of its own whose memory is limited, so that a document that fills it fails here and nowhere else.
"""

import json
import re
import sys

import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError
from tests.support.memory import traced
from tests.support.processes import output_of


def document(**fields):
    """A store with one array of ten elements, with some fields of its document replaced."""
    store = {}
    gzarr.zeros((10,), chunks=(5,), store=store)
    store["zarr.json"] = json.dumps({**json.loads(store["zarr.json"]), **fields}).encode()
    return store


def sharding(chunk, inner):
    return {
        "name": "sharding_indexed",
        "configuration": {"chunk_shape": [chunk], "codecs": [inner], "index_codecs": [BYTES]},
    }


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def regular(*chunks):
    return {"name": "regular", "configuration": {"chunk_shape": list(chunks)}}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_of_ten_petabytes_is_opened_and_read_in_no_memory(zarr_format):
    store = {}
    gzarr.zeros((10**9, 10**7), chunks=(10, 10), dtype="u1", store=store, zarr_format=zarr_format)
    with traced() as peak:
        z = gzarr.open(store)
        assert z.nbytes == 10**16
        assert z.nchunks == 10**14
        assert z[10**9 - 1, 10**7 - 1] == 0
        z[123456789, 1234567] = 7
        assert z[123456789, 1234560:1234570].tolist() == [0] * 7 + [7] + [0] * 2
        assert z[123456789, :: 10**6].tolist() == [0] * 10
        assert z.oindex[[1, 123456789], [1234567]].tolist() == [[0], [7]]
        assert z.vindex[[1, 123456789], [0, 1234567]].tolist() == [0, 7]
        assert (z.blocks[12345678, 123456].sum(), z.blocks[-1, -1].shape) == (7, (10, 10))
        assert next(iter(z.view(shape=(10**9, 3)))).tolist() == [0, 0, 0]
        assert z.nchunks_initialized == 1
        assert "Chunks initialized : 1/100000000000000" in str(z.info)
        z.resize(200, 200)
        assert z.nchunks_initialized == 0
        assert peak() < 1_000_000


def test_what_is_too_large_for_memory_is_refused_at_once():
    z = gzarr.zeros((10**9, 10**9), chunks=(10, 10))
    with pytest.raises((MemoryError, ValueError)):
        z[:]


def test_chunks_larger_than_any_memory():
    z = gzarr.zeros((2**62, 2**62), chunks=(2**40, 2**40), store={}, fill_value=3)
    assert z[2**61, 2**61] == 3
    assert z[2**61 : 2**61 + 3, 0].tolist() == [3] * 3
    assert z.vindex[[2**61], [2**61]].tolist() == [3]
    before = dict(z.store)
    with pytest.raises((MemoryError, ValueError)):
        z[0, 0] = 1
    assert dict(z.store) == before


@pytest.mark.parametrize("key", ["0", "1"])
def test_a_small_object_that_claims_to_be_a_large_chunk(key):
    store = document(shape=[2**40], chunk_grid=regular(2**40), codecs=[BYTES, {"name": "zstd"}])
    store["c/0"] = gzarr.array(np.zeros(10), compressors=gzarr.codecs.ZstdCodec(), store={}).store.get("c/0") or b"x"
    with pytest.raises((gzarr.ChunkError, MemoryError)):
        gzarr.open(store)[int(key)]


LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
import gzarr
store = {key: value.encode() for key, value in json.loads(sys.stdin.read()).items()}
try:
    print("read", gzarr.open(store)[5])
except gzarr.MetadataError as error:
    print("refused", error)
"""


def deep(depth):
    inner = BYTES
    for _ in range(depth):
        inner = sharding(5, inner)
    return [inner]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"shape": [10**12], "chunk_grid": regular(10**12), "codecs": [sharding(1, BYTES)]}, "read 0.0"),
        (
            {
                "shape": [10**12],
                "chunk_grid": {
                    "name": "rectilinear",
                    "configuration": {"kind": "inline", "chunk_shapes": [[[1, 10**12]]]},
                },
            },
            "refused .*chunk_grid.configuration.chunk_shapes.*more than 1000000",
        ),
        ({"codecs": deep(200)}, "refused .*'codecs' is nested too deep"),
        (
            {"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**40}}, "fill_value": ""},
            "refused .*data_type.*length_bytes",
        ),
        (
            {
                "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 2**62}},
                "fill_value": "",
            },
            "refused .*data_type.*length_bytes",
        ),
        ({"shape": [2**80], "chunk_grid": regular(2**70)}, "read 0.0"),
    ],
    ids=["huge shard", "run-length bomb", "deep codecs", "wide text", "wide bytes", "beyond 64 bits"],
)
def test_in_limited_memory(fields, expected):
    pytest.importorskip("resource", reason="memory can be limited on Unix only")
    store = {key: value.decode() for key, value in document(**fields).items()}
    said = output_of([sys.executable, "-c", LIMITED], input=json.dumps(store), timeout=300)
    assert re.match(expected, said), said


# -- nested deep -------------------------------------------------------------------------------------------------


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("make", [gzarr.create_group, lambda *args, **kw: gzarr.create_array(*args, shape=3, **kw)])
def test_attributes_nested_deep_are_read_or_refused(zarr_format, make):
    store = {}
    with pytest.raises(MetadataError, match=r"(zarr\.json|\.zattrs): nested too deep to be written.*setrecursionlimit"):
        make(store, attributes={"deep": nested(5000)}, zarr_format=zarr_format)
    assert not store
    node = make(store, zarr_format=zarr_format)
    before = dict(store)
    with pytest.raises(MetadataError, match=r"memory://\d+.*nested too deep to be written"):
        node.attrs["deep"] = nested(5000)
    assert store == before
    node.attrs["deep"] = nested(500)  # copying this in Python goes deeper than parsing it
    assert gzarr.open(store).attrs["deep"] == nested(500)
    gzarr.open(store).attrs["more"] = 1
    key = ".zattrs" if zarr_format == 2 else "zarr.json"
    store[key] = store[key].replace(b'"more": 1', b'"more": ' + b"[" * 5000 + b"]" * 5000)
    for look in (gzarr.open, gzarr.open_consolidated, gzarr.consolidate_metadata):
        with pytest.raises(MetadataError, match=rf"memory://\d+: {re.escape(key)}: not valid JSON, or nested too deep"):
            look(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_nested_deep(zarr_format):
    store = {}
    root = gzarr.create_group(store, zarr_format=zarr_format)
    root.create_array("a", shape=3, attributes={"deep": nested(500)})
    gzarr.consolidate_metadata(store)
    assert gzarr.open_consolidated(store)["a"].attrs["deep"] == nested(500)
    key = ".zmetadata" if zarr_format == 2 else "zarr.json"
    store[key] = re.sub(rb'"deep": [\[\]\s]+', b'"deep": ' + b"[" * 5000 + b"]" * 5000, bytes(store[key]))
    with pytest.raises(MetadataError, match=rf"memory://\d+: {re.escape(key)}: not valid JSON, or nested too deep"):
        gzarr.open_consolidated(store)
