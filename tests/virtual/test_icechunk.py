"""Versions of Icechunk's repositories in place, and transactions. They need Icechunk 2, which needs Python 3.12."""

import json
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.virtual.icechunk import RepositoryStore

icechunk = pytest.importorskip("icechunk", minversion="2")
zarr = pytest.importorskip("zarr")

DATA = np.random.default_rng(0).integers(0, 99, (60, 41))


@pytest.fixture
def repository(tmp_path: Path) -> Any:
    """A repository with native and inline chunks, and a group, an attribute and missing chunks."""
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    with gzarr.transaction(made, "first", metadata={"by": "test"}) as root:
        root.attrs["title"] = "all"
        root.create_array("deep/a", data=DATA, chunks=(10, 20), compressors=None)
        root.create_array("small", shape=(6,), chunks=(2,), dtype="i1")[:4] = [1, 2, 3, 4]
        root.create_array("sharded", data=DATA, chunks=(5, 5), shards=(20, 25))
        root.create_array("scalar", data=7)
    return made


def test_many_chunks_are_written_by_several_threads(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 4000, (1024, 128, 128), "u2")

    def write() -> None:
        with gzarr.transaction(f"icechunk://{tmp_path}/many", "many") as root:
            root.create_array("x", data=data, chunks=(1, 128, 128))

    writer = Thread(target=write, daemon=True)  # it once waited for ever for the name of the store
    writer.start()
    writer.join(60)
    assert not writer.is_alive()
    np.testing.assert_array_equal(gzarr.open_array(f"icechunk://{tmp_path}/many/x")[::100], data[::100])


def check_files(root: Any) -> None:
    """Arrays are read from the files of a repository, whole and in part."""
    assert isinstance(root.store, RepositoryStore)
    np.testing.assert_array_equal(root["deep/a"][...], DATA)
    np.testing.assert_array_equal(root["deep/a"][3:55:4, [0, 40]], DATA[3:55:4, [0, 40]])
    np.testing.assert_array_equal(root["sharded"][7:31, 3:], DATA[7:31, 3:])


