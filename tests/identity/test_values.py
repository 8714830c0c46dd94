"""Digests are equal for what computes the same, also in another process, and for nothing else."""

import dataclasses
import enum
import functools
import os
import re
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import gzarr
from gzarr.identity.values import Digests, NotComparableError, contents_of


def digest(value):
    return Digests(lambda value: None).of(value, "value")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


VALUES = [
    *(None, True, 1, 1.0, -0.0, 0.0, float("nan"), 1j, "1", b"1", 10**5000, ..., range(3), slice(3)),
    *(
        (),
        (1,),
        [1],
        {1},
        frozenset({1}),
        {1: 2},
        {2: 1},
        {1: 2, 2: 1},
        {2: 1, 1: 2},
        MappingProxyType({1: 2}),
        bytearray(b"1"),
    ),
    *(np.float32(1), np.float64(1), np.dtype("f4"), np.dtype([("a", "f4")]), np.datetime64(1, "D")),
    *(np.arange(3), np.arange(3.0), np.arange(3)[::-1], np.zeros((3, 0)), np.zeros((0, 3)), np.array(3)),
    *(np.array(["a", 1], object), np.array(["a", 2], object), np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2])),
    *(OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), b"2", [[1]], [(1,)], [True], [1.0], ["1"], [-0.0], [0.0]),
    *(Color.RED, Color.BLUE, Point(1), Point(2), Point(1, 1), Slotted(1), Slotted(2), SimpleNamespace(a=1)),
    *(PurePosixPath("a"), PurePosixPath("b"), re.compile("a"), re.compile("a", re.IGNORECASE), re.compile("b")),
    *(np.add, np.multiply, np.dot, len, re, np, str.upper, "a".join, "b".join, np.random.default_rng(0)),
    *(functools.partial(len, 1), functools.partial(len, 2), functools.lru_cache(len), np.vectorize(len)),
    *(lambda x: x, lambda x: -x, lambda x=1: x, lambda x=2: x, lambda *, x=1: x, lambda x: 1, lambda x: 1.0),
]


def test_equal_values_have_equal_digests_and_others_do_not():
    made = [digest(value) for value in VALUES]
    assert made == [digest(value) for value in VALUES]
    assert len(set(made)) == len(made)


def test_what_contains_itself_ends():
    loop = [1]
    loop.append(loop)

    def recursive(n):
        return recursive(n - 1)

    assert digest(loop) == digest(loop)
    assert digest(recursive) == digest(recursive)
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(NotComparableError, match="its value is too large or too deep"):
        digest(deep)


def test_classes_are_compared_by_what_they_say():
    def made(factor, base=object):
        class Made(base):
            @property
            def scale(self):
                return factor

            @staticmethod
            def apply(x):
                return x

            @functools.cached_property
            def kept(self):
                return factor

        return Made

    assert digest(made(1)()) == digest(made(1)())
    assert len({digest(made(1)), digest(made(2)), digest(made(1, dict)), digest(made(1, made(1)))}) == 4


def test_words_about_a_function_are_none_of_it():
    def made(source, module="__main__"):
        names = {"__name__": module}
        exec(source, names)
        return digest(names["f"])

    plain = made("def f(x): return x + 1")
    assert made("# a comment\n\ndef f(x: int) -> int:\n    'A docstring.'\n    return x + 1") == plain
    others = ["def f(x): return x + 2", "def f(x): return 'a' + x", "def f(x):\n    'b'\n    return 'b' + x"]
    assert len({plain, *map(made, others)}) == 4
    generic = """
import logging, typing
T, log = typing.TypeVar("T"), logging.getLogger(__name__)
class C(typing.Generic[T]): pass
def f(x): return log, C
"""
    assert made(generic, "a") == made(generic, "b")


def test_large_values_take_little_time():
    begun = time.process_time()
    for value in (bytes(1 << 26), np.ma.zeros(1 << 22), list(range(1_000_000)), dict.fromkeys(range(300_000), 0.5)):
        assert digest(value) == digest(value)
    with pytest.raises(NotComparableError, match="too large"):
        digest([(n,) for n in range(1_000_000)])
    assert time.process_time() - begun < 20  # it was a minute


