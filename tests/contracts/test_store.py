"""What every store must do, run over each kind of store; the rules are in the docstring of gzarr.storage.base."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError, ReplacedError, StoreError
from gzarr.storage import MemoryStore, Request, SQLiteStore, Store, ZipStore, rules
from gzarr.storage import read_only as read_only_view
from gzarr.storage.base import token_of
from gzarr.storage.capabilities import ANY, Change, Conditional
from gzarr.storage.changing import change_object
from gzarr.storage.coalesce import get_coalesced
from gzarr.storage.rules import is_allowed
from tests.contracts.stores import MAKERS, WITH_ANY_KEY, WITH_CONDITIONS, WITHOUT_VERSIONS

VALUE = bytes(range(200))


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MAKERS[request.param](tmp_path, request)
    yield made
    made.close()


def fill(store: Store, *keys: str) -> None:
    store.set_many((key, key.encode()) for key in keys)


# -- reading and writing -------------------------------------------------------------------------------------------


def test_a_missing_key_reads_as_none(store: Store) -> None:
    fill(store, "a/b/c")
    for request in (Request("nothing"), Request("a"), Request("a/b"), Request("a/b/c/d"), Request("x", 3, 5)):
        assert store.get_one(request) is None
        assert store.get_many([request, request]) == [None, None]
        assert store.getsize(request.key) is None
        assert request.key not in store
        assert store.contains_many([request.key, request.key]) == [False, False]


#: Bytes in all forms in which they may be given.
VALUES = (
    *(b"", VALUE, bytearray(VALUE), memoryview(VALUE), memoryview(VALUE)[3:77], memoryview(VALUE)[::2]),
    *(np.arange(99, dtype="u1"), np.arange(12, dtype=">u4").reshape(3, 4), np.empty((0, 3))),
)


def test_what_was_set_is_read(store: Store) -> None:
    for key in ("c/0/1", "group/zarr.json"):
        for value in VALUES:
            expected = value.tobytes() if isinstance(value, np.ndarray | memoryview) else bytes(value)
            store.set(key, value)
            assert store.get_one(Request(key)) == expected, value
            assert store.getsize(key) == len(expected), value
            assert store[key] == expected, value
            assert isinstance(store[key], bytes), value
    assert sorted(store) == ["c/0/1", "group/zarr.json"]


def test_a_buffer_may_be_reused_after_it_was_set(store: Store) -> None:
    for key in ("c/0", ".zattrs"):
        buffer = bytearray(VALUE)
        store.set(key, buffer)
        store.set_many([(key + "b", memoryview(buffer))])
        buffer[:] = bytes(len(buffer))
        assert (store[key], store[key + "b"]) == (VALUE, VALUE)


def test_a_held_answer_keeps_its_bytes(store: Store) -> None:
    store["c/0"] = VALUE
    whole, part = store.get_many([Request("c/0"), Request("c/0", 10, 20)])
    store["c/0"] = bytes(200)
    store.delete_many(["c/0"])
    assert whole == VALUE
    assert part == VALUE[10:30]


def test_what_is_not_bytes_is_refused_by_name(store: Store) -> None:
    for key in ("c/0", "zarr.json"):
        store[key] = b"old"
        for value in cast("Any", (5, "text", [1, 2], object(), None)):
            with pytest.raises(TypeError, match=key):
                store.set(key, value)
            with pytest.raises(TypeError, match=key):
                store.set_many([(key, value)])
            assert store[key] == b"old", value


BAD_KEYS = (
    *("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a/.", "a\0b"),
    *("a/.__gzarr_tmp_1", "/x"),
)


def test_bad_keys_are_refused(store: Store) -> None:
    for key in BAD_KEYS:
        with pytest.raises(StoreError, match="not allowed"):
            store.set(key, b"x")
        with pytest.raises(StoreError, match="not allowed"):
            store.set_many([(key, b"x")])
        assert list(store) == [], key


#: Keys that archives and databases from elsewhere may hold.
FOREIGN_KEYS = (
    *("/zarr.json", "/foo/zarr.json", "//x", "./x/zarr.json", "../y/zarr.json", "grp//zarr.json", "grp//b/zarr.json"),
    *("grp/./zarr.json", "grp/../zarr.json", "ok//c/0", "ok/../zarr.json", "loose//b/zarr.json", "a\0b/zarr.json"),
)


def walk(store: Store, path: str = "", depth: int = 0) -> Iterator[str]:
    """All paths that listings lead to."""
    assert depth < 6, path
    for name in store.list_dir(path)[1]:
        inner = f"{path}/{name}" if path else name
        yield inner
        yield from walk(store, inner, depth + 1)


@pytest.mark.parametrize("store", WITH_ANY_KEY, indirect=True)
def test_keys_that_are_not_allowed_are_reported_and_lead_nowhere(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root = gzarr.create_group(store)
    root.create_array("ok", data=[1, 2, 3])
    root.create_group("grp")
    with monkeypatch.context() as patch:
        patch.setattr(rules, "_BAD_KEY", re.compile("(?!)"))
        store.set_many((key, bytes(store["grp/zarr.json"])) for key in FOREIGN_KEYS)
    assert sorted(key for key in store if not is_allowed(key)) == sorted(FOREIGN_KEYS)
    assert list(walk(store)) == ["grp", "loose", "ok", "ok/c"]
    root = gzarr.open_group(store)
    assert [name for name, _ in root.members()] == ["grp", "ok"]
    assert len(str(root.tree()).splitlines()) == 3
    assert gzarr.compare(root, root).equal
    found = root.verify()
    assert [(problem.kind, problem.key) for problem in found.problems] == [
        *(("key", key) for key in (min(FOREIGN_KEYS), "grp/../zarr.json", "loose//b/zarr.json", "ok/../zarr.json"))
    ]
    assert "more here are not allowed" in found.problems[0].reason
    assert (found.ngroups, found.narrays, found.leftover_files) == (2, 1, ())
    store.delete_many(FOREIGN_KEYS)
    assert root.verify().ok


def test_unusual_keys_are_fine(store: Store) -> None:
    for key in ("...", "a/..b", "a..", ".zgroup", "a/.b/c", "a b", "ä/日本", "a:b"):
        store[key] = b"x"
        assert store[key] == b"x"
        assert list(store) == [key]
        del store[key]


# -- ranges --------------------------------------------------------------------------------------------------------

RANGES = [
    (0, 0), (0, 10), (5, 1), (0, 200), (190, 10),
    (0, None), (7, None), (199, None), (200, None), (1000, None),
    (190, 100), (200, 1), (199, 2), (5000, 10), (0, 1 << 40), (10, 1 << 62), (1 << 62, 5), ((1 << 64) - 1, 5),
    (-1, None), (-200, None), (-500, None), (-16, 4), (-16, 100), (-500, 4), (-202, 4), (-5, 0), (3, -2),
    (None, None), (None, 5),
]  # fmt: skip


def expected_range(value: bytes, start: int | None, length: int | None) -> bytes:
    if start is None:
        return value
    if start < 0:
        start += len(value)
    stop = len(value) if length is None else max(start + length, 0)
    return value[max(start, 0) : stop] if stop > start else b""


def test_a_range_gives_the_bytes_that_are_there(store: Store) -> None:
    objects = (("c/0", "empty"), ("zarr.json", ".zattrs"))
    store.set_many([pair for key, empty in objects for pair in ((key, VALUE), (empty, b""))])
    for (key, empty), (start, length) in product(objects, RANGES):
        expected = expected_range(VALUE, start, length)
        request = Request(key, start, length)
        assert store.get_one(request) == expected, request
        assert store.get_many([request]) == [expected], request
        assert store.get_many([Request(key), request, request]) == [VALUE, expected, expected], request
        assert store.get_one(Request(empty, start, length)) == b"", request


def test_a_batch_is_answered_in_order(store: Store) -> None:
    store.set_many((f"c/{i}", bytes([i]) * (i + 1)) for i in range(20))
    rng = np.random.default_rng(0)
    requests, expected = [], []
    for i in rng.integers(0, 25, 200):
        kind = rng.integers(3)
        requests.append([Request(f"c/{i}"), Request(f"c/{i}", 0, 3), Request(f"c/{i}", -2)][kind])
        whole = bytes([i]) * (i + 1)
        expected.append(None if i >= 20 else [whole, whole[:3], whole[-2:]][kind])
    assert store.get_many(requests) == expected
    assert get_coalesced(store, requests) == expected
    assert store.get_many([]) == []


def test_which_of_many_keys_are_there(store: Store) -> None:
    fill(store, *TREE)
    keys = ["none", *TREE, "a", "a/c/9", *TREE]
    assert store.contains_many(keys) == [key in store for key in keys]
    assert store.contains_many([]) == []


def test_large_objects_are_read_whole_and_in_parts(store: Store) -> None:
    value = np.random.default_rng(1).integers(0, 256, 5_000_000, dtype="u1")
    store.set("c/big", value)
    assert store.get_one(Request("c/big")) == value.tobytes()
    got = store.get_many([Request("c/big", 1_000_000, 3_000_000), Request("c/big", -1_500_000)])
    assert got == [value[1_000_000:4_000_000].tobytes(), value[-1_500_000:].tobytes()]


# -- deleting, listing, moving -------------------------------------------------------------------------------------

TREE = ("zarr.json", "a/zarr.json", "a/c/0/0", "a/c/0/1", "a/c/1/0", "ab/zarr.json", "b/d/e/f")


def test_deleting_ignores_what_is_missing(store: Store) -> None:
    fill(store, *TREE)
    store.delete_many(["a/c/0/0", "nothing", "a/c/0/0", "a/c", "a/zarr.json", "a/zarr.json/x"])
    assert sorted(store) == sorted(set(TREE) - {"a/c/0/0", "a/zarr.json"})
    store.delete_many([])
    store["a/c/0/0"] = b"again"
    assert store["a/c/0/0"] == b"again"


def test_listing(store: Store) -> None:
    prefixes = ("", "a", "a/c", "a/c/0", "ab", "b", "zarr.json", "a/c/0/0", "none", "a/none")
    for prefix in prefixes:
        assert list(store.list_prefix(prefix)) == []
        assert store.list_dir(prefix) == ([], [])
    fill(store, *TREE)
    for prefix in prefixes:
        start = f"{prefix}/" if prefix else ""
        under = [key for key in TREE if key.startswith(start)]
        assert sorted(store.list_prefix(prefix)) == sorted(under), prefix
        rest = [key[len(start) :] for key in under]
        objects = sorted(name for name in rest if "/" not in name)
        folders = sorted({name.split("/")[0] for name in rest if "/" in name})
        assert store.list_dir(prefix) == (objects, folders), prefix
        assert store.nbytes_stored(prefix) == sum(map(len, under)), prefix


def test_a_path_goes_with_its_last_object(store: Store) -> None:
    fill(store, "a/b/c/d", "e")
    store.delete_many(["a/b/c/d"])
    assert (store.list_dir(), store.list_dir("a")) == ((["e"], []), ([], []))


def test_deleting_a_prefix(store: Store) -> None:
    for path in ("", "a", "a/c", "ab", "b", "zarr.json", "none"):
        fill(store, *TREE)
        assert sorted(store) == sorted(TREE)
        store.delete_prefix(path)
        start = f"{path}/" if path else ""
        left = sorted(key for key in TREE if not key.startswith(start))
        assert sorted(store) == left, path
        assert store.list_dir()[1] == sorted({key.split("/")[0] for key in left if "/" in key}), path


def test_moving(store: Store) -> None:
    for source, dest in (("a", "x"), ("a/c", "x/y/z"), ("a", "ab/a"), ("b", "bb"), ("none", "x")):
        fill(store, *TREE)
        store.move_prefix(source, dest)
        expected = {dest + k[len(source) :] if k.startswith(source + "/") else k: k.encode() for k in TREE}
        assert dict(store) == expected, (source, dest)
        assert store.list_dir()[1] == sorted({key.split("/")[0] for key in expected if "/" in key})
        store.clear()


def test_a_move_that_would_lose_something_is_refused(store: Store) -> None:
    fill(store, *TREE)
    for source, dest in (("a", "b"), ("a", "a/c"), ("a", "a/new"), ("", "x"), ("a", ""), ("a", "a")):
        with pytest.raises(StoreError, match="move"):
            store.move_prefix(source, dest)
        assert sorted(store) == sorted(TREE), (source, dest)


# -- generations, names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["c/0", "zarr.json"])
def test_a_generation_says_whether_an_object_is_another(store: Store, key: str, request: pytest.FixtureRequest) -> None:
    assert token_of(store, key) is None
    store[key] = b"one"
    first = token_of(store, key)
    if first is None:
        assert request.node.callspec.params["store"] in WITHOUT_VERSIONS
        return
    assert token_of(store, key) == first
    store["other"] = b"x"
    assert store[key] == b"one"
    assert token_of(store, key) == first
    for value in (b"two", b"six", b"longer", b""):
        before = token_of(store, key)
        store[key] = value
        assert token_of(store, key) != before
        assert token_of(store, key) != first
    store.delete_many([key])
    assert token_of(store, key) is None


PINNED = [(None, None), (0, 3), (2, None), (-3, 3), (-3, None), (-500, 500), (-3, 2), (150, 100), (300, 5), (5, 0)]


def test_reads_say_the_version_that_they_are_of(store: Store) -> None:
    found: Any = store.versions
    if found is None or not found.pins:
        reads = [lambda: found.get_versioned([Request("c/0")]), lambda: found.get_pinned([Request("c/0")], {})]
        for read in reads if found else ():
            with pytest.raises(StoreError, match="versions"):
                read()
        return
    assert found.get_versioned([Request("c/0"), Request("c/0", -3, 3)]) == [None, None]
    store["c/0"], store["c/1"] = VALUE, b""
    requests = [Request("c/0", *bounds) for bounds in PINNED]
    for view in cast("Any", (store, read_only_view(store))):
        first = view.versions.get_versioned([*requests, Request("none"), Request("c/1", -3, 3)])
        versions = {"c/0": token_of(store, "c/0")}
        assert [item and item.version for item in first[:-1]] == [versions["c/0"]] * len(requests) + [None]
        assert first[-1] is not None
        assert (bytes(first[-1].data), first[-1].version) == (b"", token_of(store, "c/1"))
        wanted = [bytes(item or b"") for item in store.get_many(requests)]
        assert [bytes(item.data) for item in first if item is not None][:-1] == wanted
        assert [bytes(item or b"") for item in view.versions.get_pinned(requests, versions)] == wanted
        store["c/0"] = bytes(reversed(VALUE))
        again = view.versions.get_versioned([Request("c/0", 0, 3)])[0]
        assert again is not None
        assert (bytes(again.data), again.version) == (b"\xc7\xc6\xc5", token_of(store, "c/0"))
        with pytest.raises(ReplacedError):
            view.versions.get_pinned([Request("c/0", 0, 3)], versions)
        store["c/0"] = VALUE


def test_lock_names_tell_objects_apart(store: Store) -> None:
    names = [store.lock_name(key) for key in ("", "a", "a/b")]
    assert len(set(names)) == 3
    assert names == [store.lock_name(key) for key in ("", "a", "a/b")]
    assert names == [read_only_view(store).lock_name(key) for key in ("", "a", "a/b")]
    other = MemoryStore()
    assert other.lock_name("a") != store.lock_name("a")
    assert other != store
    assert store == store
    assert hash(store) == hash(store)


def test_the_name_looks_like_a_url(store: Store) -> None:
    assert re.match(r"[a-z0-9+-]+://.", str(store))
    assert str(store) in repr(store)


# -- read-only, closed ---------------------------------------------------------------------------------------------


def test_a_read_only_view_reads_and_refuses_changes(store: Store) -> None:
    fill(store, *TREE)
    view = read_only_view(store)
    assert view.read_only
    assert read_only_view(view) is view
    assert dict(view) == dict(store)
    assert view.list_dir("a") == store.list_dir("a")
    assert str(view) == str(store)
    changes: list[Callable[[], Any]] = [
        lambda: view.set("x", b""),
        lambda: view.set_many([("x", b"")]),
        lambda: view.delete_many(["a/zarr.json"]),
        lambda: view.delete_many([]),
        lambda: view.delete_prefix("a"),
        lambda: view.move_prefix("a", "z"),
        lambda: view.__setitem__("x", b""),
        lambda: view.__delitem__("a/zarr.json"),
        view.clear,
    ]
    for change in changes:
        with pytest.raises(ReadOnlyError, match="read-only"):
            change()
    view.close()
    assert dict(store) == {key: key.encode() for key in TREE}


def test_closing_twice_is_safe_and_a_closed_zip_says_so(store: Store) -> None:
    fill(store, *TREE)
    with store as entered:
        assert entered is store
    store.close()
    if isinstance(store, SQLiteStore) and store.path == ":memory:":
        return  # its contents end with it
    if not isinstance(store, ZipStore):
        assert sorted(store) == sorted(TREE)
        return
    uses: list[Callable[[], Any]] = [
        lambda: store.get_one(Request("a/c/0/0")),
        lambda: store.get_many([Request("none")]),
        lambda: store.set("x", b""),
        lambda: store.set("zarr.json", b""),
        lambda: store.delete_many(["none"]),
        lambda: store.delete_prefix("a"),
        lambda: store.move_prefix("a", "b"),
        lambda: list(store),
        store.list_dir,
        lambda: store.getsize("x"),
        lambda: token_of(store, "x"),
        lambda: "x" in store,
    ]
    for use in uses:
        with pytest.raises(StoreError, match="is closed"):
            use()
    assert "zip" in str(store)


# -- mapping -------------------------------------------------------------------------------------------------------


def test_it_is_a_mutable_mapping(store: Store) -> None:
    model = {key: key.encode() for key in TREE}
    store.update(model)
    assert dict(store) == model
    assert len(store) == len(model)
    assert sorted(store.keys()) == sorted(model)
    assert sorted(store.values()) == sorted(model.values())
    assert sorted(store.items()) == sorted(model.items())
    assert "a/c/0/0" in store
    assert "a" not in store
    assert 5 not in store
    assert store.get("none") is None
    assert (store.get("none", b"d"), store.pop("a/c/0/0")) == (b"d", b"a/c/0/0")
    assert store.setdefault("a/c/0/0", b"new") == b"new"
    with pytest.raises(KeyError, match="none"):
        store["none"]
    with pytest.raises(KeyError, match="none"):
        del store["none"]
    del store["zarr.json"]
    assert "zarr.json" not in store


# -- conditions ----------------------------------------------------------------------------------------------------


on_conditions = pytest.mark.parametrize("store", WITH_CONDITIONS, indirect=True)


def test_what_has_conditions(store: Store, request: pytest.FixtureRequest) -> None:
    assert (store.conditional is not None) is (request.node.callspec.params["store"] in WITH_CONDITIONS)


@pytest.fixture
def conditional(store: Store) -> Conditional:
    assert store.conditional is not None
    return store.conditional


def tag_of(conditional: Conditional, key: str) -> object | None:
    found = conditional.get_tagged([key])[0]
    return None if found is None else found.version


def test_an_object_is_stored_only_if_none_is_there(store: Store) -> None:
    for key in ("zarr.json", "c/0"):
        assert store.set_if_missing(key, memoryview(b"first")) is True
        assert store.set_if_missing(key, b"second") is False
        assert store[key] == b"first"
        store.delete_many([key])
        assert store.set_if_missing(key, b"third") is True
        assert store[key] == b"third"
    with pytest.raises(StoreError, match="key"):
        store.set_if_missing("../x", b"")
    with pytest.raises(ReadOnlyError):
        read_only_view(store).set_if_missing("zarr.json", b"")


@on_conditions
def test_objects_are_replaced_only_in_the_version_that_was_read(store: Store, conditional: Conditional) -> None:
    fill(store, "c/0", "c/1", "c/there")
    found = conditional.get_tagged(["c/0", "missing", "c/there", "c/1"])
    assert [item and bytes(item.data) for item in found] == [b"c/0", None, b"c/there", b"c/1"]
    tags = [tag_of(conditional, key) for key in ("c/0", "missing", "c/there", "c/1")]
    assert tags[0] is not None
    store["c/1"] = b"replaced"
    changes = [
        Change("c/0", memoryview(b"new"), tags[0]),
        Change("c/1", b"stale", tags[3]),
        Change("missing", np.frombuffer(b"made", "u1"), None),
        Change("c/there", b"there already", None),
    ]
    assert conditional.set_if(changes) == [True, False, True, False]
    assert [conditional.set_if([change]) for change in changes] == [[False]] * 4
    assert [store[change.key] for change in changes] == [b"new", b"replaced", b"made", b"c/there"]
    assert conditional.set_if([]) == conditional.get_tagged([]) == []


@on_conditions
def test_a_version_that_was_deleted_is_not_replaced(store: Store, conditional: Conditional) -> None:
    fill(store, "c/0")
    tag = tag_of(conditional, "c/0")
    store.delete_many(["c/0"])
    assert conditional.set_if([Change("c/0", b"new", tag)]) == [False]
    assert "c/0" not in store
    store["c/0"] = b"again"
    assert conditional.set_if([Change("c/0", b"new", tag)]) == [False]
    assert store["c/0"] == b"again"


@on_conditions
def test_changes_without_a_condition_are_always_carried_out(store: Store, conditional: Conditional) -> None:
    fill(store, "c/0", "c/1")
    tag = tag_of(conditional, "c/1")
    store["c/1"] = b"newer"
    changes = [
        Change("c/0", None, ANY),
        Change("missing", None, ANY),
        Change("c/2", b"new", ANY),
        Change("c/1", b"refused", tag),
        Change("c/3", b"made", None),
    ]
    assert conditional.set_if(changes) == [True, True, True, False, True]
    assert store.get_many([Request(f"c/{i}") for i in range(4)]) == [None, b"newer", b"new", b"made"]


@on_conditions
def test_objects_are_deleted_only_in_the_version_that_was_read(store: Store, conditional: Conditional) -> None:
    if not conditional.deletes:
        pytest.skip("the server deletes without conditions only")
    fill(store, "c/0", "c/1")
    tags = [tag_of(conditional, key) for key in ("c/0", "c/1")]
    store["c/1"] = b"newer"
    changes = [Change("c/0", None, tags[0]), Change("c/1", None, tags[1])]
    assert conditional.set_if(changes) == [True, False]
    assert [conditional.set_if([change]) for change in changes] == [[False]] * 2
    assert store.contains_many(["c/0", "c/1"]) == [False, True]


@on_conditions
def test_of_threads_that_change_an_object_without_locks_none_loses(store: Store, conditional: Conditional) -> None:
    def add(thread: int) -> None:
        for i in range(5):
            done = False
            while not done:
                found = conditional.get_tagged(["c/0"])[0]
                old = b"" if found is None else bytes(found.data)
                change = Change("c/0", old + bytes([thread, i]), found and found.version)
                done = conditional.set_if([change])[0]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    value = store["c/0"]
    assert {value[i : i + 2] for i in range(0, len(value), 2)} == {bytes([t, i]) for t in range(4) for i in range(5)}


@pytest.mark.parametrize("key", ["zarr.json", "a/.zattrs"])
def test_of_threads_that_change_a_document_none_loses(store: Store, key: str) -> None:
    def add(thread: int) -> None:
        for i in range(3):
            change_object(store, key, lambda old, i=i: bytes(old or b"") + bytes([thread, i]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    value = store[key]
    assert {value[i : i + 2] for i in range(0, len(value), 2)} == {bytes([t, i]) for t in range(4) for i in range(3)}
    change_object(store, key, lambda old: old)
    assert store[key] == value
    change_object(store, key, lambda _: None)
    assert store.get_one(Request(key)) in (None, b"{}")
    change_object(store, "none/.zattrs", lambda _: None)
    assert "none/.zattrs" not in store


# -- threads -------------------------------------------------------------------------------------------------------


def test_many_threads_may_write_read_list_and_delete(store: Store) -> None:
    def work(thread: int) -> None:
        for i in range(6):
            key, value = f"t{thread}/c/{i}", bytes([thread, i]) * 50
            store.set(key, value)
            store.set(f"t{thread}/zarr.json", value)
            assert store.get_many([Request(key), Request(key, 2, 4)]) == [value, value[2:6]]
            assert key in set(store.list_prefix(f"t{thread}"))
            if i % 3 == 2:
                store.delete_many([key])
                assert store.get_one(Request(key)) is None
        store.list_dir()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(store) == 8 * (4 + 1)


@pytest.mark.parametrize("key", ["c/0", "zarr.json"])
def test_a_reader_sees_old_or_new_bytes_and_never_a_mixture(store: Store, key: str) -> None:
    values = [bytes([i]) * (3000 + 500 * i) for i in range(4)]
    store[key] = values[0]
    stop = threading.Event()

    def read() -> int:
        nread = 0
        while not stop.is_set() or not nread:
            whole, part = store.get_one(Request(key)), store.get_one(Request(key, 100, 2000))
            assert whole is not None
            assert bytes(whole) in values
            assert part is not None
            assert (len(set(bytes(part))), len(part)) == (1, 2000)
            nread += 1
        return nread

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for i in range(20):
                store[key] = values[i % 4]
        finally:
            stop.set()
        assert all(reader.result() > 0 for reader in readers)
