"""What a run is, as JSON that is stored until it is finished, and how another run differs from it.

Theory of operation. A run is its functions, inputs and arguments, by name. A token that the user gives stands for the
functions, and for inputs that cannot be compared. Texts that functions hold are told by their digests alone: they may
be secrets.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import FunctionType, MethodType, ModuleType
from typing import Any, Self, TypeAlias

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.identity.inputs import Input, describe_input
from gzarr.identity.values import Digests, NotComparableError, labelled, package_of, reference_to

#: Whether to resume; or a text that stands for what cannot be compared with that of another run.
Resume: TypeAlias = bool | str

#: Values of a function that are told one by one, and the length of a value that is told as it is.
_MOST_VALUES, _MOST_LETTERS = 32, 200
#: Differences that are told.
_MOST_TOLD = 5
_NUMBERS = (bool, int, float, complex, type(None))


@dataclass(frozen=True, slots=True)
class Run:
    """What a run is.

    Attributes
    ----------
    token : str or None
        Stands for its functions.
    functions, arguments : mapping
        JSON values by name.
    inputs : mapping
        The inputs by name.
    """

    token: str | None = None
    functions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    def joined(self, other: "Run") -> Self:
        """The run with the functions, inputs and arguments of another one, too."""
        parts = ({**getattr(self, n), **getattr(other, n)} for n in ("functions", "inputs", "arguments"))
        return type(self)(self.token, *parts)

    def to_json(self) -> dict[str, Any]:
        """What is stored."""
        inputs = {name: each.said for name, each in self.inputs.items()}
        parts = {"functions": self.functions, "inputs": inputs, "arguments": self.arguments}
        return {"token": self.token, **{name: dict(part) for name, part in parts.items()}}

    def differences(self, was: Any, failed: Sequence[str] = ()) -> list[str]:
        """How this run differs from one that was stored, in words.

        failed: keys of objects that could not be read then, and may have been repaired.
        """
        try:
            found = list(self._differences(was, failed))
            return found[:_MOST_TOLD] + [f"and {len(found) - _MOST_TOLD} more"] * (len(found) > _MOST_TOLD)
        except (TypeError, LookupError, AttributeError):
            return ["what it had read and computed was not noted by the version of gzarr that began it"]

    def _differences(self, was: Any, failed: Sequence[str]) -> Iterator[str]:
        now = self.to_json()
        if was["token"] != self.token:
            yield f"the token was {was['token']!r}, is {self.token!r}"
        elif self.token is None:
            for name, one, two in _pairs(was["functions"], now["functions"]):
                yield from _of_functions(name, one, two)
        for name, one, two in _pairs(was["inputs"], now["inputs"]):
            yield from self._of_input(name, one, two, failed)
        changed = list(_pairs(was["arguments"], now["arguments"], missing="nothing"))
        clear = [each for each in changed if not each[0].startswith("metadata")]
        yield from (f"{name} was {one}, is {two}" for name, one, two in clear or changed)

    def _of_input(self, name: str, was: Any, now: Any, failed: Sequence[str]) -> Iterator[str]:
        """What tells two inputs apart that differ, the clearest difference alone."""
        unknown = was.get("unknown", now.get("unknown"))
        if unknown is not None and self.token is None:
            yield f"the input {name}, of type {unknown}, cannot be compared"
            return
        where, here = (each.get("place", each.get("unknown", "nothing")) for each in (was, now))
        changed = {key for key, _, _ in _pairs(was, now, missing=None)}
        for key in ("shape", "dtype", "chunks"):
            if key in changed and where == here:
                yield f"{key} of the input {name} ({where}) was {was.get(key)}, is {now.get(key)}"
                return
        if {"place", "part", "unknown"} & changed:
            same = " (the data look the same: link or mount them where they were)" if changed == {"place"} else ""
            yield f"the input {name} was {where}, is {here}{same}"
        elif {"metadata", "contents"} & changed:
            what = "metadata" if "metadata" in changed else "elements"
            yield f"the {what} of the input {name} ({where}) have changed"
        elif "stored" in changed:
            keys = [key for key in self.inputs[name].changed(was["stored"]) if key not in failed]
            if keys:
                yield (
                    f"the input {name} ({where}) was changed or written again: {len(keys)} of the "
                    f"{len(self.inputs[name].keys)} objects that were looked at, such as {keys[0]!r}"
                )


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any], missing: Any = {}) -> Iterator[tuple[str, Any, Any]]:  # noqa: B006
    """What differs, by name."""
    for name in {**was, **now}:
        before, after = was.get(name, missing), now.get(name, missing)
        if before != after or (isinstance(before, Mapping) and "unknown" in before):
            yield name, before, after


def _of_functions(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What tells two functions apart that differ: what they are called, the version of Python, the code, or values."""
    if "unknown" in was or "unknown" in now:
        yield f"{name} cannot be compared: {was.get('unknown', now.get('unknown'))}"
        return
    if was.get("name") != now.get("name"):
        yield f"{name} was {was.get('name')!r}, is {now.get('name')!r}"
        return
    name = f"{name} {now['name']!r}"
    for key in ("python", "code"):
        if was.get(key) != now.get(key):
            yield f"the {key} of {name} was {was.get(key)}, is {now.get(key)}"
            return
    for label, before, after in _pairs(was.get("values", {}), now.get("values", {}), missing="nothing"):
        yield f"{label} of {name} was {before}, is {after}"


