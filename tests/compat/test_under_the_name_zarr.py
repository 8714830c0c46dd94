"""gzarr in the place of zarr: names, versions, and packages that import zarr. Each in a process of its own."""

import sys

import pytest

from tests.support.processes import output_of

ALONE = """
import importlib.metadata
def version(name, real=importlib.metadata.version):
    if name == "zarr":
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
"""
OTHER = """
import importlib, importlib.util
assert importlib.util.find_spec("zarr") and importlib.util.find_spec("zarr.storage")  # is it there?
try:
    importlib.import_module("gzarr.compat.%s")
except ImportError as error:
    assert "stands for zarr" in str(error), error
else:
    raise AssertionError
from gzarr.compat.modules import CompatModule, install
install([CompatModule("zarr.more", {"one": 1}, ())])  # beside them
assert importlib.import_module("zarr.more").one == 1
"""
ZARR2 = """
import gzarr.compat.zarr2
import gzarr, numcodecs, numpy as np, zarr
import zarr.attrs, zarr.core, zarr.hierarchy, zarr.n5, zarr.sync, zarr.types
from zarr.codecs import Blosc
from zarr.convenience import consolidate_metadata
from zarr.creation import open_array
from zarr.errors import PathNotFoundError
from zarr.meta import decode_array_metadata, encode_array_metadata
from zarr.storage import BaseStore, DirectoryStore
from zarr.util import guess_chunks, human_readable_size, normalize_storage_path

assert zarr.__version__ == zarr.version.version and zarr.__version__.startswith("2.18")
assert zarr.core.Array is zarr.Array is gzarr.Array and Blosc is numcodecs.Blosc
store = DirectoryStore("data.zarr")
dtype = [("x", "<i4"), ("y", "<f8", (2,))]
z = open_array(store, path="a", mode="w", shape=(2, 3), chunks=2, dtype=dtype, fill_value=0)
assert isinstance(store, BaseStore) and z.zarr_format == 2
text = open("data.zarr/a/.zarray", "rb").read()
assert decode_array_metadata(text)["dtype"] == z.dtype and decode_array_metadata(text)["shape"] == (2, 3)
assert encode_array_metadata(decode_array_metadata(text)) == text

class Mapping(BaseStore):
    def __init__(self): self.items_ = {}
    def __getitem__(self, key): return self.items_[key]
    def __setitem__(self, key, value): self.items_[key] = value
    def __delitem__(self, key): del self.items_[key]
    def __iter__(self): return iter(self.items_)
    def __len__(self): return len(self.items_)

with Mapping() as mapping:
    zarr.group(mapping).create_dataset("b", data=np.arange(4))
    assert ".zgroup" in mapping and zarr.open(mapping)["b"][3] == 3
with zarr.ZipStore("new.zip") as archive:
    zarr.group(archive).create_dataset("b", data=np.arange(4))
assert zarr.open("new.zip", mode="r")["b"][3] == 3
try:
    zarr.open_array("nothing", mode="r")
except PathNotFoundError:
    pass
assert (human_readable_size(400_000_000), normalize_storage_path(b"/a//b")) == ("381.5M", "a/b")
"""
ZARR3 = """
import gzarr.compat.zarr
import gzarr, zarr
import zarr.abc.codec, zarr.api.asynchronous, zarr.convenience, zarr.core.array, zarr.creation, zarr.dtype, zarr.types
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.errors import PathNotFoundError
from zarr.registry import register_codec
from zarr.storage import LocalStore, MemoryStore

assert zarr.__version__.startswith("3.") and zarr.core.array.Array is zarr.Array is gzarr.Array
z = zarr.create_array(LocalStore("data.zarr"), shape=4, chunks=2, dtype="i4", compressors=[ZstdCodec(level=3)])
z[:] = 7
assert zarr.open("data.zarr")[:].sum() == 28
names = {}
exec("from zarr import *", names)
assert names["open_group"] is gzarr.open_group
"""
WITH = {
    "anndata": """
import anndata, numpy as np, scipy.sparse
data = anndata.AnnData(scipy.sparse.random(50, 20, 0.2, format="csr", dtype="f4", random_state=1))
data.write_zarr("a.zarr")
assert (anndata.read_zarr("a.zarr").X != data.X).nnz == 0
""",
    "icechunk": """
import icechunk, numpy as np, os
repository = icechunk.Repository.create(icechunk.in_memory_storage())
session = repository.writable_session("main")
zarr.group(session.store).create_array("x", data=np.arange(10), chunks=(5,))
session.commit("x")
assert zarr.open_group(repository.readonly_session("main").store, mode="r")["x"][:].sum() == 45
# Workers of Icechunk may let go of Python objects while the interpreter ends, a crash with zarr-python as well.
os._exit(0)
""",
    "virtualizarr": """
import h5py, numpy as np, obstore, os
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser
with h5py.File("v.h5", "w") as file:
    file.create_dataset("v", data=np.arange(12.0).reshape(3, 4), chunks=(1, 4))
registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
data = open_virtual_dataset("file://" + os.path.abspath("v.h5"), registry=registry, parser=HDFParser())
data.virtualize.to_kerchunk("v.json", format="json")
assert gzarr.open_group("v.json", mode="r")["v"][:].sum() == 66
""",
    "xarray": """
import numpy as np, xarray
data = xarray.Dataset({"a": (("y", "x"), np.arange(12.0).reshape(3, 4))}, coords={"x": range(4)})
for version in 2, 3:
    data.to_zarr("x.zarr", mode="w", zarr_format=version)
    assert xarray.open_zarr("x.zarr").identical(data) and xarray.open_dataset("x.zarr").identical(data)
""",
}


def run(code: str, folder: str) -> None:
    output_of([sys.executable, "-W", "ignore", "-c", code], cwd=folder)


CODES = {
    "zarr 2": ZARR2,
    "zarr 2 alone": ALONE + ZARR2 + OTHER % "zarr",
    "zarr 3 alone": ALONE + ZARR3 + OTHER % "zarr2",
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_names_are_gzarrs(code, tmp_path):
    run(code, tmp_path)


@pytest.mark.parametrize("package", WITH)
def test_packages_work(package, tmp_path):
    pytest.importorskip(package)
    run(ZARR3 + WITH[package], tmp_path)
