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
    "gzarr.interop.jax",
    "gzarr.interop.torch",
    "gzarr.interop.xarray",
    "gzarr.interop.zarr",
    "gzarr.testing",
)
#: Instances, whose class has the documented methods.
INSTANCES = {"gzarr.config": "gzarr.config.Config"}


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
    for path, found in public(package):
        try:
            item = found.final_target if isinstance(found, griffe.Alias) else found
        except griffe.AliasResolutionError:  # of another package
            yield path
            continue
        if isinstance(item, griffe.Module):
            yield f"{path}  module"
        elif isinstance(item, griffe.Class):
            yield from _of_class(path, item)
        else:
            yield f"{path}{_signature(item, package)}"


def _of_class(path: str, item: griffe.Class) -> Iterator[str]:
    yield f"{path}  class"
    for name, member in sorted(item.all_members.items()):
        if name.startswith("_") and name not in ("__init__", "__getitem__", "__setitem__"):
            continue
        try:
            target = member.final_target if isinstance(member, griffe.Alias) else member
        except griffe.AliasResolutionError:
            continue
        yield f"{path}.{name}{_signature(target, None)}"


def _defined(module: griffe.Object | griffe.Alias) -> set[str]:
    """Public names of a module without a list of them: what it defines itself."""
    return {name for name, member in module.members.items() if not name.startswith("_") and not member.is_alias}


def _signature(item: griffe.Object, package: griffe.Module | None) -> str:
    if not isinstance(item, griffe.Function):
        return ""
    shown, star = [], False
    for parameter in item.parameters:
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not star:
            shown.append("*")
            star = True
        if kind is griffe.ParameterKind.var_positional:
            shown.append(f"*{parameter.name}")
            star = True
        elif kind is griffe.ParameterKind.var_keyword:
            shown.append(f"**{parameter.annotation or parameter.name}".replace("Any", parameter.name))
        else:
            shown.append(parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}")
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    print("\n".join(lines(load())))
