"""What Python code refers to outside itself, and which package a module is installed with."""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

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
