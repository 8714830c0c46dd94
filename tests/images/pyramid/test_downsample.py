"""Downsampling, against an oracle that looks at one window at a time with Python's exact numbers."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gzarr
from gzarr.backend import Backend
from gzarr.config import config
from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.hierarchy.missing import Missing
from gzarr.images.pyramid.downsample import GAUSSIAN, METHODS, check_method, downsample
from tests.support.values import host

INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">u2", ">i8")
FLOATS = ("f2", "f4", "f8", ">f4")
ORDERED = ("?", *INTEGERS, *FLOATS)

#: Shapes with factors: one pixel to a window and many, ends that are ragged, and rows of all lengths.
CASES = (
    ((7,), (2,)),
    ((200,), (5,)),
    ((33, 70), (2, 2)),
    ((4, 64), (2, 2)),
    ((5, 6, 41), (2, 2, 2)),
    ((3, 8, 32), (1, 2, 2)),
    ((6, 9, 3), (2, 2, 1)),
    ((9, 40), (4, 1)),
    ((7, 5, 3, 4), (3, 5, 2, 4)),
    ((2, 3), (5, 4)),
    ((0, 4), (2, 2)),
)

Oracle = Callable[[list[Any], np.dtype[Any]], Any]


def mean(window: list[Any], dtype: np.dtype[Any]) -> Any:
    """Exact for integers, rounded half to even as Python's `round` does; in the order of the window for floats."""
    if dtype.kind in "biu":
        return round(Fraction(sum(map(int, window)), len(window)))
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return complex(mean([x.real for x in window], part), mean([x.imag for x in window], part))
    wide = np.float64 if dtype.itemsize == 8 else np.float32
    total = wide(0)
    for x in window:
        total += wide(x)
    return total / wide(len(window))


def _no_nans(window: list[Any]) -> list[Any]:
    return sorted([x for x in window if x == x]) or window


def mode(window: list[Any], dtype: np.dtype[Any]) -> Any:
    counts = Counter(_no_nans(window))
    most = max(counts.values())
    return next(x for x, n in counts.items() if n == most)  # the smallest comes first


