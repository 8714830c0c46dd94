"""Memory of the double: that of its devices, and pinned memory of the host.

Freed memory is overwritten, in the order of the stream that may have it next. Memory that pending work refers to keeps
its address, so that work which comes too late reads rubbish instead of ending the process.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from tests.gpu.fake_cupy.clock import spend
from tests.gpu.fake_cupy.errors import OutOfMemoryError
from tests.gpu.fake_cupy.streams import DOING, Stream, current, get_current_stream, keep, submit

#: What fresh device memory and freed memory hold.
FRESH, FREED = 0xA5, 0xDB


def bytes_at(address: int, nbytes: int) -> Any:
    """Memory by its address."""
    return (ctypes.c_uint8 * nbytes).from_address(address)


# -- of devices ------------------------------------------------------------------------------------------------------


class Memory:
    """A block of device memory; freed, it is overwritten in the order of the stream on which it was allocated.

    CuPy's pool hands it out again for work on that stream; what other streams still do with it would show.
    """

    def __init__(self, size: int, freed: Callable[[], None] | None = None):
        self.size = size
        self.device_id = current.device
        self.backing = np.full(size, FRESH, np.uint8)
        self.ptr = int(self.backing.ctypes.data)
        self._queue = get_current_stream().queue
        self._freed = freed

    def __del__(self) -> None:
        if self._freed is not None:
            self._freed()
        backing = self.backing
        with DOING:
            # No other memory gets this address while work that holds it is under way.
            for queue in filter(None, (ref() for ref in Stream.queues.valuerefs())):  # other threads may make streams
                if queue.pending and queue is not self._queue:
                    queue.submit(lambda: keep(backing))
            self._queue.submit(lambda: backing.fill(FREED))
            if len(self._queue.pending) == 1:
                self._queue.run()


class UnownedMemory:
    """Like cupy.cuda.UnownedMemory: memory of another library."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1):
        self.ptr, self.size, self.owner = ptr, size, owner
        self.device_id = current.device if device_id < 0 else device_id
        self.backing = np.ctypeslib.as_array(bytes_at(ptr, size)) if size else np.empty(0, np.uint8)


