"""What functions take by keyword: one list for the type checker, the docstring and the run time."""

import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.devices import DEVICE_OPTIONS
from gzarr.errors import DeviceError, GzarrError
from gzarr.hierarchy.new_nodes import NAMES as H5PY
from gzarr.hierarchy.options import HARMLESS, NAMES, ArrayConfig, ArrayOptions
from gzarr.storage import MemoryStore
from gzarr.storage.in_place import ELSEWHERE

ROOT = Path(__file__).parents[2]
REACHING = {*NAMES, "zarr_version"}
MEMBER = {f.name for f in fields(ArrayOptions)} | HARMLESS | REACHING | {"config", "chunk_shape", "write_data"}
MEMBER |= {"overwrite", "device", "read_only", *H5PY}
ARRAY = MEMBER | {*DEVICE_OPTIONS, "storage_options"}
GROUP = REACHING | {
    *DEVICE_OPTIONS,
    "storage_options",
    "store",
    "path",
    "zarr_format",
    "attributes",
    "device",
    *ELSEWHERE,
}

#: Functions with what they take in all, by position or by keyword.
TAKEN: list[tuple[Callable[..., Any], set[str]]] = [
    (gzarr.create_array, ARRAY | {"mode", "store", "name", "path", "data"}),
    (gzarr.create, ARRAY | {"mode", "store", "name", "path", "data"}),
    (gzarr.full, ARRAY | {"mode", "store", "name", "path"}),
    (gzarr.zeros, ARRAY - {"fill_value"} | {"mode", "store", "name", "path"}),
    (gzarr.zeros_like, ARRAY - {"fill_value"} | {"mode", "a", "store", "name", "path"}),
    (gzarr.full_like, ARRAY | {"mode", "a", "store", "name", "path"}),
    (gzarr.array, ARRAY | {"mode", "data", "store", "name", "path"}),
    (gzarr.from_array, ARRAY | {"mode", "data", "store", "name", "path"}),
    (gzarr.open_array, ARRAY | ELSEWHERE | {"store", "mode", "path", "data"}),
    (gzarr.open, ARRAY | ELSEWHERE | {"store", "mode", "path", "data", "use_consolidated"}),
    (gzarr.open_group, GROUP | {"mode", "use_consolidated"}),
    (gzarr.create_group, GROUP | {"overwrite"}),
    (gzarr.save_array, ARRAY | {"mode", "store", "arr", "path"}),
    (gzarr.Group.create_array, MEMBER | {"self", "name", "data"}),
    (gzarr.Group.create, MEMBER | {"self", "name", "data"}),
    (gzarr.Group.full, MEMBER | {"self", "name"}),
    (gzarr.Group.full_like, MEMBER | {"self", "name", "data"}),
]


def keywords_of(function: Callable[..., Any]) -> set[str]:
    """Names of the parameters, and of the fields of the TypedDict that ``**kwargs`` unpacks."""
    parameters = inspect.signature(function).parameters
    names = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
    (unpacked,) = get_type_hints(function)["kwargs"].__args__
    assert is_typeddict(unpacked)
    assert not names & unpacked.__annotations__.keys()
    return names | set(get_type_hints(unpacked))


@pytest.mark.parametrize(("function", "taken"), TAKEN, ids=lambda v: getattr(v, "__qualname__", ""))
def test_the_typed_keywords_are_those_that_a_call_takes(function: Callable[..., Any], taken: set[str]) -> None:
    assert keywords_of(function) == taken