def identify(
    what: str,
    resume: Resume = False,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    **how: Any,
) -> Run:
    """Say what a run is.

    Parameters
    ----------
    what : str
        Name of the function that is called, for messages.
    resume : bool or str
        As the caller gave it.
    functions, inputs, arguments : mapping, optional
        What the result depends on, by name. Inputs are arrays, or `Input`.
    **how
        Keywords of `describe_input`.

    Raises
    ------
    ValueError
        If the run is to be resumed, and a function or an input cannot be compared with those of another run.
    """
    if not isinstance(resume, (bool, str)) or resume == "":
        raise ValueError(f"{what}: resume must be True, False or a text that is not empty, got {resume!r}")
    token = resume if isinstance(resume, str) else None
    found = {name: v if isinstance(v, Input) else describe_input(v, **how) for name, v in (inputs or {}).items()}
    told = {} if token is not None else {name: describe_function(each) for name, each in (functions or {}).items()}
    unknown = [f"{name} {each['name']!r}: {each['unknown']}" for name, each in told.items() if "unknown" in each]
    said = {name: each.said for name, each in found.items()}
    unknown += [f"the input {name}, of type {each['unknown']}" for name, each in said.items() if "unknown" in each]
    if resume is True and unknown:
        raise ValueError(
            f"{what}: resume=True cannot compare {unknown[0]}. Pass resume='a text' instead, in the first run too, and "
            "another text whenever that changes"
        )
    return Run(token, told, found, {name: _plain(value) for name, value in (arguments or {}).items()})


def describe_function(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function is: its name, a digest of its code, and its values, of which numbers are told."""
    digests = Digests(lambda value: describe_input(value).said if isinstance(value, (Array, np.memmap)) else None)
    inner, values = _taken_apart(function)
    told: dict[str, Any] = {"name": type(inner).__qualname__}
    try:
        told["name"] = getattr(inner, "__qualname__", told["name"])
        reference = reference_to(inner)
        if isinstance(inner, FunctionType) and reference is None:
            told["python"] = package_of("sys")
            told["code"] = _short(digests.of(inner.__code__, "code"))
            values += labelled(inner)
        else:
            told["code"] = reference or _short(digests.of(type(inner), "class"))
            told_alone = reference or isinstance(inner, (type, np.vectorize))
            attributes = {} if told_alone else getattr(inner, "__dict__", {})
            values += [(f"attribute {name}", value) for name, value in attributes.items()]
            values += [] if reference else [("state", inner)]
        texts = {label: _text(value, digests.of(value, label)) for label, value in values}
    except NotComparableError as error:
        return {"name": told["name"], "unknown": str(error)}
    except Exception as error:  # noqa: BLE001 - of objects of any kind; a run that is not resumed shall not fail of it
        return {"name": told["name"], "unknown": f"{type(error).__name__}: {error}"}
    shown = dict(list(texts.items())[:_MOST_VALUES])
    if len(shown) < len(texts):
        shown["others"] = _short(sha256(repr(texts).encode()).digest())
    return {**told, "values": shown}


def _taken_apart(function: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The innermost function of partial functions and methods, and what is bound to it."""
    values: list[tuple[str, Any]] = []
    while isinstance(function, (functools.partial, MethodType)):
        depth = len(values)
        if isinstance(function, MethodType):
            values.append((f"self {depth}", function.__self__))
            function = function.__func__
        else:
            values += [(f"argument {depth + number}", value) for number, value in enumerate(function.args)]
            values += [(f"keyword {name}", value) for name, value in function.keywords.items()]
            function = function.func
    return function, values


def _text(value: Any, digest: bytes) -> str:
    """A value of a function: numbers as they are, a digest of others."""
    plain = _plain(value) if _is_numeric(value) else ""
    if plain:
        return plain
    if isinstance(value, ModuleType) and package_of(value.__name__):
        return f"{value.__name__} of {package_of(value.__name__)}"
    kind = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__qualname__
    return f"{kind} {getattr(value, '__qualname__', '')} {_short(digest)}".replace("  ", " ")


def _is_numeric(value: Any) -> bool:
    if type(value) in (tuple, list):
        return len(value) <= _MOST_VALUES and all(map(_is_numeric, value))
    return type(value) in _NUMBERS or isinstance(value, (np.number, np.bool_))


def _plain(value: Any) -> str:
    """A short text of an argument, equal for equal ones."""
    text = repr(_builtin(value))
    return text if len(text) <= _MOST_LETTERS else f"{text[:20]}... {_short(sha256(text.encode()).digest())}"


def _builtin(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, Mapping):
        return {key: _builtin(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):  # as an index, one is not the other
        return (tuple if isinstance(value, tuple) else list)(map(_builtin, value))
    return value


def _short(digest: bytes) -> str:
    return digest.hex()[:16]
