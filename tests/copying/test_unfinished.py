"""Interrupted copies: a process that is killed, a store that fails or fills up; and how they are gone on with."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.copying.arrays import plan_route
from gzarr.copying.planning import MARK, new_meta
from gzarr.copying.sources import from_array
from gzarr.errors import ArrayNotFoundError, ContainsNodeError, CopyError, NodeNotFoundError
from gzarr.storage import LocalStore, MemoryStore

ROOT = Path(__file__).parents[2]


def make_source(path):
    root = gzarr.create_group(path, attributes={"title": "x"})
    root.create_array("first", data=np.arange(100), chunks=10)
    big = root.create_array("group/big", shape=(400, 400), chunks=(20, 400), dtype="i4", attributes={"unit": "m"})
    big[:] = np.arange(160_000).reshape(400, 400)
    big[40:80] = 0  # chunks that are not stored
    root.create_array("last", data=np.linspace(0, 1, 50), chunks=7)
    return root


WAYS = {"rechunk": {"chunks": (50,)}, "encoded": {}, "to v2": {"zarr_format": 2}, "into shards": {"shards": None}}


def expected_objects(source, options):
    dest = MemoryStore()
    gzarr.transfer(source, dest, **options)
    return dict(dest)


# -- killed ------------------------------------------------------------------------------------------------------

#: Kills itself when the file of the n-th object is about to get its name: all of its bytes are in a temporary file.
KILLED_COPY = """
    import os, signal, sys, gzarr
    source, dest, options, countdown = sys.argv[1], sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])
    real = os.replace
    def replace(*names):
        global countdown
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*names)
    os.replace = replace
    gzarr.transfer(source, dest, **options)