CALLS = """
import gzarr
z = gzarr.create_array("x", shape=(4,), layout="gpu:batch", strict=True, chunk_cache=1 << 20, storage_options={})
z = gzarr.zeros((4,), dtype="i4", chunks=2, reader="host", store="x")
z = gzarr.open_array("x", "r", chunk_cache=gzarr.ChunkCache(1 << 20), max_device_nbytes=None)
g = gzarr.open_group("x", "r", synchronizer=None, allow_pickle=True, device="cpu")
z = g.create_array("a", (4,), "i4", chunks=2, shards=4, fill_value=3)
z.to("cpu", strict=False)
a = g["a"]
z = a if isinstance(a, gzarr.Array) else a.create_array("b", (4,), "i4", compressors=gzarr.Blosc())
n: int = z.ndim
g = gzarr.open_group(gzarr.SQLiteStore("x"), "w")
s: gzarr.storage.Store = gzarr.storage.SQLiteStore("x")
advice: gzarr.Advice | gzarr.GroupAdvice = gzarr.advise(z, "plane")
"""
MISTAKES = """
import gzarr
gzarr.create_array("x", shape=(4,), chunk=2)
gzarr.zeros((4,), layout="tpu")
gzarr.open_array("x", devise="cpu")
gzarr.open_group("x", chunks=2)
gzarr.group().create_array("a", (4,), reader="kvik")
z = gzarr.array([1]).to("cpu", strikt=True)
gzarr.open_arary("x")
gzarr.storage.LocalStroe("x")
gzarr.open_array("x", "rw")
gzarr.open_group("x", mode="read")
gzarr.group()["a"].shpae
gzarr.advise("x", "planes")
gzarr.SQLiteStore(3)
"""


def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    names = [f"{module}.{name}" for module in ("gzarr", "gzarr.storage") for name in dir(eval(module))]
    named = [f"{name}\n" for name in names if not name.rpartition(".")[2].startswith("_")]
    (tmp_path / "calls.py").write_text(CALLS + "".join(named))
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    # with the settings of `make lint`, and so with what it has remembered of the package
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    command += [str(tmp_path / "calls.py"), str(tmp_path / "mistakes.py")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    flagged = set(re.findall(r"(\w+\.py:\d+): error", run.stdout))
    assert flagged == {f"mistakes.py:{n}" for n in range(3, 3 + 13)}, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("call", "name", "suggestion"),
    [
        (gzarr.create_array, "chunk", "chunks"),
        (gzarr.open_array, "devise", "device"),
        (gzarr.open_group, "synchroniser", "synchronizer"),
        (gzarr.zeros, "chunkcache", "chunk_cache"),
        (gzarr.zeros, "storre", "store"),
        (lambda a, **k: gzarr.ones_like(gzarr.zeros(3), **k), "stroe", "store"),
        (partial(gzarr.transfer, gzarr.zeros(3)), "if_exist", "if_exists"),
    ],
)
def test_unknown_keywords_are_named_with_known_ones(call: Callable[..., Any], name: str, suggestion: str) -> None:
    with pytest.raises(TypeError, match=f"unknown keyword '{name}'; did you mean '{suggestion}'"):
        call({}, **{name: 2})


CALLS_WITH_KEYWORDS: dict[str, Callable[..., Any]] = {
    "create_array": gzarr.create_array,
    "zeros": lambda **k: gzarr.zeros(3, **k),
    "ones_like": lambda **k: gzarr.ones_like(gzarr.zeros(3), **k),
    "open": lambda **k: gzarr.open(gzarr.zeros(3), **k),
    "open_array": gzarr.open_array,
    "open_group": gzarr.open_group,
    "open_like": lambda **k: gzarr.open_like(gzarr.zeros(3), {}, **k),
    "save_array": lambda **k: gzarr.save_array({}, [1], **k),
    "load": lambda **k: gzarr.load({}, **k),
    "Group.create_array": lambda **k: gzarr.group().create_array("q", **{"shape": 3, **k}),
    "Group.zeros": lambda **k: gzarr.group().zeros("q", 3, **k),
    "transfer": lambda **k: gzarr.transfer(gzarr.zeros(3), {}, **k),
    "copy": lambda **k: gzarr.copy(gzarr.zeros(3), gzarr.group(), "q", **k),
    "Advice.apply": lambda **k: gzarr.advise(gzarr.zeros(3)).apply({}, **k),
}