def test_a_version_is_read_from_its_files(repository: Any, tmp_path: Path) -> None:
    for place in (repository, f"icechunk://{tmp_path}/repo"):
        root = gzarr.open_group(place)
        check_files(root)
        assert (root["small"][:].tolist(), root["small"].nchunks_initialized) == ([1, 2, 3, 4, 0, 0], 2)
        assert (root["scalar"][()], root.attrs["title"]) == (7, "all")
        assert sorted(path for path, _ in root.members(None)) == ["deep", "deep/a", "scalar", "sharded", "small"]
    assert gzarr.open(f"icechunk://{tmp_path}/repo/deep/a")[3, 4] == DATA[3, 4]
    assert gzarr.open_array(repository, path="deep/a")[3, 4] == DATA[3, 4]
    again = pickle.loads(pickle.dumps(root))
    np.testing.assert_array_equal(again["deep/a"][...], DATA)
    theirs = zarr.open_group(repository.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(theirs["deep/a"][...], DATA)


def test_versions_are_chosen_by_branch_tag_and_snapshot(repository: Any) -> None:
    first = repository.lookup_branch("main")
    repository.create_tag("v1", first)
    opened = gzarr.open_group(repository)
    with gzarr.transaction(repository, "second") as root:
        root["small"][:2] = 9
    repository.create_branch("old", first)
    for version, expected in (
        ({}, 9),
        ({"branch": "main"}, 9),
        ({"branch": "old"}, 1),
        ({"tag": "v1"}, 1),
        ({"snapshot": first}, 1),
    ):
        assert gzarr.open_group(repository, **version)["small"][0] == expected
    assert opened["small"][0] == 1
    assert gzarr.open_group(repository.readonly_session(tag="v1"))["small"][0] == 1
    with pytest.raises(StoreError, match="one of branch, tag and snapshot"):
        gzarr.open_group(repository, branch="main", tag="v1")
    with pytest.raises(StoreError, match=r"'nothing'.*has the branches \['main', 'old'\] and the tags \['v1'\]"):
        gzarr.open_group(repository, branch="nothing")
    with pytest.raises(StoreError, match="a session is of one version"):
        gzarr.open_group(repository.readonly_session("main"), tag="v1")
    with pytest.raises(StoreError, match="are of Icechunk's repositories"):
        gzarr.open_group("x.zarr", branch="main")
    with pytest.raises(StoreError, match="open the repository with icechunk"):
        gzarr.open_group("icechunk://gs://bucket/repo")
    with pytest.raises(StoreError, match="cannot open the repository"):
        gzarr.open_group("icechunk://nowhere/at/all")


def test_chunks_outside_the_shape_do_not_show(repository: Any) -> None:
    session = repository.writable_session("main")
    document = json.loads(gzarr.open_group(session)["deep/a"].store["deep/a/zarr.json"])
    gzarr.open_group(session).store["deep/a/zarr.json"] = json.dumps(document | {"shape": [25, 15]}).encode()
    session.commit("smaller")
    array = gzarr.open_group(repository)["deep/a"]
    np.testing.assert_array_equal(array[...], DATA[:25, :15])


def test_a_version_is_not_written_to(repository: Any) -> None:
    with pytest.raises(ReadOnlyError, match=r"gzarr\.transaction"):
        gzarr.open_group(repository)["small"][0] = 1
    with pytest.raises(ReadOnlyError):
        gzarr.open_group(repository, "w")


def messages(repository: Any) -> list[str]:
    return [one.message for one in repository.ancestry(branch="main")]


def test_a_transaction_is_committed_whole_or_not_at_all(repository: Any) -> None:
    kept: list[Any] = []

    def fail() -> None:
        with gzarr.transaction(repository, "never") as root:
            root["small"][:] = 5
            root["more"] = DATA
            kept.append(root)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    with gzarr.transaction(repository, "nothing changed"):
        pass
    assert messages(repository)[0] == "first"
    assert sorted(gzarr.open_group(repository)) == ["deep", "scalar", "sharded", "small"]
    assert next(iter(repository.ancestry(branch="main"))).metadata["by"] == "test"
    with (
        pytest.raises(StoreError, match="give the repository"),
        gzarr.transaction(repository.writable_session("main"), "x"),
    ):
        pass


def test_changes_of_others_are_kept_unless_they_conflict(repository: Any) -> None:

    def change(number: int, row: slice, other_row: slice) -> None:
        with gzarr.transaction(repository, f"outer {number}") as root:
            root["small"][row] = 8 * number
            with gzarr.transaction(repository, f"inner {number}") as other:
                other["small"][other_row] = 9 * number

    change(1, slice(0, 2), slice(4, 6))
    assert gzarr.open_group(repository)["small"][:].tolist() == [8, 8, 3, 4, 9, 9]
    with pytest.raises(StoreError, match="cannot commit 'outer 2'"):
        change(2, slice(0, 2), slice(0, 2))
    assert gzarr.open_group(repository)["small"][:2].tolist() == [18, 18]
    assert messages(repository)[:3] == ["inner 2", "outer 1", "inner 1"]


def test_copies_into_and_out_of_a_repository(repository: Any, tmp_path: Path) -> None:
    source = gzarr.group(tmp_path / "source.zarr", attributes={"a": 1})
    source.create_array("g/x", data=DATA, chunks=(7, 7))
    gzarr.transfer(source, f"icechunk://{tmp_path}/new")
    gzarr.transfer(source, repository, path="copied")
    for root in (gzarr.open_group(f"icechunk://{tmp_path}/new"), gzarr.open_group(repository)["copied"]):
        np.testing.assert_array_equal(root["g/x"][...], DATA)
        assert (root.attrs.asdict(), root["g/x"].chunks) == ({"a": 1}, (7, 7))
    assert messages(repository)[0].startswith("Copy")
    gzarr.transfer(gzarr.open_group(repository, tag=None), tmp_path / "out.zarr")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "out.zarr")["deep/a"][...], DATA)
    with pytest.raises(gzarr.errors.CopyError, match="already stored"):
        gzarr.transfer(source, repository, path="copied")
    assert len(messages(repository)) == 3


def _fill(session: Any, row: int) -> Any:
    gzarr.open_group(session)["deep/a"][row : row + 10] = row
    return session


def test_several_writers_by_fork_and_merge(repository: Any) -> None:
    session = repository.writable_session("main")
    fork = session.fork()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(_fill, [fork] * 3, (0, 10, 20)))
    session.merge(*done)
    session.commit("rows")
    found = gzarr.open_group(repository)["deep/a"]
    assert found[::10, 0].tolist()[:3] == [0, 10, 20]
    np.testing.assert_array_equal(found[30:], DATA[30:])


# -- virtual chunks ------------------------------------------------------------------------------------------------


@pytest.fixture
def virtual(tmp_path: Path) -> Any:
    """A repository with references to an HDF5 file, which it is not authorized to read."""
    (tmp_path / "files").mkdir()
    with h5py.File(tmp_path / "files/a.h5", "w") as file:
        file.create_dataset("x", data=DATA, chunks=(10, 20), compression="gzip", shuffle=True)
        file["text"] = ["a", "bc"]
    prefix = f"file://{tmp_path}/files/"
    store = icechunk.local_filesystem_store(str(tmp_path / "files"))
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store=store))
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "virtual")), config)
    session = made.writable_session("main")
    gzarr.save_references(tmp_path / "files/a.h5", session)
    session.commit("references")
    return made


