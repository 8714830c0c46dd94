"""Stores that change bytes are never bypassed: wrappers and subclasses, with each capability declared and not."""

import pickle
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import storage
from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer, Change, Conditional, Files, Versioned, Versions, host_view
from gzarr.storage.wrappers import ForwardedConditional, ForwardedVersions
from tests.contracts.stores import MAKERS

INVERSE = bytes(255 - byte for byte in range(256))


def inverted(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(host_view(data)).translate(INVERSE)


class InvertedVersions(ForwardedVersions):
    """Versions whose bytes come inverted."""

    def get_pinned(self, requests: Sequence[storage.Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        return [inverted(data) for data in super().get_pinned(requests, versions)]

    def get_versioned(self, requests: Sequence[storage.Request]) -> list[Versioned | None]:
        found = super().get_versioned(requests)
        return [item and Versioned(inverted(item.data) or b"", item.version) for item in found]


class InvertedConditional(ForwardedConditional):
    """Conditions on objects whose bytes are stored inverted."""

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        return [item and Versioned(inverted(item.data) or b"", item.version) for item in super().get_tagged(keys)]

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        return super().set_if([change._replace(value=inverted(change.value)) for change in changes])


def inverting(base: Any, capabilities: Iterable[str] = ()) -> Any:
    """A subclass that changes bytes in the two required verbs alone, with some capabilities of its own."""

    class Inverting(base):
        def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
            return [inverted(data) for data in super().get_many(requests)]

        def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
            super().set_many([(key, inverted(data) or b"") for key, data in items])

        if "files" in capabilities:

            @property
            def files(self) -> Files | None:
                below = super().files
                return None if below is None else Files()

        if "versions" in capabilities:

            @property
            def versions(self) -> Versions | None:
                below = super().versions
                return None if below is None else InvertedVersions(below)

        if "conditional" in capabilities:

            @property
            def conditional(self) -> Conditional | None:
                below = super().conditional
                return None if below is None else InvertedConditional(below)

    return Inverting


VALUES = np.arange(48 * 48, dtype="i4").reshape(48, 48)
#: One array for each way of reading: small chunks, a chunk that is large enough to be read in parts, shards.
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (12, 12)},
    "large": {"chunks": (288, 288), "compressors": None},
    "sharded": {"chunks": (6, 6), "shards": (24, 24), "compressors": None},
    "v2": {"chunks": (12, 12), "zarr_format": 2},
}
ALL = ("files", "versions", "conditional")
CAPABILITIES = [(), *((name,) for name in ALL), ALL]
READ = np.s_[...], np.s_[12:36, 12:24], np.s_[5:7], np.s_[3, 40], np.s_[1:2, 0:48:5]
WRITTEN = np.s_[12:36, 12:24], np.s_[5:7], np.s_[3, 40]


def check_values(array: Any, model: np.ndarray[Any, Any]) -> None:
    """Read all, some chunks, and parts of chunks, with the compiled loop and without it."""
    for native in (True, False):
        with config.set({"cpu.native": native}):
            for selection in READ:
                np.testing.assert_array_equal(array[selection], model[selection])


def check_store(store: storage.Store, layouts: Iterable[str] = LAYOUTS) -> None:
    """Write and read arrays in a store, in all ways."""
    for name in layouts:
        options = LAYOUTS[name]
        model = np.tile(VALUES, (6, 6) if name == "large" else (1, 1))
        group = f"v{options.get('zarr_format', 3)}"
        for native in (True, False):
            with config.set({"cpu.native": native}):
                array = gzarr.create_array(store, name=f"{group}/{name}", data=model, overwrite=True, **options)
                for selection in WRITTEN:
                    array[selection] = model[selection] = -model[selection]
            check_values(gzarr.open_array(store, path=f"{group}/{name}", mode="r"), model)
        cached = gzarr.open_array(store, path=f"{group}/{name}", chunk_cache=1 << 24)
        for value in (1, 2):
            cached[5:7] = model[5:7] = value
            check_values(cached, model)
        gzarr.consolidate_metadata(store, path=group)
        root: Any = gzarr.open_consolidated(store, path=group)
        assert name in list(root)
        check_values(root[name], model)


@pytest.mark.parametrize("name", MAKERS)
def test_wrappers_that_change_bytes_are_not_bypassed(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with MAKERS[name](tmp_path, request) as below:
        check_store(inverting(storage.WrapperStore, ALL)(below), ["plain", "sharded"])


@pytest.mark.parametrize("capabilities", CAPABILITIES, ids=" and ".join)
@pytest.mark.parametrize("name", ["local", "memory", "obstore memory"])
def test_each_capability_of_a_wrapper_that_changes_bytes(
    name: str, capabilities: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with MAKERS[name](tmp_path, request) as below:
        check_store(inverting(storage.WrapperStore, capabilities)(below))


def through(store: storage.Store) -> list[storage.Store]:
    """A store as built-in wrappers show it."""
    return [
        storage.CountingStore(store),
        storage.LoggingStore(store),
        storage.LRUStoreCache(store, 1 << 24),
        storage.synchronized(store, storage.ThreadSynchronizer()),
    ]


@pytest.mark.parametrize("capabilities", CAPABILITIES, ids=" and ".join)
def test_a_subclass_that_changes_bytes_is_not_bypassed(capabilities: tuple[str, ...], tmp_path: Path) -> None:
    check_store(inverting(storage.DirectoryStore if capabilities else storage.LocalStore, capabilities)(tmp_path))
    raw = storage.LocalStore(tmp_path)["v3/plain/zarr.json"]
    assert inverted(raw)[:1] == b"{"


SHORTCUTS = {"get_one": "get_many", "set": "set_many"}
MAPPING = {"__getitem__": "get_many", "__setitem__": "set_many", "__delitem__": "delete_many"}
#: A verb of each kind that bytes pass through.
BYTE_VERBS = {*SHORTCUTS, *SHORTCUTS.values(), *MAPPING, *MAPPING.values()}


def verbs(base: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(base, name) for name in names}


def test_a_shortcut_without_the_batched_verb_is_refused() -> None:
    for verb, batched in {**SHORTCUTS, **MAPPING}.items():
        mixin = type("Mixin", (), verbs(storage.Store, verb))
        for bases, body in (
            ((storage.LocalStore,), verbs(storage.Store, verb)),
            ((mixin, storage.LocalStore), {}),
            ((storage.LocalStore, mixin), {}),
        ):
            with pytest.raises(TypeError, match=f"{verb} is made of {batched}; override {batched} instead"):
                type("Refused", bases, body)
    for verb, batched in SHORTCUTS.items():
        both = verbs(storage.LocalStore, verb, batched)
        type("Both", (storage.LocalStore,), both)
        type("Both", (type("Mixin", (), both), storage.LocalStore), {})


def as_subclass(store: storage.Store, make: Any) -> Any:
    """The same store, of a subclass of its class."""
    cls = make(type(store))
    other = cls.__new__(cls)
    other.__dict__ = store.__dict__
    return other


def two_levels(base: Any) -> Any:
    return type("Second", (type("First", (inverting(base),), {"extra": 1}),), {"more": 2})


def mixed(base: Any) -> Any:
    """A class into which both batched verbs are mixed."""

    class Mixin:
        def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
            return [inverted(data) for data in base.get_many(self, requests)]

        def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
            base.set_many(self, [(key, inverted(data) or b"") for key, data in items])

    return type("Mixed", (Mixin, base), {})


def both_verbs(base: Any) -> Any:
    """A subclass that overrides shortcuts and batched verbs, each by calling the same verb above it."""

    class Both(inverting(base)):  # type: ignore[misc]
        def get_one(self, request: storage.Request) -> Buffer | None:
            return inverted(inverted(super().get_one(request)))

        def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
            return [inverted(inverted(data)) for data in super().get_many(requests)]

    return Both


@pytest.mark.parametrize("make", [inverting, two_levels, mixed, both_verbs])
@pytest.mark.parametrize("name", MAKERS)
def test_all_ways_to_bytes_are_made_of_the_batched_verbs(
    name: str, make: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with MAKERS[name](tmp_path, request) as below:
        base: Any = type(below)
        store = as_subclass(below, make)
        assert (store.files, store.versions, store.conditional) == (None, None, None)
        array = gzarr.create_array(store, data=np.arange(1, 4, dtype="u1"), chunks=3, compressors=None)
        assert inverted(base.get_many(store, [storage.Request("c/0")])[0]) == b"\1\2\3"
        np.testing.assert_array_equal(array[...], [1, 2, 3])
        store.set("b/c/0", b"a")
        store["b/c/1"] = b"b"
        store.set_many([("b/c/2", b"c")])
        assert (store.set_if_missing("b/c/2", b"x"), store.set_if_missing("b/c/3", b"d")) == (False, True)
        assert inverted(base.get_many(store, [storage.Request("b/c/3")])[0]) == b"d"
        keys = [f"b/c/{i}" for i in range(3)]
        wanted = [storage.Request(key) for key in keys]
        assert b"".join(inverted(data) or b"" for data in base.get_many(store, wanted)) == b"abc"
        assert b"".join(bytes(host_view(data)) for data in store.get_many(wanted)) == b"abc"
        assert b"".join(bytes(host_view(store.get_one(one))) for one in wanted) == b"abc"
        assert [store[key] for key in keys] == [b"a", b"b", b"c"]


def hiding(base: Any) -> Any:
    """A subclass whose batched verb alone says that objects are missing."""

    class Hiding(base):
        def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
            found = super().get_many(requests)
            return [None if one.key == "hidden" else data for one, data in zip(requests, found, strict=True)]

    return Hiding


@pytest.mark.parametrize("name", MAKERS)
def test_the_batched_verb_says_whether_objects_exist(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with MAKERS[name](tmp_path, request) as below:
        store = as_subclass(below, hiding)
        store.set_many([("hidden", b"a"), ("shown", b"b")])
        assert store.contains_many(["hidden", "shown", "none"]) == [False, True, False]
        assert store.get_one(storage.Request("hidden")) is None


class Deflated(storage.WrapperStore):
    """Stores objects deflated, so that ranges of them mean nothing. It keeps a list of what is asked for."""

    def __init__(self, store: storage.Store) -> None:
        super().__init__(store)
        self.asked: list[storage.Request] = []

    def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
        self.asked += requests
        return [data and zlib.decompress(host_view(data)) for data in super().get_many(requests)]

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        super().set_many([(key, zlib.compress(host_view(data))) for key, data in items])


def deflated_in(tmp_path: Path) -> list[tuple[Deflated, storage.Store]]:
    """Stores that deflate, each with a store to be used."""
    local, memory = Deflated(storage.LocalStore(tmp_path / "x")), Deflated(storage.MemoryStore())
    inner, tied = Deflated(storage.MemoryStore()), Deflated(storage.MemoryStore())
    cached = Deflated(storage.LocalStore(tmp_path / "y"))
    return [
        (local, local),
        (memory, memory),
        (inner, storage.CountingStore(inner)),
        (tied, storage.synchronized(tied, storage.ThreadSynchronizer())),
        (cached, storage.LRUStoreCache(cached, 1 << 24)),
    ]


def test_a_wrapper_that_changes_lengths_is_asked_for_whole_objects_alone(tmp_path: Path) -> None:
    for deflated, store in deflated_in(tmp_path):
        check_store(store)
        assert {request.start for request in deflated.asked} == {None}


def offers(cls: Any) -> tuple[bool, bool]:
    store = cls("x")
    return store.files is not None, store.versions is not None


def test_classes_that_leave_bytes_alone_inherit_capabilities(tmp_path: Path) -> None:
    class Named(storage.LocalStore):
        name = "named"

        def __init__(self, root: str) -> None:
            super().__init__(root)

        def lock_name(self, key: str) -> Any:
            return super().lock_name(key)

    class Mixin:
        def hello(self) -> str:
            return "hello"

    class Passing(storage.WrapperStore):
        pass

    for cls in (Named, type("Second", (Named,), {}), type("Mixed", (Mixin, Named), {})):
        assert offers(cls) == (True, True)
    wrapped = Passing(storage.LocalStore(tmp_path))
    assert wrapped.files is not None
    assert wrapped.versions is not None
    check_store(Named(str(tmp_path / "named")))


def test_classes_that_override_a_verb_of_bytes_inherit_none() -> None:
    for verb in sorted(BYTE_VERBS - MAPPING.keys()):
        names = (verb, SHORTCUTS.get(verb, verb))
        changed = type("Changed", (storage.LocalStore,), verbs(storage.LocalStore, *names))
        mixin = type("Mixin", (), verbs(storage.LocalStore, *names))
        for cls in (changed, type("Second", (changed,), {}), type("M", (mixin, storage.LocalStore), {})):
            assert offers(cls) == (False, False)
    hook = type("Hook", (storage.LocalStore,), {"_path": lambda self, key: f"/elsewhere/{key}"})
    other = type("Other", (storage.LocalStore,), {})
    for cls in (hook, type("Joined", (other, storage.DirectoryStore), {})):
        assert offers(cls) == (False, False)


def test_classes_that_override_verbs_may_declare_capabilities() -> None:
    declared = {"files": storage.LocalStore.files, "versions": storage.LocalStore.versions}
    saying = type("Saying", (storage.LocalStore,), {**declared, **verbs(storage.LocalStore, "get_many")})
    some = type(
        "Some", (storage.LocalStore,), {"files": storage.LocalStore.files, **verbs(storage.LocalStore, "get_many")}
    )
    assert offers(saying) == offers(type("Second", (saying,), {})) == (True, True)
    assert offers(some) == (True, False)
    assert offers(type("Changed", (saying,), verbs(storage.LocalStore, "set_many"))) == (False, False)


def test_conditions_are_inherited_and_lost_like_other_capabilities(tmp_path: Path) -> None:
    store = storage.SQLiteStore(tmp_path / "x.sqlite")
    passing, changing = type("Passing", (storage.SQLiteStore,), {}), inverting(storage.SQLiteStore)
    declared = type("Declared", (changing,), {"conditional": storage.SQLiteStore.conditional})
    found = [as_subclass(store, lambda _, cls=cls: cls).conditional for cls in (passing, changing, declared)]
    assert [conditional is not None for conditional in found] == [True, False, True]
    assert storage.read_only(store).conditional is None
    for seen in (*through(store), Through(store)):
        conditional = seen.conditional
        assert conditional is not None
        seen["c/0"] = b"old"
        before = seen["c/0"], store["c/0"]
        item = conditional.get_tagged(["c/0"])[0]
        assert item is not None
        assert conditional.set_if([Change("c/0", b"new", item.version)]) == [True]
        assert (before, seen["c/0"], store["c/0"]) == ((b"old", b"old"), b"new", b"new")
        assert conditional.set_if([Change("c/0", b"newer", item.version)]) == [False]


class Through(storage.WrapperStore):
    """A wrapper that changes nothing."""


def test_placement_says_which_capabilities_are_missing(tmp_path: Path) -> None:
    plain = gzarr.create_array(storage.LocalStore(tmp_path), data=VALUES, device="cpu", **LAYOUTS["sharded"])
    assert "no versions" not in str(plain.placement)
    store = inverting(storage.LocalStore)(tmp_path / "x")
    changed = gzarr.create_array(store, data=VALUES, device="cpu", **LAYOUTS["sharded"])
    reasons = [row.why for row in changed.placement]
    assert "shards are read whole: the store has no versions" in reasons
    assert "by the reference path: objects of this store are replaced one by one" in reasons


def test_built_in_classes_that_leave_bytes_alone_say_so(tmp_path: Path) -> None:
    local = storage.LocalStore(tmp_path)
    for store in (
        storage.DirectoryStore(tmp_path),
        storage.NestedDirectoryStore(tmp_path),
        storage.TempStore(),
        storage.synchronized(local, storage.ThreadSynchronizer()),
        storage.read_only(local),
    ):
        files, versions = store.files, store.versions
        assert files is not None
        assert versions is not None
        assert files.path("c/0") is not None
        assert (files.target("") is None) == store.read_only


# -- pickles -------------------------------------------------------------------------------------------------------

#: Stores that no pickle can hold, and what says so.
NOT_PICKLED = {
    "zip path": "mode 'r'",
    "zip file object": "mode 'r'",
    "zip deflated": "mode 'r'",
    "sqlite in memory": "cannot be pickled",
    "obstore memory": "pickle",
    "cache of obstore memory": "pickle",
    "split, chunks in obstore memory": "pickle",
    "abs": "pickle",
}


def keyed(store: storage.Store) -> Any:
    """Make a store one of a subclass that changes bytes by a table of its own, and has arguments of its own."""

    class Keyed(type(store)):  # type: ignore[misc]
        def __init__(self, table: bytes) -> None:
            raise AssertionError("nobody but the user knows the arguments")

        def get_many(self, requests: Sequence[storage.Request]) -> list[Buffer | None]:
            found = super().get_many(requests)
            return [None if data is None else bytes(host_view(data)).translate(self.table) for data in found]

        def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
            super().set_many([(key, bytes(host_view(data)).translate(self.table)) for key, data in items])

    Keyed.__qualname__ = "Keyed"
    globals()["Keyed"] = Keyed  # where pickle looks for it
    changed: Any = store
    changed.__class__ = Keyed
    changed.table = INVERSE
    return changed


@pytest.mark.parametrize("maker", MAKERS)
def test_a_pickled_subclass_stays_one(maker: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = keyed(MAKERS[maker](tmp_path, request))
    store["c/0"] = b"abc"
    if maker in NOT_PICKLED:
        with pytest.raises((StoreError, TypeError), match=NOT_PICKLED[maker]):
            pickle.dumps(store)
        store.close()
        return
    again = pickle.loads(pickle.dumps(store))
    assert type(again) is type(store)
    assert vars(again).keys() == vars(store).keys()
    assert (again.table, again.read_only, str(again)[:6]) == (INVERSE, store.read_only, str(store)[:6])
    assert again.files is again.versions is None
    if not maker.startswith("fsspec memory"):  # a name in this process
        again["c/1"] = b"def"
        assert (again["c/0"], again["c/1"]) == (b"abc", b"def")
    again.close()
    store.close()