@pytest.mark.parametrize("call", CALLS_WITH_KEYWORDS.values(), ids=CALLS_WITH_KEYWORDS)
def test_every_keyword_of_a_message_is_taken(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unknown keyword 'qqqq'; known keywords: ") as caught:
        call(qqqq=1)
    for name in str(caught.value).partition("keywords: ")[2].split(", "):
        said = ""
        try:
            call(**{name: None})
        except Exception as error:  # noqa: BLE001 - the value is wrong, the name is not
            said = str(error)
        assert not re.search("unexpected keyword|unknown keyword|cannot be given", said), name


@pytest.mark.parametrize(
    ("name", "name_of_call"),
    [
        ("stream", "Group.create_array"),
        ("store", "Group.create_array"),
        ("chunk_cache", "transfer"),
        ("strict", "transfer"),
        ("strict", "copy"),
        ("strict", "Advice.apply"),
        ("chunks", "open_group"),
    ],
)
def test_a_keyword_of_another_function_is_not_suggested(name: str, name_of_call: str) -> None:
    with pytest.raises(TypeError, match=f"unknown keyword '{name}'; known keywords: ") as caught:
        CALLS_WITH_KEYWORDS[name_of_call](**{name: None})
    assert name not in str(caught.value).partition("keywords: ")[2].split(", ")


@pytest.mark.parametrize("cls", [gzarr.Array, gzarr.Group])
def test_nodes_are_made_with_a_backend_too(cls: Any) -> None:
    root = gzarr.group()
    node = root if cls is gzarr.Group else root.zeros("a", 3)
    again = cls(node.store, node.path, node.metadata, node.backend)
    assert again.opened_with.reading == (node.backend, None, False)


def test_keywords_that_have_no_use_say_so() -> None:
    with pytest.raises(TypeError, match="every array can be resized"):
        gzarr.group().create_dataset("a", shape=3, maxshape=(None,))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="load takes no mode"):
        gzarr.load({}, mode="r")  # type: ignore[call-arg]


# -- options -----------------------------------------------------------------------------------------------------------


def test_an_array_says_how_it_is_read_and_written():
    z = gzarr.zeros((2, 2), chunks=1, config={"write_empty_chunks": True})
    assert z.config == ArrayConfig("C", write_empty_chunks=True, read_missing_chunks=True)
    other = z.with_config({"read_missing_chunks": False, "order": "F"})
    assert other.config == ArrayConfig("C", write_empty_chunks=True, read_missing_chunks=False)
    assert z.with_config(other.config).config == other.config
    assert gzarr.open_array(z, config=ArrayConfig(read_missing_chunks=False)).config.read_missing_chunks is False
    root = gzarr.group()
    for _ in range(2):  # created, then opened
        assert root.require_array("a", (3,), config={"read_missing_chunks": False}).read_missing_chunks is False
    assert gzarr.open(z, write_empty_chunks=True).config.write_empty_chunks
    with gzarr.config.set({"array.read_missing_chunks": False}):
        assert not gzarr.zeros(3).config.read_missing_chunks


def test_other_names_and_values_are_refused():
    with pytest.raises(gzarr.MetadataError, match="write_empty_chunks must be True or False, got 'yes'"):
        gzarr.zeros(3, config={"write_empty_chunks": "yes"})
    with pytest.raises(gzarr.MetadataError, match="order must be 'C' or 'F', got 'K'"):
        gzarr.open_array(gzarr.zeros(3), config={"order": "K"})
    with pytest.raises(TypeError, match="config has no 'write_empty'; it has order, write_empty_chunks"):
        gzarr.zeros(3).with_config({"write_empty": True})
    assert gzarr.zeros(3).with_config({"sharding_coalesce_max_bytes": 5}).config == ArrayConfig()


def test_the_order_asked_for_goes_before_that_of_the_config():
    assert gzarr.zeros((2, 2), zarr_format=2, order="C", config={"order": "F"}).order == "C"
    assert gzarr.zeros((2, 2), zarr_format=2, config={"order": "F"}).order == "F"


# -- how a node is reached ---------------------------------------------------------------------------------------------

# -- meta_array ----------------------------------------------------------------------------------------------------


def test_a_numpy_array_asks_for_the_host():
    for z in (gzarr.zeros(3, meta_array=np.empty(())), gzarr.group(meta_array=np.empty(0)).zeros("x", shape=3)):
        assert z.device == "cpu"
        assert isinstance(z[...], np.ndarray)
        assert isinstance(z.meta_array, np.ndarray)


def test_an_array_of_a_device_asks_for_that_device():
    class OnDevice:
        __cuda_array_interface__ = {"shape": (), "typestr": "<f8", "data": (0, False), "version": 3}
        device = type("Device", (), {"id": 7})()

    try:
        expected = gzarr.zeros(3, device="cuda:7").device
    except GzarrError as error:
        with pytest.raises(DeviceError) as caught:
            gzarr.zeros(3, meta_array=OnDevice())
        assert str(caught.value) == str(error)  # noqa: PT017 - the same error as for device="cuda:7"
    else:
        assert gzarr.zeros(3, meta_array=OnDevice()).device == expected
    with pytest.raises(DeviceError, match="meta_array is on 'cuda:7' and device='cpu'"):
        gzarr.zeros(3, meta_array=OnDevice(), device="cpu")
    with pytest.raises(TypeError, match="NumPy or CuPy array, got list"):
        gzarr.zeros(3, meta_array=[1])


