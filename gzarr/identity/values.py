"""Digests of values: equal, in any process, for what computes the same.

Theory of operation. Data are digested by value; functions by their code, defaults, closure and the globals that the
code refers to, recursively; what an installed package brings, by name and version; other objects by what pickle would
store of them. A value that contains itself is digested once. What cannot be compared raises `NotComparableError`,
which names it.
"""

import builtins
import copyreg
import dis
import functools
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib import metadata
from logging import Logger
from pathlib import Path
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from gzarr.storage.extras import require
from gzarr.tensors import is_on_device, is_tensor, to_host

#: Deeper or larger values are not followed: a run that is not resumed shall not wait for them.
_DEPTH, _MOST = 100, 200_000
#: Elements are copied in parts of this size where they are not contiguous.
_PART_NBYTES = 1 << 24
_MISSING = object()


class NotComparableError(TypeError):
    """A value cannot be compared with that of another process."""


class Digests:
    """Makes digests, of each object once.

    Parameters
    ----------
    stored : callable
        Given any value, returns what is said of stored arrays instead of their pickles; None for other values.
    """

    def __init__(self, stored: Callable[[Any], object | None]) -> None:
        self._stored = stored
        self._known: dict[int, tuple[object, bytes]] = {}  # with the objects, whose ids would be used again
        self._open: dict[int, int] = {}
        self._n_looked_at = 0

    def of(self, value: Any, name: str) -> bytes:
        """The digest of a value. name: how errors call it. Raises: NotComparableError."""
        self._n_looked_at += 1
        if self._n_looked_at > _MOST or len(self._open) > _DEPTH:
            raise NotComparableError(f"its {name} is too large or too deep to be compared")
        if type(value) in _ATOMS:
            return _joined(type(value).__qualname__, _PARTS[type(value)](self, value, name))
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._open:  # it contains itself
            return _joined("again", [str(self._open[id(value)]).encode()])
        self._open[id(value)] = len(self._open)
        try:
            made = _joined(type(value).__qualname__, self._parts(value, name))
        finally:
            del self._open[id(value)]
        self._known[id(value)] = (value, made)
        return made

    def all(self, values: Iterable[Any], name: str) -> list[bytes]:
        """The digests of some values."""
        return [self.of(value, name) for value in values]

    def _parts(self, value: Any, name: str) -> Iterable[bytes]:
        """What tells a value from others of its type."""
        kind = type(value)
        if kind in _PARTS:
            return _PARTS[kind](self, value, name)
        stored = self._stored(value)
        if stored is not None:
            return [repr(stored).encode()]
        reference = reference_to(value)
        if reference is not None:
            return [reference.encode()]
        if is_on_device(value) or is_tensor(value):
            return _array(self, to_host(value), name)
        if isinstance(value, type):
            return self._class(value, name)
        inner = getattr(value, "__wrapped__", None)
        if callable(inner) and package_of(kind.__module__) is not None:  # compiled or cached by a library
            return self.all([kind, inner], name)
        return self._pickled(value, name)

    def _class(self, value: type, name: str) -> list[bytes]:
        own = [(key, member) for key, member in members(value) if not hasattr(member, "__objclass__")]
        return self.all([value.__qualname__, type(value), value.__bases__, dict(own)], name)

    def _pickled(self, value: Any, name: str) -> list[bytes]:
        try:
            registered = copyreg.dispatch_table.get(type(value))
            reduced = value.__reduce_ex__(4) if registered is None else registered(value)
            if isinstance(reduced, str):  # a name in its module, which is compiled
                return self.all([reduced, sys.modules[value.__module__]], name)
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise NotComparableError(f"its {name}, of type {kind}, cannot be compared") from error
        made, given, state, items, pairs = [*reduced, None, None, None][:5]
        return self.all([made, given, state, list(items or ()), dict(pairs or ())], name)