class MemoryPointer:
    """Like cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Memory | UnownedMemory, offset: int):
        self.mem, self._offset = mem, offset
        self.ptr, self.device_id = mem.ptr + offset, mem.device_id

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        target, source = self.ptr, src.ptr
        submit(lambda: keep(ctypes.memmove(target, source, size)))


class _Block:
    """What a pool has from the device at once: which pieces of it are free."""

    def __init__(self, size: int):
        self.size = size
        self.free = [(0, size)]

    def fitting(self, size: int) -> tuple[int, int] | None:
        """The smallest free piece of so many bytes or more."""
        return min(
            (piece for piece in self.free if piece[1] - piece[0] >= size), default=None, key=lambda p: p[1] - p[0]
        )

    def take(self, piece: tuple[int, int], size: int) -> int:
        self.free.remove(piece)
        if piece[1] - piece[0] > size:
            self.free.append((piece[0] + size, piece[1]))
        return piece[0]

    def give(self, start: int, end: int) -> None:
        for piece in list(self.free):
            if piece[1] == start or piece[0] == end:
                self.free.remove(piece)
                start, end = min(start, piece[0]), max(end, piece[1])
        self.free.append((start, end))


class MemoryPool:
    """Like cupy.cuda.MemoryPool: what is freed stays with its stream, for requests there, and counts to the limit.

    Memory itself is new each time.
    """

    def __init__(self, allocator: Any = None):
        self.used = self.total = self.limit = 0
        self._blocks: weakref.WeakKeyDictionary[Any, list[_Block]] = weakref.WeakKeyDictionary()
        self._freed: deque[tuple[_Block, int, int]] = deque()  # finalizers run at any moment
        self._lock = threading.RLock()

    def malloc(self, size: int) -> MemoryPointer:
        asked, size = size, -(-size // 512) * 512
        _hooks.call("malloc_preprocess", size=asked, mem_size=size)
        with self._lock:
            self._settle()
            blocks = self._blocks.setdefault(get_current_stream().queue, [])
            found = [(piece, block) for block in blocks if (piece := block.fitting(size)) is not None]
            if found:
                piece, block = min(found, key=lambda item: item[0][1] - item[0][0])
            else:
                if self.limit and self.total + size > self.limit:
                    raise OutOfMemoryError(size, self.total, self.limit)
                self.total += size
                block = _Block(size)
                piece = (0, size)
                blocks.append(block)
            start = block.take(piece, size)
            self.used += size

        def free() -> None:
            self._freed.append((block, start, start + size))
            _hooks.call("free_postprocess", mem_size=size, mem_ptr=places[0], pmem_id=0)

        memory = Memory(size, free)
        places = [memory.ptr]
        _hooks.call("malloc_postprocess", size=asked, mem_size=size, mem_ptr=memory.ptr, pmem_id=id(memory))
        return MemoryPointer(memory, 0)

    def _settle(self) -> None:
        while self._freed:
            block, start, end = self._freed.popleft()
            block.give(start, end)
            self.used -= end - start

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.limit = size or 0

    def used_bytes(self) -> int:
        with self._lock:
            self._settle()
            return self.used

    def total_bytes(self) -> int:
        return self.total

    def free_bytes(self) -> int:
        return self.total - self.used_bytes()

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        with self._lock:
            self._settle()
            for queue, blocks in list(self._blocks.items()):
                if stream is None or queue is stream.queue:
                    kept = [block for block in blocks if block.free != [(0, block.size)]]
                    self.total -= sum(block.size for block in blocks) - sum(block.size for block in kept)
                    self._blocks[queue] = kept


class _Hooks(threading.local):
    def __init__(self) -> None:
        self.entered: dict[str, MemoryHook] = {}

    def call(self, name: str, **about: int) -> None:
        for hook in self.entered.values():
            getattr(hook, name)(device_id=current.device, **about)


_hooks = _Hooks()


class MemoryHook:
    """Like cupy.cuda.MemoryHook: told of the allocations and frees of its thread."""

    name = "MemoryHook"

    def __enter__(self) -> Self:
        if self.name in _hooks.entered:
            raise KeyError(f"memory hook {self.name} already exists")
        _hooks.entered[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _hooks.entered[self.name]

    def malloc_preprocess(self, **about: int) -> None:
        pass

    def malloc_postprocess(self, **about: int) -> None:
        pass

    def free_postprocess(self, **about: int) -> None:
        pass


POOL = MemoryPool()
allocators: list[Callable[[int], MemoryPointer]] = [POOL.malloc]


class _Inside(threading.local):
    allocator: Callable[[int], MemoryPointer] | None = None


_inside = _Inside()


def get_allocator() -> Callable[[int], MemoryPointer]:
    return _inside.allocator or allocators[0]


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    if _inside.allocator is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    allocators[0] = allocator or POOL.malloc


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    before, _inside.allocator = _inside.allocator, allocator or POOL.malloc
    try:
        yield
    finally:
        _inside.allocator = before


def allocate(nbytes: int) -> MemoryPointer:
    found = get_allocator()(nbytes)
    if not isinstance(found, MemoryPointer):
        raise TypeError(f"Cannot convert {type(found).__name__} to cupy.cuda.memory.MemoryPointer")
    return found


# -- of the host -----------------------------------------------------------------------------------------------------

#: Pinned memory by its address.
_pinned: list[tuple[int, np.ndarray]] = []


def pinned_at(start: int, nbytes: int) -> np.ndarray | None:
    """The block of pinned memory that holds a range; None if it is pageable."""
    with DOING:
        number = bisect.bisect_right(_pinned, start, key=lambda block: block[0]) - 1
        if number < 0:
            return None
        first, backing = _pinned[number]
        return backing if start + nbytes <= first + backing.size else None


def pinned_nbytes() -> int:
    """Bytes that are pinned, unused ones of the pool too."""
    with DOING:
        return sum(backing.size for _, backing in _pinned)


class PinnedMemory:
    """Like cupy.cuda.PinnedMemory: memory of no pool, freed with its last pointer."""

    #: Bytes of each allocation so far.
    allocated: list[int] = []

    def __init__(self, size: int, flags: int = 0):
        self.size = size
        self.ptr = 0
        if size > 0:
            backing = np.full(size, FREED, np.uint8)
            self.ptr = int(backing.ctypes.data)
            spend("hostAlloc", lambda costs: size * costs.host_alloc_s)
            with DOING:
                PinnedMemory.allocated.append(size)
                bisect.insort(_pinned, (self.ptr, backing), key=lambda block: block[0])

    def __del__(self) -> None:
        if self.ptr and _pinned:  # the interpreter's end makes None of names in modules
            with DOING:
                number = bisect.bisect_left(_pinned, self.ptr, key=lambda block: block[0])
                _pinned.pop(number)[1].fill(FREED)


class PooledPinnedMemory:
    """Like cupy.cuda.PooledPinnedMemory: it goes back to its pool at once, whatever work is under way with it."""

    def __init__(self, memory: PinnedMemory, pool: PinnedMemoryPool):
        self._pool = pool
        self.ptr, self.size = memory.ptr, memory.size

    def __del__(self) -> None:
        self._pool.free(self.ptr, self.size)


class PinnedMemoryPointer:
    """Like cupy.cuda.PinnedMemoryPointer, a buffer of signed bytes up to the end of some memory."""

    def __new__(cls, mem: PinnedMemory | PooledPinnedMemory, offset: int) -> Any:
        nbytes = mem.size - offset
        kind: Any = type("_Pointer", (ctypes.c_int8 * nbytes,), {"__class__": cls, "size": lambda _: nbytes})
        made = kind.from_address(mem.ptr + offset) if mem.size else kind()
        made.mem, made.ptr = mem, mem.ptr + offset
        return made


class PinnedMemoryPool:
    """Like cupy.cuda.PinnedMemoryPool: it rounds up to a power of two, and gives nothing back."""

    def __init__(self, allocator: Callable[[int], Any] | None = None):
        self._in_use: dict[int, PinnedMemory] = {}
        self._free: defaultdict[int, list[PinnedMemory]] = defaultdict(list)

    def malloc(self, size: int) -> Any:
        if size == 0:
            return PinnedMemoryPointer(PinnedMemory(0), 0)
        size = max(1 << (size - 1).bit_length(), 512)
        with DOING:
            free = self._free[size]
            memory = free.pop() if free else PinnedMemory(size)
            self._in_use[memory.ptr] = memory
        return PinnedMemoryPointer(PooledPinnedMemory(memory, self), 0)

    def free(self, ptr: int, size: int) -> None:
        np.frombuffer(bytes_at(ptr, size), np.uint8).fill(FREED)
        with DOING:
            self._free[size].append(self._in_use.pop(ptr))

    def free_all_blocks(self) -> None:
        with DOING:
            self._free.clear()

    def n_free_blocks(self) -> int:
        return sum(map(len, self._free.values()))


PINNED_POOL = PinnedMemoryPool()


def alloc_pinned_memory(size: int) -> Any:
    return PINNED_POOL.malloc(size)
