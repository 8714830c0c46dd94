"""gzarr reads and writes Zarr v2 and v3 arrays, fast on the CPU today.

A CUDA backend that decodes chunks in GPU memory is being tested. ``import gzarr as zarr`` takes the call styles of
zarr 2 and zarr-python 3.
"""

import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gzarr.config import config  # at once: its module has the same name

if TYPE_CHECKING:  # what `__getattr__` finds
    from gzarr import codecs, convert, errors, storage
    from gzarr import dtype as dtype
    from gzarr import images as images
    from gzarr import interop as interop
    from gzarr.advising import Advice, GroupAdvice, advise
    from gzarr.api.checking import compare, repair, verify
    from gzarr.api.consolidated import consolidate_metadata, open_consolidated
    from gzarr.api.create import array, create, create_array, empty, full, ones, zeros
    from gzarr.api.debug import print_debug_info
    from gzarr.api.groups import create_group, create_hierarchy, group, open_group, tree
    from gzarr.api.like import empty_like, from_array, full_like, ones_like, zeros_like
    from gzarr.api.many import read_many, write_many
    from gzarr.api.namespaces import array_namespace, scipy_namespace
    from gzarr.api.open import open, open_array, open_like
    from gzarr.api.publishing import publish as publish
    from gzarr.api.save import load, save, save_array, save_group
    from gzarr.checking.compare import Comparison
    from gzarr.checking.repair import Repair
    from gzarr.checking.report import Verification
    from gzarr.chunk_io.chunk_cache import ChunkCache
    from gzarr.codecs.registry import register_codec
    from gzarr.copying import copy, copy_all, copy_store
    from gzarr.copying.transfer import transfer
    from gzarr.dtypes import register_data_type
    from gzarr.errors import (
        ArrayNotFoundError,
        ChunkError,
        ContainsArrayError,
        ContainsGroupError,
        CopyError,
        DeviceError,
        GroupNotFoundError,
        GzarrError,
        MetadataError,
        NodeNotFoundError,
        OutOfMemoryError,
        PartsMissingError,
        ReadOnlyError,
        SelectionError,
        StoreError,
    )
    from gzarr.hierarchy.array import Array
    from gzarr.hierarchy.asynchronous import AsyncArray, AsyncGroup
    from gzarr.hierarchy.group import Group
    from gzarr.hierarchy.lazy_views import LazyView
    from gzarr.loader.loader import Loader
    from gzarr.loader.mixture import Mixture
    from gzarr.loader.node import NodePool
    from gzarr.loader.ragged import Ragged, SparseRows
    from gzarr.loader.windows import Crops, Window
    from gzarr.loader.writer import Writer
    from gzarr.profiling.report import profile
    from gzarr.storage import (
        DirectoryStore,
        LocalStore,
        LRUStoreCache,
        MemoryStore,
        ProcessSynchronizer,
        ThreadSynchronizer,
        ZipStore,
    )
    from gzarr.virtual.icechunk import transaction as transaction
    from gzarr.virtual.joins import concat as concat
    from gzarr.virtual.joins import stack as stack
    from gzarr.virtual.many_files import open_many as open_many
    from gzarr.virtual.references import save_references as save_references

    ABSStore = storage.ABSStore
    DBMStore = storage.DBMStore
    KVStore = storage.KVStore
    LMDBStore = storage.LMDBStore
    MongoDBStore = storage.MongoDBStore
    N5FSStore = storage.N5FSStore
    N5Store = storage.N5Store
    NestedDirectoryStore = storage.NestedDirectoryStore
    RedisStore = storage.RedisStore
    SQLiteStore = storage.SQLiteStore
    TempStore = storage.TempStore
    _codec: Any = None
    Adler32 = AsType = BZ2 = Base64 = BitRound = Blosc = CRC32 = CRC32C = Categorize = Delta = _codec
    FixedScaleOffset = Fletcher32 = GZip = JSON = JenkinsLookup3 = LZ4 = LZMA = MsgPack = PCodec = _codec
    PackBits = Pickle = Quantize = Shuffle = VLenArray = VLenBytes = VLenUTF8 = ZFPY = Zlib = Zstd = _codec

__version__ = "0.1.0"

