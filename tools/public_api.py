"""Lists the public names of gzarr with their parameters, read from the sources without importing them.

    python -m tools.public_api > tests/public_api.txt    # after a change of the interface that is meant

The test of that file fails when a public name, parameter or default changes, so that none changes by accident. The
reference of the documentation site has the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
#: Modules with public names; in a package, those that it lists in ``__all__``.
MODULES = (
    "gzarr",
    "gzarr.storage",
    "gzarr.codecs",
    "gzarr.dtype",
    "gzarr.errors",
    "gzarr.images",
    "gzarr.convert",
    "gzarr.interop.dask",
    "gzarr.interop.datasets",
    "gzarr.interop.grain",
    "gzarr.interop.jax",
    "gzarr.interop.opentelemetry",
    "gzarr.interop.ray",
    "gzarr.interop.torch",
    "gzarr.interop.xarray",
    "gzarr.interop.zarr",
    "gzarr.testing",
)
#: Instances, whose class has the documented methods.
INSTANCES = {"gzarr.config": "gzarr.config.Config"}
#: Special methods that are part of the interface.
_CALLED = ("__call__", "__getitem__", "__init__", "__setitem__")


def load() -> griffe.Module:
    """The package, as its sources say it."""
    package = griffe.load("gzarr", search_paths=[ROOT], resolve_aliases=True, resolve_external=False)
    assert isinstance(package, griffe.Module)
    return package


def public(package: griffe.Module) -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    """The dotted names and objects that users may rely on, module by module."""
    for name in MODULES:
        module = package if name == "gzarr" else package[name.removeprefix("gzarr.")]
        exported = {str(e) for e in module.exports} if module.exports is not None else set()
        for member in sorted(exported or _defined(module)):
            if member.startswith("__"):
                continue
            path = f"{name}.{member}"
            found = package[INSTANCES[path].removeprefix("gzarr.")] if path in INSTANCES else module[member]
            yield path, found


def lines(package: griffe.Module) -> Iterator[str]:
    """One line for each public function, class, method, property and constant."""
    named = dict(public(package))
    classes = {item.canonical_path for item in map(_target, named.values()) if isinstance(item, griffe.Class)}
    for path, found in named.items():
        item = _target(found)
        if isinstance(item, griffe.Class):
            yield from _of_class(path, item, classes)
        else:
            yield path + (_signature(item) if isinstance(item, griffe.Function) else "")
    yield from _keywords(package)


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """What a name stands for; None for something of another package."""
    try:
        return found.final_target if isinstance(found, griffe.Alias) else found
    except griffe.AliasResolutionError:
        return None


def _of_class(path: str, item: griffe.Class, classes: set[str]) -> Iterator[str]:
    """A class with its members, but for those that it inherits from another public class."""
    bases = ", ".join(base.name for base in item.mro() if base.canonical_path in classes)
    yield f"{path}  class" + (f" of {bases}" if bases else "")
    for name, member in sorted(item.all_members.items()):
        target = _target(member)
        if target is None or (name.startswith("_") and name not in _CALLED):
            continue
        owner = target.parent
        if owner is None or owner is item or owner.canonical_path not in classes:
            yield f"{path}.{name}" + (_signature(target) if isinstance(target, griffe.Function) else "")


def _keywords(package: griffe.Module) -> Iterator[str]:
    """The keywords that functions take as ``**Unpack[...]``."""
    for name, found in sorted(package["hierarchy.keywords"].members.items()):
        item = _target(found)
        if isinstance(item, griffe.Class):
            fields = [field for field in item.members if not field.startswith("_")]
            yield f"keywords {name}({', '.join(base.name for base in item.mro())}): {', '.join(fields)}"


def _defined(module: griffe.Object | griffe.Alias) -> set[str]:
    """Public names of a module without a list of them: what it defines itself, without modules."""
    own = {name: member for name, member in module.members.items() if not member.is_alias and not member.is_module}
    return {name for name in own if not name.startswith("_")}


def _signature(item: griffe.Function) -> str:
    shown, star = [], False
    for parameter in item.parameters:
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not star:
            shown.append("*")
        star = star or kind in (griffe.ParameterKind.keyword_only, griffe.ParameterKind.var_positional)
        if kind is griffe.ParameterKind.var_positional:
            shown.append(f"*{parameter.name}")
        elif kind is griffe.ParameterKind.var_keyword:
            shown.append(f"**{parameter.annotation}")
        else:
            shown.append(parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}")
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    print("\n".join(lines(load())))