def test_what_a_call_keeps_in_a_vectorized_function_is_none_of_it():
    function = np.vectorize(lambda x: x + 1, otypes=["f8"])
    before = digest(function)
    function(np.arange(3))
    assert digest(function) == before != digest(np.vectorize(function.pyfunc))


def test_a_function_that_is_changed_by_its_attributes_or_wrapped_is_another():
    def function(x):
        return x

    before = digest(function)
    function.sigma = 3
    assert digest(function) != before

    def wrapped(scale):
        @functools.wraps(function)
        def outer(x):
            return function(x) * scale

        return outer

    assert len({digest(function), digest(wrapped(1)), digest(wrapped(2))}) == 3
    cached = [functools.lru_cache(wrapped(n)) for n in (1, 1, 2)]
    cached[0](1)
    assert digest(cached[0]) == digest(cached[1]) != digest(cached[2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (threading.Lock(), r"value, of type _thread\.lock"),
        (np.frompyfunc(len, 1, 1), r"value, of type numpy\.ufunc"),
        ((n for n in ()), r"value, of type builtins\.generator"),
        (lambda: LOCK, r"global LOCK \(in <lambda>\), of type _thread\.lock"),
    ],
)
def test_what_cannot_be_compared_is_named(value, message):
    with pytest.raises(NotComparableError, match=message):
        digest(value)


LOCK = threading.Lock()


def test_modules_of_the_user_are_compared_by_what_is_used_of_them(tmp_path, monkeypatch):
    (tmp_path / "of_the_user.py").write_text("SIGMA = 2\ndef f(x):\n    return x * SIGMA\n")
    monkeypatch.syspath_prepend(tmp_path)
    import of_the_user

    code = """
import of_the_user
def uses_value(): return of_the_user.SIGMA
def uses_function(): return of_the_user.f(1)
def imports_it():
    from of_the_user import f
    return f
def hands_it_on(): return of_the_user
"""
    names: dict = {"__name__": "__main__"}
    exec(code, names)
    functions = [value for value in names.values() if callable(value)]
    assert len(functions) == 4
    before = [digest(function) for function in functions]
    of_the_user.other = 3
    assert [digest(function) for function in functions] == before
    of_the_user.SIGMA = 3
    after = [digest(function) for function in functions]
    assert [a == b for a, b in zip(after, before, strict=True)] == [False, False, False, True]
    (tmp_path / "of_the_user.py").write_text("SIGMA = 2\n")
    assert digest(functions[-1]) != before[-1]
    del sys.modules["of_the_user"]


def test_elements_are_compared_by_value_whatever_they_are_a_view_of():
    array = np.random.default_rng(0).random((300, 200, 50))  # more than one piece
    before = contents_of(array)
    assert contents_of(array.copy()) == before
    array[-1, -1, -1] += 1
    assert contents_of(array) != before
    assert digest(array[:2, :3]) == digest(array[:2, :3].copy())
    for view in (array.T, array[::2, ::-1], array[:1, ::2], array.transpose(1, 0, 2)[:200]):
        before = contents_of(view)
        array += 1
        assert contents_of(view) != before


def test_arrays_on_devices_and_tensors_are_compared_by_value():
    emulated = gzarr.array(np.arange(4), device="emulated")[...]
    other = gzarr.array(np.arange(1, 5), device="emulated")[...]
    assert digest(emulated) == digest(emulated.copy()) != digest(other)


def test_digests_are_those_of_another_process():
    """They depend on no address, no random order of sets, and not on what was called before."""
    code = """
import functools, re, numpy as np
from gzarr.identity.values import Digests
NAMES, TABLE = {"a", "b", "c"}, {"x": {"p", "q"}, "y": np.arange(3)}
class Parameters:
    sigma, names = 2, frozenset("abc")
    def method(self):
        return self.sigma
def func(block):
    return block * Parameters().method() if "a" in {"a", "b", "z"} and TABLE["y"][1] else re.sub("a", "b", NAMES)
print(Digests(lambda value: None).of(functools.partial(func, 1), "value").hex())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(gzarr.__file__).parents[1])}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**environment, "PYTHONHASHSEED": str(seed)}
        )
        for seed in (1, 2)
    ]
    first, second = (run.communicate(timeout=300)[0] for run in runs)
    assert first == second
    assert len(first) == 65