def median(window: list[Any], dtype: np.dtype[Any]) -> Any:
    numbers = _no_nans(window)
    low, high = numbers[(len(numbers) - 1) // 2], numbers[len(numbers) // 2]
    if dtype.kind != "f" or low != high:
        return mean([low, high], dtype)
    return low


ORACLES: dict[str, Oracle] = {
    "mean": mean,
    "mode": mode,
    "min": lambda window, _: _no_nans(window)[0],
    "max": lambda window, _: _no_nans(window)[-1],
    "median": median,
    "nearest": lambda window, _: window[0],
}


def expected(
    block: NDArray[Any], factors: Sequence[int], method: str, gaps: Any = None, value: Any = 0
) -> NDArray[Any]:
    """What a method makes of the elements that are there, where there are gaps; the value where there is none."""
    gaps = np.zeros(block.shape, bool) if gaps is None else gaps
    out = np.empty([-(-n // f) for n, f in zip(block.shape, factors, strict=True)], block.dtype)
    with np.errstate(all="ignore"):
        for at in np.ndindex(out.shape):
            window = tuple(slice(i * f, (i + 1) * f) for i, f in zip(at, factors, strict=True))
            there = list(block[window][~gaps[window]])
            out[at] = ORACLES[method](there, block.dtype) if there else value
    return out


def made(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[Any]:
    """Elements with many ties, also between means. seed: odd for extreme values too."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    few = rng.integers(0, 2 if kind.kind == "b" else 4, shape)
    if kind.kind == "c":
        return (few + 1j * rng.standard_normal(shape)).astype(kind)
    if kind.kind == "f":
        values = np.where(rng.random(shape) < 0.5, few, rng.standard_normal(shape) * 100).astype(kind)
        values[rng.random(shape) < 0.2] = np.nan if seed % 2 else 0
        return values
    if kind.kind == "b" or seed % 2 == 0:
        return few.astype(kind)
    info = np.iinfo(kind)
    extremes = np.array([info.min, info.max, info.max - 1, info.max - 2], kind)
    return extremes[np.where(rng.random(shape) < 0.5, few, few % 2)]


@pytest.fixture(params=["loop", "numpy", "emulated"])
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "emulated":
        yield GpuBackend(EmulatedDevice())
        return
    with config.set(cpu__native=request.param == "loop"):
        yield CpuBackend()


@cache
def made_and_expected(dtype: str, method: str) -> list[tuple[NDArray[Any], tuple[int, ...], NDArray[Any]]]:
    blocks = [(made(shape, dtype, seed), factors) for seed, (shape, factors) in enumerate(CASES)]
    return [(block, factors, expected(block, factors, method)) for block, factors in blocks]


def check(
    backend: Backend, block: NDArray[Any], factors: Sequence[int], method: str, wanted: NDArray[Any] | None = None
) -> None:
    got = downsample(backend, block, factors, method)
    wanted = expected(block, factors, method) if wanted is None else wanted
    assert got.dtype.newbyteorder("=") == block.dtype.newbyteorder("=")
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("method", ORACLES)
def test_every_method_of_every_dtype(backend: Backend, method: str, dtype: str) -> None:
    for block, factors, wanted in made_and_expected(dtype, method):
        check(backend, block, factors, method, wanted)


@pytest.fixture
def strict(backend: Backend) -> Backend:
    """The backend; on the emulated device the one that refuses what CuPy refuses."""
    return backend if backend is backend.host else gzarr.zeros(1, device="emulated").backend


@pytest.mark.parametrize("dtype", ["?", ">u2", "i4", "u8", "f2", ">f8", "c8"])
@pytest.mark.parametrize("method", ORACLES)
def test_elements_that_are_missing_are_left_out(strict: Backend, method: str, dtype: str) -> None:
    if dtype == "c8" and method not in ("mean", "nearest"):
        return
    rng = np.random.default_rng(0)
    cases = (((7,), (2,)), ((9, 22), (2, 3)), ((5, 6, 7), (2, 1, 2)), ((0, 4), (2, 2)))
    for seed, (shape, factors) in enumerate(cases):
        block = made(shape, dtype, seed)
        holes = rng.random(shape) < rng.choice([0.05, 0.7])
        holes[(slice(0, max(factors)),) * len(shape)] = True  # a window of nothing else
        value = block.dtype.type(1)
        kinds = [(block, holes, Missing(value, mask=holes))]
        marked = np.where(holes, value, block).astype(block.dtype)
        kinds += [(marked, marked == value, Missing(value))]
        if block.dtype.kind == "f":
            marked = np.where(holes, np.nan, block).astype(block.dtype)
            kinds += [(marked, np.isnan(marked), Missing(block.dtype.type(np.nan)))]
        for given, gaps, missing in kinds:
            got = downsample(strict, given, factors, method, missing, (0,) * len(shape))
            np.testing.assert_array_equal(host(got), expected(given, factors, method, gaps, missing.value))


@pytest.mark.parametrize("method", ORACLES)
def test_blocks_without_a_gap_are_reduced_as_always(strict: Backend, method: str) -> None:
    block = np.random.default_rng(0).normal(0, 1, (33, 70)).astype("f4")
    got = downsample(strict, block, (3, 2), method, Missing(np.float32(99)), (0, 0))
    np.testing.assert_array_equal(host(got), expected(block, (3, 2), method))


def test_a_mask_of_a_level_is_true_where_all_is_missing(strict: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = np.random.default_rng(0).random((37, 41, 5)) < 0.9
    monkeypatch.setattr("gzarr.hierarchy.missing._MASK_SIZE", 50)
    missing = Missing(0, mask=mask).above((2, 3, 1)).above((2, 1, 1))
    found = missing.read(strict, (2, 1, 0), (8, 13, 5))
    padded = np.pad(mask, ((0, 3), (0, 1), (0, 0)), constant_values=True).reshape(10, 4, 14, 3, 5).all((1, 3))
    np.testing.assert_array_equal(host(found), padded[2:, 1:])


def test_an_infinite_part_of_a_complex_number_leaves_the_other_one(strict: Backend) -> None:
    block = np.array([complex(2, np.inf), complex(4, 1), 0, 0], "c8")
    got = downsample(strict, block, (2,), "mean", Missing(np.complex64(0)), (0,))
    assert (got.real.tolist(), got.imag.tolist()) == ([3, 0], [np.inf, 0])


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_the_mean_of_complex_numbers(backend: Backend, dtype: str) -> None:
    for shape, factors in CASES[:6]:
        check(backend, made(shape, dtype), factors, "mean")


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "f4", "i8"])
@pytest.mark.parametrize("method", ["mean", "mode"])
def test_blocks_of_any_strides(backend: Backend, method: str, dtype: str) -> None:
    whole = made((6, 10, 40), dtype)
    for block in (
        whole[1:6, 2:9, 3:38],
        whole[:, ::2, ::-1],
        whole[::-1, :, ::3],
        whole.T,
        np.broadcast_to(whole[:, :1, :], (6, 6, 40)),
    ):
        check(backend, block, (2, 2, 2), method)
        check(backend, block, (1, 3, 2), method)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_results_go_into_views_too(backend: Backend, dtype: str) -> None:
    block = made((8, 9, 21), dtype)
    room = np.zeros((6, 7, 30), dtype)
    for out in (room[1:5, 1:6, 4:15], room[1:5, 1:6, 29:7:-2]):
        room[...] = 99
        backend.reduce_windows(block, (2, 2, 2), "mean", out)
        np.testing.assert_array_equal(out, expected(block, (2, 2, 2), "mean"))
        assert np.count_nonzero(room == 99) >= room.size - out.size


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "u8"])
def test_sums_of_large_windows_do_not_overflow(backend: Backend, dtype: str) -> None:
    info = np.iinfo(dtype)
    for n in (300, 33_000):
        for value in (int(info.max), int(info.min)):
            block = np.full((1, n), value, dtype)
            block[0, 0] = info.max
            exact = round(Fraction(info.max + (n - 1) * value, n))
            assert downsample(backend, block, (1, n), "mean").tolist() == [[exact]]


@pytest.mark.parametrize(
    ("values", "factor", "expected"),
    [
        (np.array([0, 1, 1, 1, 2, 1, 3, 1], "u1"), 2, [0, 1, 2, 2]),
        (np.array([-1, 0, -1, -2, -3, -2], "i1"), 2, [0, -2, -2]),
        (np.array([True, False, True, True]), 2, [False, True]),
        (np.array([True, True, False, False, True]), 4, [False, True]),
        (np.array([2**63 + 1, 2**63 + 3, 2**64 - 1, 2**64 - 1], "u8"), 4, [13835058055282163712]),
        (np.array([2**62 + 1, 2**62 + 3, 2**63 - 1, 2**63 - 1], "i8"), 2, [2**62 + 2, 2**63 - 1]),
        (np.array([3e38, 3e38], "f4"), 2, [np.inf]),
        (np.array([6e4, 6e4], "f2"), 2, [6e4]),
        (np.array([1, 2**-24, 2**-24, 2**-24], "f4"), 4, [0.25]),
    ],
)
def test_means_are_those_of_tensorstore(backend: Backend, values: Any, factor: int, expected: list[Any]) -> None:
    """As its driver "downsample" gave them (0.1.86)."""
    assert downsample(backend, values, (factor,), "mean").tolist() == expected


@pytest.mark.parametrize("method", ["mean", "median"])
def test_repeated_means_and_medians_do_not_drift(backend: Backend, method: str) -> None:
    block = np.random.default_rng(1).normal(1000, 10, (512, 512))
    for level in (block.astype("u2"), block):
        below = level
        for _ in range(5):
            level = downsample(backend, level, (2, 2), method)  # noqa: PLW2901 - one level after the other
        assert abs(float(level.mean()) - float(below.mean())) < 0.2


@pytest.mark.parametrize(
    ("dtype", "values", "middle"),
    [
        ("u8", [2**64 - 1, 2**64 - 2], 2**64 - 2),
        ("u8", [2**64 - 1, 2**64 - 3, 0, 2**64 - 1], 2**64 - 2),
        ("i8", [-(2**63), 2**63 - 1], 0),
        ("i8", [-(2**63), -(2**63) + 1], -(2**63)),
        ("i1", [-128, -127, 5, -127], -127),
        ("u1", [255, 254], 254),
        ("?", [True, False], False),
        ("f8", [2.0**1023, 1.5 * 2.0**1023], 1.25 * 2.0**1023),
        ("f8", [5e-324, 0.0], 0.0),
        ("f4", [2.0**127, 1.5 * 2.0**127], 1.25 * 2.0**127),
        ("f2", [65504.0, 65440.0], 65472.0),
        ("f8", [np.inf, 1.0], np.inf),
        ("f8", [np.nan, 3.0, 1.0], 2.0),
    ],
)
def test_means_of_the_middle_two_do_not_overflow(backend: Backend, dtype: str, values: list[Any], middle: Any) -> None:
    block = np.array(values, dtype)
    assert downsample(backend, block, (len(values),), "median").tolist() == [block.dtype.type(middle)]


def test_a_function_gets_the_block_and_the_factors(backend: Backend) -> None:
    block = made((4, 6), "u2")
    got = downsample(backend, block, (2, 3), lambda values, factors: values[:: factors[0], :: factors[1]])
    np.testing.assert_array_equal(got, block[::2, ::3])


@pytest.mark.parametrize(
    ("result", "named"),
    [(np.zeros((2, 3), "u2"), r"shape \(2, 3\)"), (np.zeros((2, 2), "f8"), "dtype float64"), (None, "NoneType")],
)
def test_a_function_that_returns_something_else_is_refused(result: Any, named: str) -> None:
    def halve(block: Any, factors: Any) -> Any:
        return result

    with pytest.raises(ValueError, match=rf"halve must return .* \(2, 2\) and dtype uint16; got .*{named}"):
        downsample(CpuBackend(), np.zeros((4, 6), "u2"), (2, 3), halve)


def test_factors_must_fit() -> None:
    block = np.zeros((4, 6), "u2")
    for factors in ((2,), (2, 0), (2, 2, 2)):
        with pytest.raises(ValueError, match="factors must be 2 integers from 1 on"):
            downsample(CpuBackend(), block, factors, "mean")
    with pytest.raises(ValueError, match="windows of more than"):
        downsample(CpuBackend(), block, (1 << 20, 1 << 20), "mean")


def test_methods_are_checked() -> None:
    with pytest.raises(ValueError, match=r"must be one of 'mean', 'nearest', 'mode', .*'gaussian'.*got 'average'"):
        check_method("average", np.dtype("u1"), labels=False)
    for method in ("mean", "gaussian", "median"):
        with pytest.raises(ValueError, match='labels of no object; use "mode"'):
            check_method(method, np.dtype("u4"), labels=True)
    for method in ("mode", "nearest", "min", "max"):
        check_method(method, np.dtype("u4"), labels=True)
    for method, dtype in itertools.product(("mode", "min", "median", "gaussian"), ("c8", "M8[s]", "U3")):
        with pytest.raises(TypeError, match=f"{method}.* does not work for"):
            check_method(method, np.dtype(dtype), labels=False)
    with pytest.raises(TypeError, match="does not work for"):
        check_method("mean", np.dtype("M8[s]"), labels=False)
    check_method("nearest", np.dtype("U3"), labels=False)
    check_method(np.mean, np.dtype("U3"), labels=True)
    with pytest.raises(ValueError, match="build_pyramid"):
        downsample(CpuBackend(), np.zeros(4), (2,), "gaussian")


def test_times_and_strings_have_a_nearest_element() -> None:
    block = np.arange(6).astype("M8[s]")
    np.testing.assert_array_equal(downsample(CpuBackend(), block, (4,), "nearest"), block[::4])


def test_all_methods_have_an_oracle() -> None:
    assert set(ORACLES) == set(METHODS) - {GAUSSIAN}
