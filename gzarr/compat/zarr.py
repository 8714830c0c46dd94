"""gzarr in the place of zarr-python 3: import this before anything that imports ``zarr``.

Arrays, groups, functions and errors are then gzarr's. Where zarr-python is installed, stores, codecs, data types,
buffers and base classes stay its own, as other packages derive theirs from them; gzarr takes all of these. Where it is
not, they are gzarr's, as far as it has something of the kind::

    import gzarr.compat.zarr
    import zarr

    z = zarr.create_array("data.zarr", shape=(4, 4), chunks=(2, 2), dtype="i4")  # an array of gzarr
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import isawaitable
from types import ModuleType
from typing import Any

import gzarr
from gzarr.api.asynchronous import create_hierarchy
from gzarr.codecs import CodecSpec
from gzarr.compat.modules import CompatModule, install
from gzarr.metadata.conventions import ATTRIBUTE
from gzarr.metadata.model import ArrayMeta
from gzarr.storage import Store


def _sync(coroutine: Any, *args: Any, **keywords: Any) -> Any:
    """Wait for a coroutine of zarr-python. What methods of gzarr give is there already."""
    return _awaited(coroutine, *args, **keywords) if isawaitable(coroutine) else coroutine


_NODES = {name: getattr(gzarr, name) for name in ("Array", "AsyncArray", "AsyncGroup", "Group")}
#: Stores that are gzarr's also where zarr-python is installed, which gives the others.
_STORES = {name: getattr(gzarr.storage, name) for name in ("GpuMemoryStore", "ManagedMemoryStore", "StorePath")}
#: What each module has by itself, the modules of gzarr that have its other names, and whether names that neither has
#: are zarr-python's.
_MODULES: dict[str, tuple[dict[str, Any], tuple[str, ...], bool]] = {
    **dict.fromkeys(("zarr", "zarr.api.synchronous", "zarr.convenience", "zarr.creation"), ({}, ("gzarr",), False)),
    "zarr.api": ({}, (), False),
    "zarr.api.asynchronous": ({}, ("gzarr.api.asynchronous",), False),
    "zarr.core": ({}, (), True),
    "zarr.core.array": ({**_NODES, "create_array": gzarr.create_array, "from_array": gzarr.from_array}, (), True),
    "zarr.core.config": ({"config": gzarr.config}, (), True),
    "zarr.core.group": ({**_NODES, "create_hierarchy": create_hierarchy}, (), True),
    "zarr.core.sync": ({"sync": _sync}, (), True),
    "zarr.core.sync_group": ({"create_hierarchy": gzarr.create_hierarchy}, (), True),
    "zarr.errors": ({"PathNotFoundError": gzarr.NodeNotFoundError}, ("gzarr.errors",), True),
    "zarr.storage": (_STORES, (), True),
    "zarr.storage._common": ({"StorePath": _STORES["StorePath"]}, (), True),
}


def _register_codec(key: str, codec_cls: type, *, qualname: str | None = None) -> None:
    """Register a codec class by its name, as zarr-python's function of this name does."""
    gzarr.register_codec(codec_cls, name=key)


#: What stands for modules of zarr-python where it is not installed.
_ALONE: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "zarr.abc": ({}, ()),
    "zarr.abc.codec": ({"Codec": CodecSpec}, ()),
    "zarr.abc.store": ({"Store": Store}, ()),
    "zarr.codecs": ({}, ("gzarr.codecs",)),
    "zarr.dtype": ({}, ("gzarr.dtype",)),
    "zarr.registry": ({"register_codec": _register_codec}, ("gzarr.codecs.registry", "gzarr")),
    "zarr.storage": ({}, ("gzarr.storage",)),
    "zarr.types": ({"AnyArray": gzarr.Array, "AnyAsyncArray": gzarr.AsyncArray}, ()),
}


def _zarr_python() -> dict[str, ModuleType]:
    """Import zarr-python 3. Returns: its modules by name; nothing if it is not installed."""
    try:
        if not version("zarr").startswith("3."):
            return {}
    except PackageNotFoundError:
        return {}
    for name in (*_MODULES, *_ALONE):
        with suppress(ModuleNotFoundError):
            import_module(name)
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "zarr"}


def _modules(real: dict[str, ModuleType]) -> Iterator[ModuleType]:
    given = {"__version__": real["zarr"].__version__ if real else "3.4.2"}
    table = {name: (names, homes) for name, (names, homes, _) in _MODULES.items()} | ({} if real else _ALONE)
    for name in sorted({*table, *(n for n in real if n.count(".") == 1)}):
        if name in real and (name not in table or name == "zarr.core"):
            yield real[name]
            continue
        names, homes = table[name]
        if name in real and _MODULES[name][2]:
            names = {**vars(real[name]), **names}
            names |= {n: getattr(import_module(home), n) for home in homes for n in dir(import_module(home))}
        yield CompatModule(name, names | given, homes, real.get(name))


def _show_names_of_attributes() -> None:
    """Let Xarray look for the names of axes in attributes, where v2 has them, as metadata have no names for it then."""
    slot: Any = vars(ArrayMeta)["dimension_names"]

    def names(meta: ArrayMeta) -> Any:
        found = slot.__get__(meta)
        caller = sys._getframe(1).f_globals.get("__name__")  # noqa: SLF001 - as inspect does, but fast
        if found is None and caller == "xarray.backends.zarr" and ATTRIBUTE in meta.attributes:
            raise AttributeError("the names of the axes are in the attributes")
        return found

    setattr(ArrayMeta, "dimension_names", property(names, slot.__set__))  # noqa: B010 - mypy: it is a field


_real = _zarr_python()
_awaited: Any = _real["zarr.core.sync"].sync if "zarr.core.sync" in _real else asyncio.run
install(_modules(_real))
_show_names_of_attributes()
# Packages look there for zarr-python's pipeline, and whether arrays are on the host.
_settings = {"codec_pipeline.path": "gzarr.interop.zarr.CodecPipeline"}
gzarr.config.set({**_settings, "buffer": "zarr.buffer.cpu.Buffer", "ndbuffer": "zarr.buffer.cpu.NDBuffer"})
