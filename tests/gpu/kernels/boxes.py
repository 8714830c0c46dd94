"""Random boxes for the kernels that copy, which are run on host memory and compared with NumPy byte by byte."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.codecs.transfers import copy_boxes
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.kernels import PLAIN
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from tests.gpu.kernels.launching import at_offset
from tests.gpu.kernels.reference import Shuffle, shuffled


class Devices:
    """The devices that boxes are copied on; other suites put other methods here."""

    def make(self) -> Any:
        return EmulatedDevice()

    def put(self, device: Any, data: np.ndarray) -> Any:
        """A copy in the memory of a device, at an address that is aligned alike."""
        return at_offset(data, data.ctypes.data % 16)

    def got(self, device: Any, there: Any) -> np.ndarray:
        """What is in the memory of a device, when its work is done."""
        return there


BOXES = Devices()


@dataclass
class Case:
    """Parts of chunks, some of them missing, that go to one target. Strides are in bytes, and may be negative.

    lists: for axes with an index list, (side, axis) -> the list; side 0 is the chunk, side 1 the target.
    """

    shape: tuple[int, ...]
    chunks: list[np.ndarray | None]
    shuffles: list[Shuffle]
    starts: list[int]
    strides: tuple[int, ...]
    target: np.ndarray
    target_starts: list[int]
    target_strides: tuple[int, ...]
    nbytes: int
    swap_unit: int
    fill: np.ndarray
    lists: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def positions(self, side: int, start: int) -> np.ndarray:
        """Where the bytes of the elements are in a chunk or in the target: int64 (*shape, nbytes)."""
        found = start + np.arange(self.nbytes)
        for axis, stride in reversed(list(enumerate((self.strides, self.target_strides)[side]))):
            index = self.lists.get((side, axis), np.arange(self.shape[axis]))
            found = found + (index * stride).reshape(-1, *(1,) * (len(self.shape) - axis))
        assert not found.size or found.min() >= 0
        return found


def reversed_in(elements: np.ndarray, unit: int) -> np.ndarray:
    if unit < 2:
        return elements
    shape = elements.shape
    return np.ascontiguousarray(elements).reshape(-1, unit)[:, ::-1].reshape(shape)


def wanted(case: Case) -> np.ndarray:
    """The target when the parts have been copied."""
    result = case.target.copy()
    for i, chunk in enumerate(case.chunks):
        to = case.positions(1, case.target_starts[i])
        taken = np.broadcast_to(case.fill, to.shape)
        if chunk is not None:
            taken = reversed_in(chunk[case.positions(0, case.starts[i])], case.swap_unit)
        result[to] = taken
    return result


def copied(case: Case) -> tuple[np.ndarray, list[str]]:
    """Copy the parts. Returns: the target, and the kernels."""
    device, n = BOXES.make(), len(case.chunks)
    stored = [
        None if c is None else BOXES.put(device, at_offset(shuffled(c, how), c.ctypes.data % 16))
        for c, how in zip(case.chunks, case.shuffles, strict=True)
    ]
    target = BOXES.put(device, case.target)
    assert device.address(target) % 16 == case.target.ctypes.data % 16

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int64)

    def axes(values: Sequence[int]) -> np.ndarray:
        return np.repeat(column(values).reshape(-1, 1), n, axis=1)

    begins, end = [[-1] * len(case.shape), [-1] * len(case.shape)], 0
    for (side, axis), indices in case.lists.items():
        begins[side][axis] = end
        end += indices.size
    boxes = Boxes(
        column([0 if s is None else device.address(s) for s in stored]),
        column(case.starts),
        device.address(target) + column(case.target_starts),
        axes(case.shape),
        axes(case.strides),
        axes(case.target_strides),
        case.nbytes,
        axes(begins[0]),
        axes(begins[1]),
        column([index for indices in case.lists.values() for index in indices]),
    )
    shuffles = Shuffles(
        np.array([s.mode for s in case.shuffles], np.uint8),
        np.array([s.typesize for s in case.shuffles], np.int32),
        column([s.blocksize for s in case.shuffles]),
        column([1 if c is None else c.size for c in case.chunks]),
    )
    context = BatchContext(device)
    copy_boxes(context, boxes, shuffles, (case.swap_unit, case.fill))
    return BOXES.got(device, target), device.launches


@st.composite
def cases(draw: st.DrawFn, mode: int) -> Case:
    """Rows of elements in chunks of one shape, cut out of a target that is a little larger."""
    nbytes = draw(st.sampled_from([1, 2, 4, 8, 16, 3, 12] if mode == PLAIN else [1, 2, 4, 4, 8, 8, 16]))
    ndim = draw(st.integers(0, 5))
    chunk = tuple(draw(st.sampled_from([1, 2, 3, 5, 8, 16, 24])) for _ in range(ndim))
    if ndim and draw(st.booleans()):
        chunk = (*chunk[:-1], draw(st.sampled_from([32, 48, 50, 64, 100])))
    chunk = tuple(min(n, 6 if ndim < 5 else 3) if ndim - axis > 2 else n for axis, n in enumerate(chunk))
    steps = tuple(draw(st.sampled_from([1, 1, 1, 2])) for _ in chunk)
    shape = tuple(
        draw(st.sampled_from([n, n, n, max(n - 8, 1), draw(st.integers(0, n))])) // step
        for n, step in zip(chunk, steps, strict=True)
    )
    pad = tuple(draw(st.sampled_from([0, 0, 1, 2, 4, 8])) for _ in chunk)
    sizes = tuple(n + p for n, p in zip(shape, pad, strict=True))
    flips = tuple(draw(st.sampled_from([1, 1, 1, -1])) for _ in chunk)

    def strides_of(lengths: Sequence[int]) -> list[int]:
        result, size = [], nbytes
        for n in reversed(lengths):
            result.insert(0, size)
            size *= max(n, 1)
        return result

    order = draw(st.sampled_from([list(range(ndim)), draw(st.permutations(range(ndim)))]))
    inner = [strides_of([chunk[axis] for axis in order])[order.index(axis)] for axis in range(ndim)]
    starts, strides, reach = 0, [], []
    for n, count, step, stride in zip(chunk, shape, steps, inner, strict=True):
        first = draw(st.integers(0, n - 1 - max(count - 1, 0) * step))
        first = first // 8 * 8 if draw(st.booleans()) else first
        starts += first * stride
        strides.append(step * stride)
        reach.append((n - 1 - first) // step)
    outer, n_parts = strides_of(sizes), draw(st.integers(1, 4))
    size = nbytes * int(np.prod(sizes, dtype=np.int64))
    begin = sum((count - 1) * stride for count, stride, f in zip(shape, outer, flips, strict=True) if f < 0 < count)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    total = nbytes * int(np.prod(chunk, dtype=np.int64))
    typesize = draw(st.sampled_from([nbytes, nbytes, nbytes, 1, 2, 4, 8, 16, 3]))
    shuffles = []
    for _ in range(n_parts):
        items = draw(st.sampled_from([8, 16, 64, 128, 24]))
        block = draw(st.sampled_from([total, items * typesize, items * typesize, total + 5, 40]))
        shuffles.append(Shuffle(mode if draw(st.integers(0, 5)) else PLAIN, typesize, block))
    offset = draw(st.sampled_from([0, 0, 0, 8, 4, 1]))
    absent = draw(st.sampled_from([0, 0, 0.3]))
    chunks = [None if rng.random() < absent else at_offset(rng.integers(0, 256, total, np.uint8), offset)] * 1
    chunks += [
        None if rng.random() < absent else at_offset(rng.integers(0, 256, total, np.uint8), offset)
        for _ in range(n_parts - 1)
    ]
    units = [u for u in (0, 0, 2, 4, 8) if u == 0 or nbytes % u == 0]
    lists = {}
    for axis, (most, count) in enumerate(zip(reach, shape, strict=True)):
        if draw(st.sampled_from([False, False, True])):
            lists[0, axis] = rng.integers(0, most + 1, count)
        if draw(st.sampled_from([False, False, True])):
            lists[1, axis] = rng.permutation(count)
    return Case(
        shape,
        chunks,
        shuffles,
        [starts] * n_parts,
        tuple(strides),
        at_offset(np.full(n_parts * size + 64, 0xA5, np.uint8), draw(st.sampled_from([0, 0, 0, 8, 4, 2, 1]))),
        [i * size + begin for i in range(n_parts)],
        tuple(s * f for s, f in zip(outer, flips, strict=True)),
        nbytes,
        draw(st.sampled_from(units)),
        rng.integers(0, 256, nbytes, np.uint8),
        lists,
    )


def check(case: Case) -> list[str]:
    """Compare with NumPy. Returns: the kernels."""
    found, launches = copied(case)
    assert np.array_equal(found, wanted(case))
    return launches
