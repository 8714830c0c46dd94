"""Writes that nobody waits for: values are gathered until stored objects are whole, then other threads write them.

Theory of operation. Objects are taken together in *blocks* of a few megabytes, each of which has a buffer. A value is
copied into the buffers of the blocks that it touches. A block that is covered goes to the writers. So does the block
that was touched longest ago, when the buffers would exceed the limit: then only what was given of it is written, and an
object of which a part is missing is read, changed and stored.

Rules. Blocks are cells of one grid, and there is one block of a cell at a time, so that later values win. A caller
holds the lock for the whole call, and it alone changes which blocks there are. Whoever takes a block writes it: writers
do, and so does a finalizer or a handler of a signal that comes on the caller's thread, as it cannot wait for the call
that it has interrupted. Nothing here refers to the array object: when it is collected, what is left goes to the
writers, and the end of the program waits for them. A forked child has none of it, as its parent writes it.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from itertools import product
from math import prod
from queue import Empty, SimpleQueue
from threading import get_ident
from traceback import clear_frames
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import numpy as np

from gzarr.backend import Array
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.waves import WriteJob
from gzarr.concurrency import Pool, after_fork, new_lock, raise_again
from gzarr.indexing.grid import Grid, RegularAxis
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.tensors import is_on_device, to_host

#: Bytes of a block: its objects take milliseconds to write, beside which a call of the engine is nothing.
BLOCK_NBYTES = 4 << 20
#: The limit has room for so many blocks, or they are smaller.
_BLOCKS = 8
#: Threads that write for one array, so that one begins while another ends; and for all arrays.
_WRITERS, _ALL_WRITERS = 2, 16
#: Blocks of one call of the engine.
_TOGETHER = 16
#: Seconds after which a thread that waits for a write looks again.
_PATIENCE_S = 0.2
#: A block of which so many separate parts were given is written without waiting for the rest.
_MAX_PARTS = 64

#: First element of a box along every axis, and one past its last.
Bounds: TypeAlias = tuple[Coords, Coords]


class _Block:
    """A buffer for neighbouring objects, and the parts of it that were given."""

    __slots__ = ("_taken", "bounds", "buffer", "done", "error", "marks", "parts", "queued")

    def __init__(self, bounds: Bounds, buffer: Array) -> None:
        self.bounds = bounds
        self.buffer = buffer
        self.parts: list[Bounds] = []
        self.marks: list[object] = []
        #: Whether the block is with the writers, so that nothing more may be copied into it.
        self.queued = False
        #: Who writes the block, once somebody does: a token, and the thread.
        self._taken: dict[None, tuple[object, int]] = {}
        #: Whether it has been written, and what that has raised.
        self.done = False
        self.error: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """Whether values may be copied into the buffer."""
        return not self._taken and not self.queued

    def take(self) -> bool:
        """Whether the caller is the one to write the block."""
        token = object()
        return self._taken.setdefault(None, (token, get_ident()))[0] is token

    def is_taken_here(self) -> bool:
        """Whether a call on this thread writes the block, or has."""
        return bool(self._taken) and self._taken[None][1] == get_ident()

    def end(self, error: BaseException | None) -> None:
        """Note that the block has been written."""
        if error is not None:
            error.add_note("this was written behind, and its values are lost; array.flush() forgets the error")
        self.error = error
        self.done = True

    def jobs(self, io: ArrayIO, *, write_empty: bool) -> Iterator[WriteJob]:
        """Writes of the parts that were given."""
        for low, high in self.parts:
            plan = make_plan(box_between(low, high), io.layout.grid)
            yield WriteJob(io, plan, self.buffer[_within(self.bounds, (low, high))], None, write_empty)


class _Task(NamedTuple):
    """A block for the writers."""

    block: _Block
    io: ArrayIO
    write_empty: bool


class _Queue:
    """What the callers and the writers of an array share. It may outlive the array object."""

    def __init__(self) -> None:
        #: A block may be in it more than once; who takes it writes it.
        self.tasks: deque[_Task] = deque()
        #: Wakes up who waits for a block, and looks at the block.
        self.ended: SimpleQueue[None] = SimpleQueue()
        #: Whether nobody will use the buffers again.
        self.abandoned = False
        self._idle: deque[None] = deque([None] * _WRITERS)

    def start(self) -> None:
        """Let one more writer begin, if there may be one."""
        context = copy_context()  # a profile, say
        try:
            self._idle.pop()
        except IndexError:
            return
        if sys.is_finalizing():  # there are no threads any more
            self._drain()
            return
        try:
            _pool.submit(lambda: context.run(self._drain), _ALL_WRITERS)
        except RuntimeError:  # no thread can be started
            self._drain()
        except BaseException:  # an interrupt: one writer more is better than one less
            self._idle.append(None)
            raise

    def _drain(self) -> None:
        while True:
            tasks: list[_Task] = []
            with suppress(IndexError):
                while len(tasks) < _TOGETHER:
                    task = self.tasks.popleft()
                    if task.block.take():
                        tasks.append(task)
            if tasks:
                self.write(tasks)
                continue
            self._idle.append(None)
            # A task that came just before found no writer idle.
            if not self.tasks:
                return

    def write(self, tasks: Sequence[_Task]) -> None:
        """Write blocks that the caller has taken."""
        error = _written(tasks)
        for task in tasks:
            failed = _written([task]) if error is not None and len(tasks) > 1 else error
            if self.abandoned:
                task.block.buffer = None
            task.block.end(failed)
        self.ended.put(None)


def _written(tasks: Sequence[_Task]) -> BaseException | None:
    """Write blocks. Returns: what was raised."""
    backend = tasks[0].io.backend
    try:
        with backend.own_stream():
            for task in tasks:
                for mark in task.block.marks:
                    backend.wait(mark)
            engine.write([job for task in tasks for job in task.block.jobs(task.io, write_empty=task.write_empty)])
    except BaseException as error:  # noqa: BLE001 - raised in the thread that asks next
        clear_frames(error.__traceback__)  # which keep the buffers
        return error
    return None


class Behind:
    """The writes behind of one array object.

    Parameters
    ----------
    io : ArrayIO
        The array, which is opened.
    """

    def __init__(self, io: ArrayIO) -> None:
        self._lock = new_lock()
        self._write_empty = False
        self.forget()
        self._open(io)
        _report_abandoned(wait=False)
        _all.add(self)
        _register_end()

    def _open(self, io: ArrayIO) -> None:
        self.io = io
        self._dtype = io.chain((0,) * len(io.layout.grid)).chunk.dtype

    def forget(self) -> None:
        """Begin anew: a forked child leaves the writes to its parent."""
        self._queue = _Queue()
        self._grid: Grid = ()
        self._blocks: dict[Coords, _Block] = {}
        self._spare: list[Array] = []
        self._error: BaseException | None = None
        self._busy = False

    @contextmanager
    def _entered(self) -> Iterator[bool]:
        """The lock. Gives whether this is foreign code that has interrupted a call, or a writer, on its own thread."""
        if _pool.is_here():
            yield True
            return
        with self._lock:
            if self._busy:
                yield True
                return
            try:
                self._busy = True
                yield False
            finally:
                self._busy = False

    def put(self, bounds: Bounds, value: Any, max_nbytes: int, *, write_empty: bool) -> None:
        """Write the elements of a box some time. Raises: what an earlier write has raised."""
        with self._entered() as is_foreign:
            if is_foreign:
                self._finish()
                plan = make_plan(box_between(*bounds), self.io.layout.grid)
                engine.write((WriteJob(self.io, plan, value, None, write_empty),))
                return
            for coords, block in list(self._blocks.items()):
                if block.done:
                    self._retire(coords)
            raise_again(self._error)
            if not self._blocks:
                most = min(BLOCK_NBYTES, max_nbytes // _BLOCKS)
                self._grid = block_grid(self.io.layout.objects, self._dtype.itemsize, _shape(bounds), most)
            self._write_empty = write_empty
            for coords in _touched(self._grid, bounds):
                self._put(coords, bounds, value, max_nbytes)

    def _put(self, coords: Coords, bounds: Bounds, value: Any, max_nbytes: int) -> None:
        """Copy what a block takes of a value into its buffer."""
        while True:
            block = self._blocks.get(coords)
            if block is None or not block.is_open:
                block = self._new_block(coords, value, max_nbytes)
            self._copy(block, bounds, value)
            if block.is_open:  # else foreign code has written it before it had the value
                break
        if block.parts == [block.bounds] or len(block.parts) > _MAX_PARTS:
            self._hand_over(block)

    def _copy(self, block: _Block, bounds: Bounds, value: Any) -> None:
        """Copy what a block takes of a value into its buffer."""
        part = _common(block.bounds, bounds)
        piece = value[_within(bounds, part)]
        if isinstance(block.buffer, np.ndarray):
            piece = piece if isinstance(piece, np.ndarray) else to_host(piece)
        elif isinstance(piece, np.ndarray):
            piece = self.io.backend.xp.asarray(piece)
        block.buffer[_within(block.bounds, part)] = piece
        mark = self.io.backend.record()
        if mark is not None:
            block.marks.append(mark)
        block.parts = merged(block.parts, part)

    def _new_block(self, coords: Coords, value: Any, max_nbytes: int) -> _Block:
        """Make a block, once its objects are no longer being written and there is room."""
        if coords in self._blocks:
            self._retire(coords)
        bounds = _bounds(self._grid, coords)
        nbytes = prod(_shape(bounds)) * self._dtype.itemsize
        buffer = self._spare_buffer(bounds, value)
        while buffer is None and self.nbytes + nbytes > max_nbytes and (self._spare or self._blocks):
            if self._spare:
                self._spare.pop()
            else:
                self._retire(next(iter(self._blocks)))
                buffer = self._spare_buffer(bounds, value)
        if buffer is None:
            shape, dtype = _shape(bounds), self._dtype
            buffer = self.io.backend.empty(shape, dtype) if is_on_device(value) else np.empty(shape, dtype)
        block = self._blocks[coords] = _Block(bounds, buffer)
        return block

    def _spare_buffer(self, bounds: Bounds, value: Any) -> Array:
        """A buffer that can be used again; None if there is none for a block."""
        with suppress(IndexError):
            buffer = self._spare.pop()
            if buffer.shape == _shape(bounds) and isinstance(buffer, np.ndarray) is not is_on_device(value):
                return buffer
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(int(one.nbytes) for one in [*(block.buffer for block in self._blocks.values()), *self._spare])

    def _hand_over(self, block: _Block) -> None:
        """Give a block to the writers."""
        block.queued = True
        self._queue.tasks.append(_Task(block, self.io, self._write_empty))
        self._queue.start()

    def _await(self, block: _Block) -> None:
        """Wait until a block has been written."""
        if not block.queued:
            self._hand_over(block)
        while not block.done:
            try:
                self._queue.ended.get(timeout=_PATIENCE_S)
            except Empty:  # another call may have taken what this waits for
                self._hand_over(block)  # again: an interrupt may have come before it was in the queue

    def _retire(self, coords: Coords) -> None:
        """Take notice of a block that has been written, once it has."""
        block = self._blocks[coords]
        self._await(block)
        with suppress(Empty):  # wake-ups that nobody waits for would pile up
            self._queue.ended.get_nowait()
        self._error = self._error or block.error
        del self._blocks[coords]
        self._spare.append(block.buffer)

    def _finish(self) -> None:
        """Write everything, for foreign code, which cannot wait for what it has interrupted. Raises: as `wait`."""
        for block in list(self._blocks.values()):
            if block.take():
                self._queue.write([_Task(block, self.io, self._write_empty)])
            if not _pool.is_here() and not block.is_taken_here():
                self._await(block)
            raise_again(block.error)
        raise_again(self._error)

    def wait(self) -> None:
        """Write everything and wait for it. Raises: what any write has raised, as long as that is not forgotten."""
        with self._entered() as is_foreign:
            if is_foreign:
                self._finish()
                return
            for block in self._blocks.values():
                self._hand_over(block)
            for coords in list(self._blocks):
                self._retire(coords)
            self._spare = []
            raise_again(self._error)

    def flush(self) -> None:
        """Write everything and wait for it. Raises: what any write has raised, which is then forgotten."""
        try:
            self.wait()
        finally:
            self._error = None

    def rebind(self, io: ArrayIO) -> None:
        """Go on with the array opened in another way, as after a change of its shape."""
        with self._lock:
            self.wait()
            self._open(io)

    def __del__(self) -> None:
        self._queue.abandoned = True
        for block in self._blocks.values():
            self._hand_over(block)
        if self._error is not None:
            _report(self._error)
        _abandoned.extend((self._queue, block) for block in self._blocks.values())


#: Threads that write, of all arrays.
_pool = Pool()
_all: WeakSet[Behind] = WeakSet()
#: Blocks of array objects that were collected, and the queues they are in.
_abandoned: deque[tuple[_Queue, _Block]] = deque()


@after_fork
def _forget() -> None:
    _abandoned.clear()
    for behind in list(_all):
        behind.forget()


@cache
def _register_end() -> None:
    """Wait for all writes at the end of the program. Registered at the first write: stores close after that."""
    atexit.register(_end)


def _end() -> None:
    for behind in list(_all):
        try:
            behind.flush()
        except Exception as error:  # noqa: BLE001 - the others are to be written, too
            _report(error)
    _report_abandoned(wait=True)


def _report_abandoned(*, wait: bool) -> None:
    """Report what became of blocks of collected array objects. wait: until all are written."""
    for _ in range(len(_abandoned)):
        try:
            queue, block = _abandoned.popleft()
        except IndexError:  # another thread, or foreign code
            return
        while wait and not block.done:
            with suppress(Empty):
                queue.ended.get(timeout=_PATIENCE_S)
        if not block.done:
            _abandoned.append((queue, block))
        elif block.error is not None:
            _report(block.error)


def _report(error: BaseException) -> None:
    """Show an error that nobody can catch."""
    sys.excepthook(type(error), error, error.__traceback__)


def block_grid(objects: Grid, itemsize: int, shape: Coords, most: int) -> Grid:
    """Cut an array into blocks of neighbouring objects: along the last axes, as far as a value of a shape reaches."""
    axes = list(objects)
    nbytes = itemsize * prod(min(axis.bounds(0)[1], axis.extent) for axis in axes if axis.extent)
    for n in reversed(range(len(axes))):
        axis = axes[n]
        count = min(-(-shape[n] // axis.bounds(0)[1]), most // max(nbytes, 1)) if isinstance(axis, RegularAxis) else 1
        if isinstance(axis, RegularAxis) and count > 1:
            axes[n] = axis.subdivided(count * axis.length)
            nbytes *= count
        if axes[n].bounds(0)[1] < shape[n]:
            break
    return tuple(axes)


def merged(parts: Sequence[Bounds], new: Bounds) -> list[Bounds]:
    """Add a box to boxes, made one with those with which it is a box again."""
    for other in parts:
        union = _union(other, new)
        if union is not None:
            return merged([part for part in parts if part is not other], union)
    return [*parts, new]


def _union(one: Bounds, two: Bounds) -> Bounds | None:
    """The union of two boxes, if that is a box."""
    lows, highs = tuple(map(min, one[0], two[0])), tuple(map(max, one[1], two[1]))
    if (lows, highs) in (one, two):
        return lows, highs
    differing = [n for n in range(len(lows)) if (one[0][n], one[1][n]) != (two[0][n], two[1][n])]
    if len(differing) > 1 or any(max(one[0][n], two[0][n]) > min(one[1][n], two[1][n]) for n in differing):
        return None
    return lows, highs


def _touched(grid: Grid, bounds: Bounds) -> Iterator[Coords]:
    if any(low >= high for low, high in zip(*bounds, strict=True)):
        return iter(())
    each = zip(grid, *bounds, strict=True)
    return product(*[range(axis.locate(low), axis.locate(high - 1) + 1) for axis, low, high in each])


def _bounds(grid: Grid, coords: Coords) -> Bounds:
    """The elements of a block that the array has."""
    each = [(axis.bounds(c), axis.extent) for axis, c in zip(grid, coords, strict=True)]
    return tuple([low for (low, _), _ in each]), tuple([min(high, extent) for (_, high), extent in each])


def _common(one: Bounds, two: Bounds) -> Bounds:
    return tuple(map(max, one[0], two[0])), tuple(map(min, one[1], two[1]))


def _within(outer: Bounds, inner: Bounds) -> tuple[slice | EllipsisType, ...]:
    """The index of a box in an array of a larger one, which gives an array, not an element."""
    spans = [slice(low - origin, high - origin) for origin, low, high in zip(outer[0], *inner, strict=True)]
    return (*spans, ...)


def _shape(bounds: Bounds) -> Coords:
    return tuple([high - low for low, high in zip(*bounds, strict=True)])
