"""What a run is, and how another one differs."""

import functools
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.identity.inputs import describe_input
from gzarr.identity.runs import Run, describe_function, identify


def stored(run: Run) -> dict:
    return json.loads(json.dumps(run.to_json()))


def test_a_run_is_itself_after_json_also_with_nan() -> None:
    arguments = {"cval": float("nan"), "depth": ((1, 1), np.int64(2)), "weights": np.arange(500), "name": "x"}
    run = identify("f", functions={"func": len}, inputs={"data": np.arange(3)}, arguments=arguments)
    assert run.differences(stored(run)) == []
    assert len(json.dumps(stored(run))) < 800


@pytest.mark.parametrize("was", [None, {}, [], {"token": None}, {"token": None, "functions": {"func": 3}}])
def test_what_is_no_description_is_told(was: object) -> None:
    (told,) = identify("f", functions={"func": len}).differences(was)
    assert "was not noted" in told


def test_few_of_many_differences_are_told() -> None:
    many, others = ({f"a{n}": n + more for n in range(20)} for more in (0, 1))
    told = identify("f", arguments=others).differences(stored(identify("f", arguments=many)))
    assert (told[0], told[-1]) == ("a0 was 0, is 1", "and 15 more")


def test_numbers_are_shown_and_texts_are_not() -> None:
    weights, password, table = np.zeros((2, 2)), "secret", {"a": 1}

    def function(x: object, sigma: float = 2.5) -> object:
        return x, sigma, weights, password, table, np

    values = describe_function(functools.partial(function, 3, sigma=(1, 2)))["values"]
    assert (values["argument 0"], values["keyword sigma"]) == ("3", "(1, 2)")
    assert values["default sigma"] == "2.5"
    assert values["global np"] == f"numpy of numpy {np.__version__}"
    assert values["closure weights"].startswith("float64 (2, 2) ")
    assert "secret" not in str(values)
    many = functools.partial(function, *range(100))
    assert len(describe_function(many)["values"]) == 33
    assert describe_function(many) != describe_function(functools.partial(function, *range(99), 1))


class Strange:
    """Like a proxy without its object."""

    def __call__(self, block: object) -> object:
        return block

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name}")


def test_a_function_of_any_kind_can_run() -> None:
    def function(block: object, value: object = None) -> object:
        return block, value

    with_numbers = functools.partial(function)
    with_numbers.__dict__[5] = 6  # type: ignore[index]
    for each in (
        Strange(),
        functools.partial(function, Strange()),
        functools.partial(function, 10**5000),
        with_numbers,
    ):
        assert describe_function(each)["name"] in ("Strange", "test_a_function_of_any_kind_can_run.<locals>.function")
        identify("f", functions={"func": each})
    with pytest.raises(ValueError, match="cannot compare func 'Strange': RuntimeError: no __qualname__"):
        identify("f", True, functions={"func": Strange()})
    first, second = (describe_function(functools.partial(function, value)) for value in ((0, 1), [0, 1]))
    assert first != second  # as an index, they are not the same


def test_a_mapped_file_that_a_function_holds_is_not_read(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with (tmp_path / mode).open("wb") as file:
            file.truncate(1 << 40)
        table = np.memmap(tmp_path / mode, "u1", mode)
        before = describe_function(lambda block, table=table: table[block])
        assert describe_function(lambda block, table=table: table[block]) == before
        assert describe_function(lambda block, table=table[1:]: table[block]) != before
        assert "stored" in describe_input(table).said
    table[5] = 1
    assert describe_function(lambda block, table=table: table[block]) != before


def test_a_stored_array_that_a_function_holds_is_an_input() -> None:
    table = gzarr.array(np.arange(4))

    def function(block: object) -> object:
        return table[block]

    before = describe_function(function)
    assert describe_function(function) == before
    table[0] = 9
    assert describe_function(function) != before


def test_what_was_not_comparable_then_is_not_now() -> None:
    lock = threading.Lock()
    unknown = identify("f", functions={"func": lambda: lock}, inputs={"data": iter([])})
    told = unknown.differences(stored(unknown))
    assert told == [
        "func cannot be compared: its closure lock, of type _thread.lock, cannot be compared",
        "the input data, of type builtins.list_iterator, cannot be compared",
    ]
    for name, wrong in (("functions", lambda: lock), ("inputs", iter([]))):
        with pytest.raises(ValueError, match=r"f: resume=True cannot compare .*resume='a text'"):
            identify("f", True, **{name: {"it": wrong}})
    named = identify("f", "v1", functions={"func": lambda: lock}, inputs={"data": iter([])})
    assert named.differences(stored(named)) == []