"""


def versions(dest):
    """Inode and time of every chunk: what a second writing would change."""
    files = [p for p in dest.rglob("*") if p.is_file() and "/c/" in str(p) and ".__" not in p.name]
    return {str(p): (p.stat().st_ino, p.stat().st_mtime_ns) for p in files}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("way", "countdown"), [("rechunk", 2), ("rechunk", 25), ("encoded", 9), ("encoded", 40)])
def test_a_killed_copy_is_gone_on_with(tmp_path, way, countdown):
    source = make_source(tmp_path / "source.zarr")
    options = {"rechunk": {"chunks": 40, "budget_nbytes": 50_000}, "encoded": {"zarr_format": 3}}[way]
    dest = tmp_path / "dest.zarr"
    arguments = [str(source.store.root), str(dest), repr(options), str(countdown)]
    # The compiled loop gives files their names without Python.
    settings = {"GZARR_THREADING__MAX_WORKERS": "2", "GZARR_CPU__NATIVE": "0"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-c", textwrap.dedent(KILLED_COPY), *arguments]
    killed = subprocess.run(command, capture_output=True, timeout=300, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (dest / MARK).exists()
    with pytest.raises(CopyError, match="resume=True"):
        gzarr.transfer(source, dest, **options)
    before = versions(dest)
    assert len(before) >= countdown - 10
    gzarr.transfer(source, dest, resume=True, **options)
    assert dict(LocalStore(dest)) == expected_objects(source, options)
    after = versions(dest)
    again = [name for name in before if after[name] != before[name]]
    assert again == [] or way == "rechunk"
    assert len(again) < 10, "at most the objects of the regions that were under way"
    assert gzarr.transfer(source, dest, resume=True, **options).nskipped == 3


# -- failing stores ----------------------------------------------------------------------------------------------


class Failing(dict):
    """Memory that fails once, after some writes."""

    def __init__(self, countdown, error):
        super().__init__()
        self.countdown = countdown
        self.error = error

    def __setitem__(self, key, value):
        self.countdown -= 1
        if self.countdown == 0:
            raise self.error
        super().__setitem__(key, value)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_that_fails_anywhere_says_so_and_goes_on(way):
    source = make_source(None)
    options = dict(WAYS[way])
    if way == "rechunk":
        options = {"chunks": 25, "budget_nbytes": 9_000}
    if way == "into shards":
        source = source["group"]
        options = {"shards": (100, 400), "chunks": (20, 400)}
    expected = expected_objects(source, options)
    full = OSError(28, "No space left on device")
    nwrites = len(expected) + 1  # the mark too
    for countdown in sorted({*range(1, 12), 15, 20, 24, nwrites - 1, nwrites} & {*range(nwrites + 1)}):
        store = Failing(countdown, full)
        with pytest.raises(CopyError, match="No space left on device") as caught:
            gzarr.transfer(source, store, **options)
        message = str(caught.value)
        assert "wrote anything" in message or "resume=True" in message
        opened = MemoryStore(store)
        for path, node in source.members(None):
            if hasattr(node, "shape"):  # complete, or not there
                try:
                    copy = gzarr.open_array(opened, mode="r", path=path)
                except ArrayNotFoundError:
                    continue
                assert np.array_equal(copy[...], node[...])
        gzarr.transfer(source, store, resume=True, **options)
        assert dict(store) == expected, countdown
    store = Failing(nwrites + 1, full)
    gzarr.transfer(source, store, **options)


@pytest.fixture
def stopped():
    """(source, store with an unfinished copy of it)."""
    source = make_source(None)
    store = Failing(8, OSError(5, "Input/output error"))
    with pytest.raises(CopyError):
        gzarr.transfer(source, store, chunks=30)
    store.countdown = 0
    return source, store


def test_another_copy_is_not_gone_on_with(stopped):
    source, store = stopped
    before = dict(store)
    for what, options, match in [
        (source, {"chunks": 20}, r"chunk shape of the new array 'first' was \[30\], is \[20\]"),
        (source, {"chunks": 30, "zarr_format": 2}, "metadata of the new array 'first' was"),
        (source["group"], {"chunks": 30}, "the input first was memory/first, is nothing"),
    ]:
        with pytest.raises(CopyError, match=match):
            gzarr.transfer(what, store, resume=True, **options)
        assert dict(store) == before
    source["last"].resize(60)
    with pytest.raises(CopyError, match=r"shape of the input last \(memory/last\) was \[50\], is \[60\]"):
        gzarr.transfer(source, store, resume=True, chunks=30)


def test_an_unfinished_copy_can_be_begun_anew(stopped):
    source, store = stopped
    gzarr.transfer(source, store, chunks=40, if_exists="replace")
    assert dict(store) == expected_objects(source, {"chunks": 40})


def test_a_damaged_mark_is_reported(stopped):
    source, store = stopped
    dict.__setitem__(store, MARK, b"{")
    with pytest.raises(CopyError, match="is damaged"):
        gzarr.transfer(source, store, resume=True, chunks=30)


def test_resuming_what_was_never_begun_begins_it_and_what_is_done_is_left_alone():
    source, store = make_source(None), MemoryStore()
    assert len(gzarr.transfer(source, store, resume=True).arrays) == 3
    before = dict(store)
    report = gzarr.transfer(source, store, resume=True)
    assert report.nskipped == 3
    assert dict(store) == before
    gzarr.open(store)["last"].attrs["mine"] = 1
    with pytest.raises(CopyError, match="something else"):
        gzarr.transfer(source, store, resume=True)


def test_a_damaged_source_chunk_is_named_and_no_array_appears():
    source = make_source(None)
    source.store["group/big/c/7/0"] = b"damaged"
    store = MemoryStore()
    with pytest.raises(CopyError, match=r"group/big/c/7/0.*resume=True"):
        gzarr.transfer(source, store, chunks=40)
    with pytest.raises(NodeNotFoundError, match=r"an unfinished copy of .*resume=True"):
        gzarr.open(store)
    assert "group/big/zarr.json" not in store
    assert np.array_equal(gzarr.open_array(store, path="first")[:], np.arange(100))


# -- opened meanwhile --------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path):
    """The path of an array, half of which is copied, and the arguments of the copy."""
    source = gzarr.array(np.arange(100), chunks=10, store=tmp_path / "source.zarr")

    class Full(LocalStore):
        def set_many(self, items):
            for key, value in items:
                if key == "c/3":
                    raise OSError(28, "No space left on device")
                super().set_many([(key, value)])

        def set(self, key, value):
            self.set_many([(key, value)])

    with pytest.raises(CopyError, match="resume=True"):
        gzarr.transfer(source, Full(tmp_path / "copy.zarr"), chunks=20, budget_nbytes=1)
    return source, tmp_path / "copy.zarr"


@pytest.mark.parametrize("path", ["", "foo"])
@pytest.mark.parametrize("opener", [gzarr.open, gzarr.open_group, gzarr.group, gzarr.consolidate_metadata])
def test_opening_an_unfinished_copy_says_so_and_changes_nothing(unfinished, opener, path):
    source, place = unfinished
    with pytest.raises(NodeNotFoundError, match=r"an unfinished copy of .*source\.zarr is .*copy\.zarr.*resume="):
        opener(place / path)
    gzarr.transfer(source, place, chunks=20, budget_nbytes=1, resume=True)
    assert gzarr.open(place)[:].tolist() == list(range(100))


@pytest.mark.parametrize("creator", [gzarr.create_group, lambda place: gzarr.create_array(place, shape=3)])
def test_creating_over_an_unfinished_copy_needs_a_word(unfinished, creator):
    source, place = unfinished
    with pytest.raises(ContainsNodeError, match=r"an unfinished copy of .*source\.zarr.*overwrite=True"):
        creator(place)
    gzarr.transfer(source, place, chunks=20, budget_nbytes=1, resume=True)
    assert gzarr.open(place)[:].tolist() == list(range(100))


def test_an_unfinished_copy_is_replaced_on_request(unfinished):
    z = gzarr.create_array(unfinished[1], shape=100, chunks=20, dtype="i8", overwrite=True)
    assert not z[:].any()
    assert gzarr.open(unfinished[1]).shape == (100,)


# -- only the same copy goes on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keywords", [{}, {"shards": (20, 20)}], ids=["chunks", "shards"])
def test_a_source_that_has_changed_is_not_mixed_with_what_it_was(tmp_path, keywords):
    source = gzarr.create_array(tmp_path / "a.zarr", data=np.ones((40, 40)), chunks=(10, 10), **keywords)
    store = Failing(8, OSError(5, "Input/output error"))
    with pytest.raises(CopyError, match="Input/output error"):
        gzarr.transfer(source, store, chunks=5)
    source[:20] = 2
    before = dict(store)
    with pytest.raises(
        CopyError, match=r"input source \(file://.*a\.zarr\) was changed .*'c/0/0'.*if_exists='replace'"
    ):
        gzarr.transfer(source, store, chunks=5, resume=True)
    assert dict(store) == before
    gzarr.transfer(source, store, chunks=5, if_exists="replace")
    assert np.array_equal(gzarr.open_array(store)[...], source[...])


def test_data_in_memory_are_compared_by_value():
    data = np.arange(400).reshape(20, 20)
    store = Failing(6, OSError(5, "Input/output error"))
    with pytest.raises(CopyError):
        gzarr.transfer(data, store, chunks=5)
    with pytest.raises(CopyError, match=r"the elements of the input source \(memory\) have changed"):
        gzarr.transfer(data + 1, store, chunks=5, resume=True)
    gzarr.transfer(data.copy(), store, chunks=5, resume=True)
    assert np.array_equal(gzarr.open_array(store)[...], data)


def test_lazy_data_need_a_token():
    class Lazy:
        shape, dtype = (20, 20), np.dtype("i8")

        def __getitem__(self, region):
            return np.arange(400).reshape(20, 20)[region]

    with pytest.raises(ValueError, match=r"cannot compare the input source, of type .*Lazy.*resume='a text'"):
        gzarr.transfer(Lazy(), {}, resume=True)
    store = Failing(6, OSError(5, "Input/output error"))
    with pytest.raises(CopyError):
        gzarr.transfer(Lazy(), store, chunks=5, resume="v1")
    with pytest.raises(CopyError, match="the token was 'v1', is 'v2'"):
        gzarr.transfer(Lazy(), store, chunks=5, resume="v2")
    gzarr.transfer(Lazy(), store, chunks=5, resume="v1")
    assert gzarr.open_array(store)[19, 19] == 399


def test_a_mark_that_tells_nothing_of_the_source_is_refused(stopped):
    source, store = stopped
    dict.__setitem__(store, MARK, b'{"source": "memory://1", "fingerprint": "d2a8"}')
    with pytest.raises(CopyError, match=r"was not noted by the version of gzarr .*if_exists='replace'"):
        gzarr.transfer(source, store, chunks=30, resume=True)


def test_a_chunk_that_could_not_be_read_may_be_repaired(tmp_path):
    source, store = make_source(tmp_path / "a.zarr"), MemoryStore()
    whole = source.store["group/big/c/7/0"]
    source.store["group/big/c/7/0"] = b"damaged"
    with pytest.raises(CopyError, match=r"group/big/c/7/0.*resume=True"):
        gzarr.transfer(source, store, chunks=40)
    source.store["group/big/c/7/0"] = whole
    gzarr.transfer(source, store, chunks=40, resume=True)
    assert dict(store) == expected_objects(source, {"chunks": 40})


def test_arrays_of_a_finished_copy_are_not_completed_from_another_source():
    store = MemoryStore()
    gzarr.transfer(make_source(None)["group"], store)
    other = make_source(None)["group"]
    other["big"][...] = 7
    other.create_array("more", data=np.arange(3))
    with pytest.raises(CopyError, match=r"has 1 of the arrays, and no copy is unfinished .*if_exists='skip'"):
        gzarr.transfer(other, store, resume=True)
    assert "more/zarr.json" not in store
    gzarr.transfer(other, store, resume=True, if_exists="skip")
    assert gzarr.open(store)["more"][...].tolist() == [0, 1, 2]


def test_a_file_that_has_changed_is_not_mixed_with_what_it_was(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((40, 40)))
    store = Failing(6, OSError(5, "Input/output error"))
    with pytest.raises(CopyError):
        gzarr.convert.from_file(path, store, chunks=10)
    np.save(path, np.full((40, 40), 5.0))
    with pytest.raises(CopyError, match=r"a\.npy\) was changed or written again"):
        gzarr.convert.from_file(path, store, chunks=10, resume=True)


# -- planning ----------------------------------------------------------------------------------------------------------


def test_a_route_is_chosen_by_what_is_stored():
    z = gzarr.create_array(shape=(8, 8), chunks=(2, 2), dtype="i4", compressor=numcodecs.Zstd(1))

    def how(**keywords):
        return plan_route(from_array(z), new_meta(from_array(z), keywords), 10**6).how

    assert (how(), how(shards=(4, 4))) == ("objects", "chunks")
    assert (how(zarr_format=2), how(compressors=None)) == ("objects", "decode")
    assert (how(chunks=(4, 4)), how(fill_value=3)) == ("decode", "decode")
    assert how(order="F") == "decode"