def labelled(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function refers to beside its code, with a name for each."""
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from ((f"default {name}", v) for name, v in zip(arguments[::-1], defaults[::-1], strict=False))
    yield from ((f"default {name}", v) for name, v in sorted((function.__kwdefaults__ or {}).items()))
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    yield from ((f"closure {name}", _cell(cell)) for name, cell in cells)
    yield from ((f"attribute {name}", v) for name, v in vars(function).items())
    if package_of(function.__module__) is None:
        yield from _globals_of(function)


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Values of the globals that a function's code refers to; of modules of the user's, the attributes."""
    found = function.__globals__
    for used in names_used(function.__code__):
        name, *rest = used.parts
        if used.module is not None:
            value: Any = _module(used.module, found.get("__package__") or "")
            rest, name = [name] if name else [], used.module
        else:
            value = found.get(name, _MISSING)
        if value is _MISSING and (hasattr(builtins, name) or name.startswith("__")):
            continue
        while rest and isinstance(value, ModuleType) and package_of(value.__name__) is None:
            name, value = f"{name}.{rest[0]}", getattr(value, rest.pop(0), _MISSING)
        if value is not _MISSING and not (name.startswith("__") and name.endswith("__")):
            yield f"global {name}", value


def _module(name: str, package: str) -> Any:
    """A module that a function imports; it is imported now, as it will be when the function is called."""
    with suppress(Exception):
        full = importlib.util.resolve_name(name, package)
        __import__(full)
        return sys.modules[full]
    return _MISSING


def contents_of(array: np.ndarray[Any, Any]) -> bytes:
    """A digest of the elements of an array, by about 7 GB a second where they are contiguous."""
    if array.dtype.hasobject:
        return _joined("objects", [repr(array.tolist()).encode("utf-8", "surrogatepass")])
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        return _joined("F", [contents_of(array.T)])
    if not array.flags.c_contiguous and array.nbytes > _PART_NBYTES:
        return _joined("pieces", [contents_of(part) for part in (array if len(array) == 1 else _halves(array))])
    checksum = require("google_crc32c", "", "comparing data with those of another run").value
    digest, data = sha256(), np.ascontiguousarray(array).reshape(-1).view("u1")
    for start in range(0, len(data), _PART_NBYTES):
        digest.update(checksum(data[start : start + _PART_NBYTES]).to_bytes(4, "little"))
    return digest.digest()


def _halves(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    return array[: len(array) // 2], array[len(array) // 2 :]


def _cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned to it yet
        return "nothing"


def _plain(digests: Digests, value: Any, name: str) -> Iterable[bytes]:
    return [repr(value).encode("utf-8", "surrogatepass")]


def _bytes(digests: Digests, value: bytes | bytearray, name: str) -> Iterable[bytes]:
    return [contents_of(np.frombuffer(value, "u1"))]


def _items(digests: Digests, value: Collection[Any], name: str) -> Iterable[bytes]:
    return _plain(digests, list(value), name) if _SHORT.issuperset(map(type, value)) else digests.all(value, name)


def _unordered(digests: Digests, value: Iterable[Any], name: str) -> Iterable[bytes]:
    return sorted(digests.all(value, name))


def _mapping(digests: Digests, value: Mapping[Any, Any], name: str) -> Iterable[bytes]:
    """In order: who goes through a mapping does it in this order."""
    return [_joined("", _items(digests, part, name)) for part in (value.keys(), value.values())]


def _array(digests: Digests, value: np.ndarray[Any, Any], name: str) -> Iterable[bytes]:
    made = repr((value.dtype, value.shape)).encode()
    return [made, *(digests.all(value.flat, name) if value.dtype.hasobject else [contents_of(value)])]


def _code(digests: Digests, code: CodeType, name: str) -> Iterable[bytes]:
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOCSTRING)
    names = (code.co_names, code.co_freevars, code.co_cellvars, arguments)
    used = {step.arg for step in dis.get_instructions(code) if step.opcode in dis.hasconst}  # a docstring is not
    constants = [constant for number, constant in enumerate(code.co_consts) if number in used]
    return digests.all([code.co_code, code.co_exceptiontable, constants, names, counts], name)


def _function(digests: Digests, value: FunctionType, name: str) -> Iterable[bytes]:
    reference = reference_to(value)
    if reference is not None:
        return [reference.encode()]
    parts = [digests.of(value.__code__, name)]
    for label, part in labelled(value):
        parts += [label.encode(), digests.of(part, f"{label} (in {value.__qualname__})")]
    return parts


def _module_parts(digests: Digests, value: ModuleType, name: str) -> Iterable[bytes]:
    package = package_of(value.__name__)
    if package is not None:
        return [package.encode(), value.__name__.encode()]
    try:
        return [Path(value.__file__ or "").read_bytes()]
    except (OSError, AttributeError) as error:
        raise NotComparableError(f"its {name}, the module {value.__name__}, cannot be compared") from error


def _builtin(digests: Digests, value: BuiltinMethodType, name: str) -> Iterable[bytes]:
    reference = reference_to(value)
    return [reference.encode()] if reference is not None else digests.all([value.__name__, value.__self__], name)


def _attributes(*names: str) -> Callable[[Digests, Any, str], Iterable[bytes]]:
    return lambda digests, value, name: digests.all([getattr(value, attribute) for attribute in names], name)


#: A flag of code, since Python 3.13.
_HAS_DOCSTRING = 0x4000000
_SHORT = frozenset({bool, int, float, complex, str, type(None)})
_ATOMS = {bool, int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented)}
_PARTS: Mapping[type, Callable[[Digests, Any, str], Iterable[bytes]]] = {
    **dict.fromkeys(_ATOMS, _plain),
    int: lambda digests, value, name: [hex(value).encode()],
    **dict.fromkeys((bytes, bytearray), _bytes),
    **dict.fromkeys((list, tuple), _items),
    **dict.fromkeys((set, frozenset), _unordered),
    **dict.fromkeys((dict, MappingProxyType), _mapping),
    np.ndarray: _array,
    CodeType: _code,
    Logger: lambda digests, value, name: [],  # nothing is computed of it
    FunctionType: _function,
    ModuleType: _module_parts,
    BuiltinMethodType: _builtin,
    CellType: lambda digests, value, name: [digests.of(_cell(value), name)],
    MethodType: _attributes("__func__", "__self__"),
    np.vectorize: _attributes("pyfunc", "otypes", "signature", "excluded", "cache"),  # not what a call keeps in it
    property: _attributes("fget", "fset", "fdel"),
    functools.cached_property: _attributes("func"),
    **dict.fromkeys((staticmethod, classmethod), _attributes("__func__")),
}


def _joined(kind: str, parts: Iterable[bytes]) -> bytes:
    digest = sha256(kind.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


# -- code --------------------------------------------------------------------------------------------------------------

_SITES = {"site-packages", "dist-packages"}


class Name(NamedTuple):
    """A name that code loads from its globals, or imports.

    Attributes
    ----------
    parts : tuple of str
        The name, and the attributes that are taken of it at once: ``("np", "float32")``.
    module : str or None
        Of an import, the name of the module, with a dot for each level of a relative one.
    """

    parts: tuple[str, ...]
    module: str | None = None


def names_used(code: CodeType) -> list[Name]:
    """Names that code, and the functions and classes within it, load from their globals or import."""
    found: list[Name] = []
    recent: deque[Any] = deque(maxlen=2)  # before an import: its level, and what it takes of the module
    follows = False
    for step in dis.get_instructions(code):
        operation, argument = step.opname, step.argval
        if operation == "EXTENDED_ARG":
            continue
        loads = operation.startswith("LOAD_") and operation.endswith(("_GLOBAL", "_GLOBALS", "_NAME"))
        if follows and operation in ("LOAD_ATTR", "LOAD_METHOD"):
            found[-1] = Name((*found[-1].parts, argument))
        elif loads:
            found.append(Name((argument,)))
            follows = True
        else:
            follows = False
        if operation == "IMPORT_NAME":
            level, taken = recent
            found += [Name((part,), "." * level + argument) for part in taken or ("",)]
        recent.append(argument)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += names_used(constant)
    return found


def package_of(module: str | None) -> str | None:
    """The package and version that a module is installed with, such as ``"scipy 1.16.0"``; None for other modules."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names:
        return "Python {}.{}".format(*sys.version_info)
    found = None if top == "__main__" else sys.modules.get(module or "")  # a notebook's is of a program beside it
    if found is None or not (top == "gzarr" or _is_installed(getattr(found, "__file__", None) or "")):
        return None
    return f"{top} {_version(top)}"


@lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    return not _SITES.isdisjoint(Path(file).parts)


@lru_cache(maxsize=256)
def _version(top: str) -> str:
    given = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(given, str):
        return given
    return " ".join(sorted(metadata.version(name) for name in metadata.packages_distributions().get(top, ())))


def reference_to(value: Any) -> str | None:
    """How a class or function of an installed package is found again, with the version; None for others."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str):
        return None
    for module in (getattr(value, "__module__", None), type(value).__module__, "scipy.special"):
        package = package_of(module) if isinstance(module, str) else None
        if package is not None and _found(module, name) is value:
            return f"{module}.{name} of {package}"
    return None


def _found(module: Any, name: str) -> Any:
    value = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What the body of a class has said, by name; not what Python adds."""
    for name, value in sorted(vars(kind).items()):
        if name not in _ADDED:
            yield name, value


#: What Python and its libraries add to classes, some of it on first use.
_NAMES = """
    __module__ __qualname__ __doc__ __dict__ __weakref__ __annotations__ __annotate__ __annotate_func__
    __annotations_cache__ __firstlineno__ __static_attributes__ __abstractmethods__ _abc_impl __slotnames__
    __match_args__ __parameters__ __dataclass_params__ __dataclass_fields__ __classdictcell__
    __orig_bases__ __type_params__
"""
_ADDED = frozenset(_NAMES.split())