_MODULES = frozenset({"api", "codecs", "convert", "dtype", "errors", "images", "interop", "storage"})
# Public names by the module that has them, which is imported when one of them is first asked for: commands, plug-ins
# and entry points import this package long before they need all of it.
_NAMES = {
    "gzarr.advising": "Advice GroupAdvice advise",
    "gzarr.api.checking": "Comparison Repair Verification compare repair verify",
    "gzarr.api.consolidated": "consolidate_metadata open_consolidated",
    "gzarr.api.create": "array create create_array empty full ones zeros",
    "gzarr.api.debug": "print_debug_info",
    "gzarr.api.groups": "create_group create_hierarchy group open_group tree",
    "gzarr.api.like": "empty_like from_array full_like ones_like zeros_like",
    "gzarr.api.many": "read_many write_many",
    "gzarr.api.namespaces": "array_namespace scipy_namespace",
    "gzarr.api.open": "open open_array open_like",
    "gzarr.api.publishing": "publish",
    "gzarr.api.save": "load save save_array save_group",
    "gzarr.chunk_io.chunk_cache": "ChunkCache",
    "gzarr.codecs.registry": "register_codec",
    "gzarr.copying": "copy copy_all copy_store",
    "gzarr.copying.transfer": "transfer",
    "gzarr.dtypes": "register_data_type",
    "gzarr.errors": "ArrayNotFoundError ChunkError ContainsArrayError ContainsGroupError CopyError DeviceError "
    "GroupNotFoundError GzarrError MetadataError NodeNotFoundError OutOfMemoryError "
    "PartsMissingError ReadOnlyError SelectionError StoreError",
    "gzarr.hierarchy.array": "Array",
    "gzarr.hierarchy.asynchronous": "AsyncArray AsyncGroup",
    "gzarr.hierarchy.group": "Group",
    "gzarr.hierarchy.lazy_views": "LazyView",
    "gzarr.loader.loader": "Loader",
    "gzarr.loader.mixture": "Mixture",
    "gzarr.loader.node": "NodePool",
    "gzarr.loader.ragged": "Ragged SparseRows",
    "gzarr.loader.windows": "Crops Window",
    "gzarr.loader.writer": "Writer",
    "gzarr.profiling.report": "profile",
    "gzarr.storage": "ABSStore DBMStore DirectoryStore KVStore LMDBStore LRUStoreCache LocalStore MemoryStore "
    "MongoDBStore N5FSStore N5Store NestedDirectoryStore ProcessSynchronizer RedisStore SQLiteStore TempStore "
    "ThreadSynchronizer ZipStore",
    "gzarr.virtual.icechunk": "transaction",
    "gzarr.virtual.joins": "concat stack",
    "gzarr.virtual.many_files": "open_many",
    "gzarr.virtual.references": "save_references",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
# Codecs that numcodecs has beside optional packages.
_EXTRAS = {"MsgPack": "msgpack", "PCodec": "pcodec", "ZFPY": "zfp"}


# The loop calls POSIX, so there is none for Windows. The setting comes last: settings are read from the environment
# when one is first asked for, and a plug-in of pytest imports gzarr before tests can choose them.
if sys.platform != "win32" and find_spec("gzarr.cpu._loop") is None and config["cpu.native"]:
    warnings.warn(
        "gzarr was installed without its compiled loop: results are the same, but many small chunks take up to ten "
        "times as long. Install a C compiler, then gzarr again; GZARR_CPU__NATIVE=0 hides this warning",
        RuntimeWarning,
        stacklevel=2,
    )

if not TYPE_CHECKING:  # a type checker would take every name to exist

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"gzarr.{name}")
        if name in _HOMES:
            found = globals()[name] = getattr(import_module(_HOMES[name]), name)
            return found
        if name[:1].isupper() and name in (codecs := _codecs()):
            return codecs[name]
        if name in _EXTRAS:
            raise import_module("gzarr.errors").MissingExtraError(
                f"gzarr.{name} needs a package that is not installed: pip install 'gzarr[{_EXTRAS[name]}]'"
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES, *_codecs()})


def _codecs() -> dict[str, Any]:
    """Compressors and filters of numcodecs, which zarr 2 has at the top level, too."""
    base = import_module("numcodecs.abc").Codec
    found = vars(import_module("numcodecs"))
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, base)}


__all__ = [
    "Advice",
    "Array",
    "ArrayNotFoundError",
    "AsyncArray",
    "AsyncGroup",
    "ChunkCache",
    "ChunkError",
    "Comparison",
    "ContainsArrayError",
    "ContainsGroupError",
    "CopyError",
    "Crops",
    "DeviceError",
    "DirectoryStore",
    "Group",
    "GroupAdvice",
    "GroupNotFoundError",
    "GzarrError",
    "LRUStoreCache",
    "LazyView",
    "Loader",
    "LocalStore",
    "MemoryStore",
    "MetadataError",
    "Mixture",
    "NodeNotFoundError",
    "NodePool",
    "OutOfMemoryError",
    "PartsMissingError",
    "ProcessSynchronizer",
    "Ragged",
    "ReadOnlyError",
    "Repair",
    "SelectionError",
    "SparseRows",
    "StoreError",
    "ThreadSynchronizer",
    "Verification",
    "Window",
    "Writer",
    "ZipStore",
    "__version__",
    "advise",
    "array",
    "array_namespace",
    "codecs",
    "compare",
    "config",
    "consolidate_metadata",
    "convert",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "errors",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "print_debug_info",
    "profile",
    "read_many",
    "register_codec",
    "register_data_type",
    "repair",
    "save",
    "save_array",
    "save_group",
    "scipy_namespace",
    "storage",
    "transfer",
    "tree",
    "verify",
    "write_many",
    "zeros",
    "zeros_like",
]
