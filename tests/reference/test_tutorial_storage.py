"""The tutorial's sections on stores, the cloud and consolidated metadata: its calls, on the servers of these tests.

What it shows on Amazon's S3 runs on an S3 server of the loopback interface, whose bucket has another name than its
``zarr-demo``; its Azure emulator is Azurite.
"""

import dbm.dumb
import uuid
from contextlib import closing

import numpy as np
import pytest

import gzarr as zarr

pytestmark = pytest.mark.usefixtures("zarr_format")


def tutorial_array(store):
    """What the tutorial writes to every store."""
    root = zarr.group(store=store, overwrite=True)
    z = root.zeros("foo/bar", shape=(100, 100), chunks=(10, 10), dtype="i4")
    z[:] = 42
    assert np.all(zarr.group(store=store)["foo/bar"][:] == 42)
    assert z.nchunks_initialized == 100
    assert str(root.tree()) == "/\n└── foo\n    └── bar (100, 100) int32"


# -- databases ---------------------------------------------------------------------------------------------------


def test_dbm_store():
    store = zarr.DBMStore("example.bdb", open=dbm.dumb.open)
    tutorial_array(store)
    store.close()
    with closing(zarr.DBMStore("example.bdb", open=dbm.dumb.open, flag="r")) as store:
        assert zarr.open_group(store, mode="r")["foo/bar"][99, 99] == 42


def test_lmdb_store():
    pytest.importorskip("lmdb")
    store = zarr.LMDBStore("example.lmdb")
    tutorial_array(store)
    store.close()
    with closing(zarr.LMDBStore("example.lmdb", readonly=True)) as store:
        assert zarr.open_group(store, mode="r")["foo/bar"][99, 99] == 42


def test_sqlite_store():
    store = zarr.SQLiteStore("example.sqldb")
    tutorial_array(store)
    store.close()
    with closing(zarr.SQLiteStore("example.sqldb")) as store:
        assert zarr.open_group(store, mode="r")["foo/bar"][99, 99] == 42


def test_redis_store(redis_port):
    with closing(zarr.storage.RedisStore(prefix=uuid.uuid4().hex, port=redis_port)) as store:
        tutorial_array(store)


def test_mongodb_store(mongo_port):
    name = uuid.uuid4().hex
    with closing(zarr.storage.MongoDBStore("reference", name, host="127.0.0.1", port=mongo_port)) as store:
        tutorial_array(store)


# -- N5, which has a format of its own ----------------------------------------------------------------------------


def test_n5_store():
    tutorial_array(zarr.N5Store("data/example.n5"))
    assert zarr.open("data/example.n5", mode="r")["foo/bar"][0, 0] == 42
    root = zarr.open("data/example.n5", mode="w")
    assert isinstance(root.store, zarr.N5Store)
    assert list(root) == []
    tutorial_array(zarr.N5FSStore("data/other.n5"))


# -- the cloud ---------------------------------------------------------------------------------------------------


def check_hello(root):
    z = root["foo/bar/baz"]
    assert z.name == "/foo/bar/baz"
    assert z.dtype == "S1"
    assert "Chunks initialized : 3/3" in repr(z.info)
    assert z[:].tobytes() == b"Hello from the cloud!"


def write_hello(store, **options):
    made = zarr.open_group(store, mode="w", **options).create_dataset("foo/bar/baz", shape=21, chunks=7, dtype="S1")
    made[:] = np.frombuffer(b"Hello from the cloud!", dtype="S1")


@pytest.fixture
def hello(s3_options, zarr_format):
    """Path of a store in the bucket that holds what ``zarr-demo/store`` does."""
    path = f"bucket/{uuid.uuid4().hex}/store"
    write_hello(f"s3://{path}", storage_options=s3_options)
    return path


@pytest.fixture
def s3(s3_options):
    s3fs = pytest.importorskip("s3fs")
    return s3fs.S3FileSystem(**s3_options)


def test_s3_map(hello, s3):
    import s3fs

    check_hello(zarr.group(store=s3fs.S3Map(root=hello, s3=s3, check=False)))
    check_hello(zarr.group(store=s3fs.S3Map(root=f"s3://{hello}", s3=s3)))


def test_s3_url(hello, s3_options):
    check_hello(zarr.open_group(f"s3://{hello}", storage_options=s3_options))


def test_chained_s3_url(hello, s3, s3_options):
    g = zarr.open_group(f"simplecache::s3://{hello}", mode="r", storage_options={"s3": s3_options})
    check_hello(g)
    check_hello(g)  # "uses cached file"


def test_fs_store(hello, s3):
    store = zarr.storage.FSStore(f"/{hello}", fs=s3)
    check_hello(zarr.open_group(store))


def test_abs_store(azure_endpoint):
    from azure.storage.blob import ContainerClient

    from tests.support.servers import AZURE_KEY

    container_client = ContainerClient(azure_endpoint, "container", credential=AZURE_KEY)
    tutorial_array(zarr.ABSStore(client=container_client, prefix=f"zarr-testing-{uuid.uuid4().hex}"))


# -- consolidated metadata ---------------------------------------------------------------------------------------


def test_consolidated_metadata(hello, s3_options):
    url = f"s3://{hello}"
    zarr.consolidate_metadata(url, storage_options=s3_options)
    root = zarr.open_consolidated(url, storage_options=s3_options)
    check_hello(root)
    for change in (
        lambda: root.create_group("new"),
        lambda: root.create_dataset("new", shape=3),
        lambda: root["foo/bar/baz"].resize(5),
    ):
        with pytest.raises(zarr.ReadOnlyError):
            change()
    root["foo/bar/baz"][:1] = b"J"
    assert zarr.open_group(url, storage_options=s3_options)["foo/bar/baz"][:].tobytes() == b"Jello from the cloud!"