# -- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [gzarr.group, gzarr.create_group, gzarr.open_group, gzarr.open_consolidated])
def test_unknown_keywords_of_groups_are_named(call):
    with pytest.raises(TypeError, match="'chunck_store'"):
        call({}, chunck_store={})


def test_members_add_to_what_their_group_was_opened_with():
    cache = gzarr.ChunkCache(2**20)
    group = gzarr.group(zarr_format=2, allow_pickle=True)
    member = group.create_array("x", data=[1, 2], dtype=object, object_codec=numcodecs.Pickle(), chunk_cache=cache)
    assert member[...].tolist() == [1, 2]
    assert member.opened_with.chunk_cache is cache
    assert group.opened_with.chunk_cache is None


def test_nodes_are_equal_however_they_are_reached(tmp_path):
    plain = gzarr.group(tmp_path / "x")
    plain.create_array("a", data=[1, 2])
    gzarr.consolidate_metadata(tmp_path / "x")
    locked = gzarr.open_group(tmp_path / "x", synchronizer=gzarr.ThreadSynchronizer())
    consolidated = gzarr.open_consolidated(tmp_path / "x")
    assert plain == locked == consolidated
    assert plain["a"] == locked["a"] == consolidated["a"]


def test_all_of_them_at_once(tmp_path):
    options = {
        "synchronizer": gzarr.ThreadSynchronizer(),
        "chunk_cache": 2**20,
        "meta_array": np.empty(()),
        "allow_pickle": True,
    }
    z = gzarr.open(tmp_path / "x.zarr", "w", shape=10, chunks=3, dtype="i4", **options)
    z[...] = np.arange(10)
    for opened in (gzarr.open(tmp_path / "x.zarr", "r+", **options), gzarr.open_array(tmp_path / "x.zarr", **options)):
        assert opened[...].tolist() == opened[...].tolist() == list(range(10))
        assert opened.opened_with.chunk_cache.hits == 4
        opened.append([10])
        assert opened[-1] == 10
        opened.resize(10)


def test_options_of_the_device_go_with_all_of_them():
    options = {"max_device_nbytes": 1 << 20, "strict": True}
    group = gzarr.group(zarr_format=2, device="emulated", allow_pickle=True, **options)
    group.create_array("x", data=[1, 2], dtype=object, object_codec=numcodecs.Pickle())
    again = pickle.loads(pickle.dumps(group))
    for node in (again, again["x"], pickle.loads(pickle.dumps(group["x"]))):
        assert node.device == "emulated"
        assert node.opened_with.allow_pickle
        assert node.backend.options == group.backend.options
        assert node.backend.options["max_device_nbytes"] == 1 << 20
    assert pickle.loads(pickle.dumps(group.opened_with)).allow_pickle


def test_moving_to_another_device_keeps_trust_and_takes_options():
    z = gzarr.zeros(6, chunks=2, chunk_cache=2**20, allow_pickle=True)
    there = z.to("emulated", max_device_nbytes=1 << 20)
    assert there.device == "emulated"
    assert there.opened_with.allow_pickle
    assert there.opened_with.chunk_cache is None
    assert there.backend.options["max_device_nbytes"] == 1 << 20
    assert z.to("cpu").opened_with.chunk_cache is z.opened_with.chunk_cache
    assert z.to(z.backend).backend is z.backend
    assert gzarr.group(allow_pickle=True).to("emulated").opened_with.allow_pickle
    with pytest.raises(ValueError, match="leave out"):
        z.to(z.backend, strict=True)


def test_a_trusted_source_is_copied_by_as_many_threads_as_another():
    z = gzarr.zeros((64, 64), chunks=8, chunk_cache=2**20)
    z[...] = np.arange(64 * 64).reshape(64, 64)
    copy = MemoryStore()
    gzarr.transfer(z, copy, chunks=16)
    assert (gzarr.open(copy)[...] == z[...]).all()