def test_virtual_chunks_are_read_where_they_are_if_that_is_allowed(virtual: Any, tmp_path: Path) -> None:
    assert gzarr.open_group(virtual)["text"][:].tolist() == ["a", "bc"]
    with pytest.raises(StoreError):
        gzarr.open_group(virtual)["x"][...]
    root = gzarr.open_group(virtual, virtual_containers=tmp_path / "files")
    np.testing.assert_array_equal(root["x"][...], DATA)
    access = {f"file://{tmp_path}/files/": icechunk.credentials.LocalFileSystemAccess}
    authorized = virtual.reopen(authorize_virtual_chunk_access=access)
    np.testing.assert_array_equal(gzarr.open_group(authorized)["x"][...], DATA)
    theirs = zarr.open_group(authorized.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(theirs["x"][...], DATA)


def test_a_file_that_has_changed_since_the_commit_is_noticed(virtual: Any, tmp_path: Path) -> None:
    later = time.time() + 10
    os.utime(tmp_path / "files/a.h5", (later, later))
    with pytest.raises(StoreError, match="has changed"):
        gzarr.open_group(virtual, virtual_containers=tmp_path / "files")["x"][...]


def test_references_elsewhere_than_in_a_container_are_refused(virtual: Any, tmp_path: Path) -> None:
    gzarr.group(tmp_path / "b.zarr")["b"] = DATA
    with pytest.raises(StoreError, match="no virtual chunk container for 'file://"):
        gzarr.save_references(tmp_path / "b.zarr", virtual.writable_session("main"))


# -- VirtualiZarr --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # its own
def test_datasets_of_virtualizarr_and_what_it_writes(tmp_path: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    registry = pytest.importorskip("obspec_utils.registry").ObjectStoreRegistry
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=DATA, chunks=(10, 20), compression="gzip", shuffle=True)
    stores = registry({"file://": pytest.importorskip("obstore.store").LocalStore()})
    dataset = virtualizarr.open_virtual_dataset(
        f"file://{tmp_path}/a.h5", parser=virtualizarr.parsers.HDFParser(), registry=stores
    )
    with pytest.raises(StoreError, match="which is not beside it"):
        gzarr.open(dataset)["x"][...]
    np.testing.assert_array_equal(gzarr.open(dataset, virtual_containers=tmp_path)["x"][...], DATA)
    dataset.virtualize.to_kerchunk(str(tmp_path / "refs.json"), format="json")
    assert json.loads((tmp_path / "refs.json").read_text())["version"] == 1
    np.testing.assert_array_equal(gzarr.open(tmp_path / "refs.json")["x"][...], DATA)
    if pytest.importorskip("kerchunk") and pytest.importorskip("fastparquet"):
        dataset.virtualize.to_kerchunk(str(tmp_path / "refs.parquet"), format="parquet")
        np.testing.assert_array_equal(gzarr.open(tmp_path / "refs.parquet")["x"][...], DATA)


def test_repositories_in_buckets_are_read_from_their_objects(s3_options: dict[str, Any]) -> None:
    server = s3_options["client_kwargs"]
    keys = {"access_key_id": s3_options["key"], "secret_access_key": s3_options["secret"]}
    where = {"bucket": "bucket", "prefix": "ice/repo", "endpoint_url": server["endpoint_url"], "region": "us-east-1"}
    storage = icechunk.s3_storage(**where, allow_http=True, force_path_style=True, **keys)
    made = icechunk.Repository.create(storage)
    with gzarr.transaction(made, "first") as root:
        root.create_array("deep/a", data=DATA, chunks=(10, 20), compressors=None)
        root.create_array("sharded", data=DATA, chunks=(5, 5), shards=(20, 25))
    for place in (made, "icechunk://s3://bucket/ice/repo"):
        root = gzarr.open_group(place, mode="r", storage_options=s3_options)
        check_files(root)
    inner = gzarr.open("icechunk://s3://bucket/ice/repo//deep/a", mode="r", storage_options=s3_options)
    np.testing.assert_array_equal(inner[3], DATA[3])
    wrong = gzarr.open_group(made, mode="r", storage_options={**s3_options, "secret": "wrong", "key": "wrong"})
    np.testing.assert_array_equal(wrong["deep/a"][3], DATA[3])  # by Icechunk's own store, if the server looks at keys


def test_a_session_that_is_only_read_is_read_from_its_files_as_it_was(repository: Any) -> None:
    session = repository.writable_session("main")
    gzarr.open_group(session)["deep/a"][:10] = 7
    root = gzarr.open_group(session, mode="r")
    gzarr.open_group(session)["deep/a"][:20] = 8
    gzarr.open_group(session)["small"][:] = 5
    assert isinstance(root.store, RepositoryStore)
    np.testing.assert_array_equal(root["deep/a"][...], np.concatenate([np.full((10, 41), 7), DATA[10:]]))
    assert root["small"][:].tolist() == [1, 2, 3, 4, 0, 0]
    assert any("compiled loop" in step.why for step in root["deep/a"].placement if step.step == "bulk reads")
    assert gzarr.open_group(session)["deep/a"][12, 3] == 8
    clean = gzarr.open_group(repository.readonly_session("main"))
    assert isinstance(clean.store, RepositoryStore)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clean))["deep/a"][...], DATA)
