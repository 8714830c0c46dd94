"""Runs PTX: some warps of a launch, all their threads together, as one column of numbers for each register.

Theory of operation. Threads that are at the same instruction carry it out at once. Of several groups, the one that is
least far in the program goes first, so that groups meet again behind a branch, as the threads of a warp do. An
instruction is issued for each warp that has a thread in the group; this is what `Run.issues` counts. Threads at a
barrier wait until no other thread can go on, and then all threads of their block must be there.

Loads and stores go to `memory.Global` and `memory.Shared`, which check and log them.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tests.gpu.ptx.arithmetic import DTYPES, operation
from tests.gpu.ptx.memory import Fault, Global, Shared
from tests.gpu.ptx.program import Entry, Instruction

#: A run that takes more steps hangs.
_MAX_STEPS = 20_000_000
_WARP = 32

Triple = tuple[int, int, int]


class Grid(NamedTuple):
    """The shape of a launch: blocks, and threads of a block, along x, y and z."""

    blocks: Triple
    threads: Triple

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.threads
        return x * y * z


class Run(NamedTuple):
    """What warps did. issues: how often each instruction was issued for each warp. memory: its log, still in effect."""

    issues: np.ndarray
    memory: Global
    warps: np.ndarray


class _Column(NamedTuple):
    """Where the threads are: block and thread numbers along each axis, and the row of their warp and of their block."""

    tid: np.ndarray
    ctaid: np.ndarray
    number: np.ndarray
    warp: np.ndarray
    block: np.ndarray


def run(
    entry: Entry, grid: Grid, args: Sequence[int], warps: Sequence[int], memory: Global, *, checked: bool = True
) -> Run:
    """Run warps of a launch to their end; they are numbered block by block. With barriers, blocks must be whole.

    checked: whether threads may meet in shared memory at barriers only; else they may rely on the order within a warp.
    Raises: Fault for what a device would not do.
    """
    with np.errstate(all="ignore"):
        machine = _Machine(entry, grid, args, warps, memory)
        machine.shared.is_checked = checked
        machine.go()
    return Run(machine.issues, memory, np.asarray(warps))


class _Machine:
    def __init__(self, entry: Entry, grid: Grid, args: Sequence[int], warps: Sequence[int], memory: Global) -> None:
        self.entry, self.grid, self.memory = entry, grid, memory
        self.at = _threads(grid, warps)
        n = self.at.number.size
        self.registers = np.zeros((len(entry.registers), n), np.uint64)
        self.shared = Shared(int(self.at.block.max(initial=0)) + 1, entry.shared_nbytes)
        self.params = _packed(entry, args)
        self.issues = np.zeros((len(entry.instructions), len(warps)), np.int64)
        self._groups: dict[int, np.ndarray] = {0: np.arange(n)}
        self._waiting: list[tuple[int, np.ndarray]] = []
        self._live = np.ones(n, bool)
        self._steps = _steps(entry)

    def go(self) -> None:
        steps = 0
        while self._groups or self._waiting:
            if not self._groups:
                self._meet()
            pc = min(self._groups)
            threads = self._groups.pop(pc)
            while threads.size:
                threads, pc = self._execute(pc, threads)
                steps += 1
                if steps > _MAX_STEPS:
                    raise Fault(f"{self.entry.name} does not end")
                if threads.size and pc in self._groups:
                    self._join(pc, threads)
                    break

    def _execute(self, pc: int, threads: np.ndarray) -> tuple[np.ndarray, int]:
        """Carry out one instruction. Returns: the threads that go straight on, and where."""
        one = self.entry.instructions[pc]
        self.issues[pc, self.at.warp[threads]] += 1  # once for each warp, however many of its threads are here
        active, rest = threads, threads[:0]
        if one.guard:
            register, negated = one.guard
            holds = (self.registers[self.entry.registers[register], threads] != 0) != negated
            active, rest = threads[holds], threads[~holds]
        match one.parts[0]:
            case "bra":
                self._join(self.entry.labels[one.operands[-1]], active)
                # The group that is behind goes first.
                self._join(pc + 1, rest)
                return rest[:0], pc
            case "ret" | "exit":
                self._live[active] = False
                return rest, pc + 1
            case "bar" | "barrier" if "warp" not in one.parts:
                if active.size:
                    self._waiting.append((pc, active))
                return rest, pc + 1
        if active.size:
            try:
                self._steps[pc](self, active)
            except (Fault, ZeroDivisionError) as error:
                raise Fault(f"{self.entry.name}: {one.text}: {str(error) or 'division by zero'}") from error
        return threads, pc + 1

    def _join(self, pc: int, threads: np.ndarray) -> None:
        if threads.size:
            others = self._groups.get(pc)
            self._groups[pc] = threads if others is None else np.sort(np.concatenate([others, threads]))

    def _meet(self) -> None:
        """Let the threads of each block pass the barrier where all of them are."""
        for block in np.unique(np.concatenate([self.at.block[threads] for _, threads in self._waiting])):
            here = {pc for pc, threads in self._waiting if (self.at.block[threads] == block).any()}
            n = sum(int((self.at.block[threads] == block).sum()) for _, threads in self._waiting)
            if len(here) > 1 or n != int((self._live & (self.at.block == block)).sum()):
                raise Fault(f"{self.entry.name}: the threads of a block wait at different barriers, or for ever")
            self.shared.synchronize(int(block))
        for pc, threads in self._waiting:
            self._join(pc + 1, threads)
        self._waiting = []


@cache
def _steps(entry: Entry) -> "list[_Step]":
    return [_step(entry, one) for one in entry.instructions]


def _threads(grid: Grid, warps: Sequence[int]) -> _Column:
    per_block = -(-grid.block_threads // _WARP)
    number = (np.asarray(warps)[:, None] % per_block * _WARP + np.arange(_WARP)).reshape(-1)
    block = np.repeat(np.asarray(warps) // per_block, _WARP)
    row = np.repeat(np.arange(len(warps)), _WARP)
    inside = number < grid.block_threads
    number, block, row = number[inside], block[inside], row[inside]

    def along(values: np.ndarray, shape: Triple) -> np.ndarray:
        return np.stack([values % shape[0], values // shape[0] % shape[1], values // shape[0] // shape[1]])

    return _Column(
        along(number, grid.threads),
        along(block, grid.blocks),
        block * grid.block_threads + number,
        row,
        np.unique(block, return_inverse=True)[1],
    )


def _packed(entry: Entry, args: Sequence[int]) -> bytes:
    if len(args) != len(entry.params):
        raise TypeError(f"{entry.name} takes {len(entry.params)} arguments, got {len(args)}")
    size = max((offset + nbytes for offset, nbytes in entry.params.values()), default=0)
    packed = bytearray(size)
    for value, (offset, nbytes) in zip(args, entry.params.values(), strict=True):
        packed[offset : offset + nbytes] = (int(value) & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
    return bytes(packed)


# -- instructions: each becomes a function of the machine and the threads that carry it out ----------------------------

_Step = Callable[[_Machine, np.ndarray], None]
_Read = Callable[[_Machine, np.ndarray], Any]
_SPECIAL = re.compile(r"%(tid|ctaid|ntid|nctaid|laneid)(?:\.([xyz]))?")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def _step(entry: Entry, one: Instruction) -> _Step:
    match one.parts[0]:
        case "bra" | "ret" | "exit" | "bar" | "barrier" | "membar" | "fence" | "pragma":
            return lambda machine, threads: None
        case "ld" if "param" in one.parts:
            return _load_param(entry, one)
        case "ld" | "st":
            return (_load if one.parts[0] == "ld" else _store)(entry, one)
        case "atom" | "red":
            return _atomic(entry, one)
        case "mov" | "cvta":
            return _move(entry, one)
        case "shfl":
            return _exchange(entry, one)
        case "vote":
            return _vote(entry, one)
    how = operation(one)
    reads = [_read(entry, operand, kind) for operand, kind in zip(one.operands[1:], how.sources, strict=True)]
    target = entry.registers[one.operands[0]]
    function, dtype = how.function, DTYPES[how.result]

    def step(machine: _Machine, threads: np.ndarray) -> None:
        result = function(*(read(machine, threads) for read in reads))
        machine.registers[target, threads] = _as_bits(np.asarray(result), dtype)

    return step


def _as_bits(value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers as registers hold them. Signed ones are extended."""
    if dtype.kind == "f":
        return value.astype(dtype, copy=False).view(f"u{dtype.itemsize}").astype(np.uint64)
    return value.astype(dtype, copy=False).astype(np.uint64)


def _read(entry: Entry, operand: str, kind: str) -> _Read:
    """The value of an operand for every thread, or of a constant once."""
    dtype = DTYPES[kind]
    if operand in entry.registers:
        row = entry.registers[operand]
        if dtype.kind == "f":
            bits = np.dtype(f"u{dtype.itemsize}")
            return lambda machine, threads: machine.registers[row, threads].astype(bits).view(dtype)
        return lambda machine, threads: machine.registers[row, threads].astype(dtype)
    if special := _SPECIAL.fullmatch(operand):
        return _read_special(special[1], "xyz".index(special[2] or "x"), dtype)
    constant = np.full(1, _constant(entry, operand), np.uint64)
    fixed = constant.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind == "f" else constant.astype(dtype)
    return lambda machine, threads: fixed


def _read_each(entry: Entry, operand: str, kind: str) -> _Read:
    """The value of an operand for every thread, of a constant too."""
    read = _read(entry, operand, kind)
    if operand in entry.registers:
        return read
    return lambda machine, threads: np.broadcast_to(read(machine, threads), threads.shape)


def _constant(entry: Entry, operand: str) -> int:
    if operand in entry.shared:
        return entry.shared[operand]
    if operand[:2] in ("0f", "0F", "0d", "0D"):
        return int(f"0x{operand[2:]}", 0)
    try:
        return int(operand.removesuffix("U"), 0) & (1 << 64) - 1
    except ValueError:
        raise NotImplementedError(f"{entry.name}: operand {operand}") from None


def _read_special(name: str, axis: int, dtype: np.dtype[Any]) -> _Read:
    match name:
        case "tid":
            return lambda machine, threads: machine.at.tid[axis, threads].astype(dtype)
        case "ctaid":
            return lambda machine, threads: machine.at.ctaid[axis, threads].astype(dtype)
        case "laneid":
            return lambda machine, threads: (machine.at.number[threads] % _WARP).astype(dtype)
    field = "threads" if name == "ntid" else "blocks"
    return lambda machine, threads: np.full(threads.shape, getattr(machine.grid, field)[axis], dtype)


def _vector(operand: str) -> list[str]:
    return [one.strip() for one in operand.strip("{}").split(",")]


def _address(entry: Entry, operand: str) -> _Read:
    found = _ADDRESS.fullmatch(operand)
    if not found:
        raise NotImplementedError(f"{entry.name}: address {operand}")
    base, offset = _read_each(entry, found[1], "s64"), int(found[2] or "0", 0)
    return lambda machine, threads: base(machine, threads) + offset


def _move(entry: Entry, one: Instruction) -> _Step:
    """mov and cvta; several registers are packed into one, or one is taken apart."""
    target, source = one.operands
    dtype = DTYPES[one.parts[-1]]
    if target.startswith("{"):
        part = np.dtype(f"u{dtype.itemsize // len(_vector(target))}")
        rows = [entry.registers.get(name) for name in _vector(target)]
        read = _read(entry, source, f"u{8 * dtype.itemsize}")

        def take_apart(machine: _Machine, threads: np.ndarray) -> None:
            parts = read(machine, threads).reshape(-1, 1).view(part)
            for k, row in enumerate(rows):
                if row is not None:  # "_" takes nothing
                    machine.registers[row, threads] = parts[:, k]

        return take_apart
    row = entry.registers[target]
    if source.startswith("{"):
        bits = 8 * dtype.itemsize // len(_vector(source))
        reads = [_read(entry, name, f"u{bits}") for name in _vector(source)]

        def pack(machine: _Machine, threads: np.ndarray) -> None:
            machine.registers[row, threads] = sum(
                read(machine, threads).astype(np.uint64) << np.uint64(bits * k) for k, read in enumerate(reads)
            )

        return pack
    read = _read(entry, source, one.parts[-1])

    def move(machine: _Machine, threads: np.ndarray) -> None:
        machine.registers[row, threads] = _as_bits(read(machine, threads), dtype)

    return move


def _load_param(entry: Entry, one: Instruction) -> _Step:
    found = _ADDRESS.fullmatch(one.operands[1])
    if not found:
        raise NotImplementedError(one.text)
    start, size = entry.params[found[1]][0] + int(found[2] or "0", 0), DTYPES[one.parts[-1]].itemsize
    rows = [entry.registers[name] for name in _vector(one.operands[0])]

    def load(machine: _Machine, threads: np.ndarray) -> None:
        for k, row in enumerate(rows):
            raw = machine.params[start + k * size : start + (k + 1) * size]
            machine.registers[row, threads] = int.from_bytes(raw, "little")

    return load


def _load(entry: Entry, one: Instruction) -> _Step:
    _check_space(one)
    dtype = DTYPES[one.parts[-1]]
    rows = [entry.registers[name] for name in _vector(one.operands[0])]
    address, is_shared = _address(entry, one.operands[1]), "shared" in one.parts

    def load(machine: _Machine, threads: np.ndarray) -> None:
        where = address(machine, threads), dtype.itemsize, len(rows), machine.at.number[threads]
        blocks = machine.at.block[threads]
        values = machine.shared.load(blocks, *where) if is_shared else machine.memory.load(*where)
        for row, value in zip(rows, values, strict=True):
            signed = value.view(dtype) if dtype.kind == "i" else value
            machine.registers[row, threads] = signed.astype(np.uint64)

    return load


def _store(entry: Entry, one: Instruction) -> _Step:
    _check_space(one)
    kind = one.parts[-1]
    size = DTYPES[kind].itemsize
    address, is_shared = _address(entry, one.operands[0]), "shared" in one.parts
    reads = [_read_each(entry, name, f"u{8 * size}") for name in _vector(one.operands[1])]

    def store(machine: _Machine, threads: np.ndarray) -> None:
        places, numbers = address(machine, threads), machine.at.number[threads]
        values = [read(machine, threads) for read in reads]
        if is_shared:
            machine.shared.store(machine.at.block[threads], places, values, size, numbers)
        else:
            machine.memory.store(places, values, size, numbers)

    return store


def _check_space(one: Instruction) -> None:
    if {"local", "const", "cluster"} & set(one.parts):
        raise NotImplementedError(f"{one.text}: kernels keep everything in registers")


_ATOMIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
}


def _atomic(entry: Entry, one: Instruction) -> _Step:
    """atom and red on global memory: the threads one after the other."""
    name = next((part for part in one.parts if part in _ATOMIC), None)
    if name is None or "shared" in one.parts or one.parts[-1][0] == "f":
        raise NotImplementedError(one.text)
    dtype, function = DTYPES[one.parts[-1]], _ATOMIC[name]
    operands = one.operands if one.parts[0] == "red" else one.operands[1:]
    row = None if one.parts[0] == "red" else entry.registers.get(one.operands[0])
    address, reads = _address(entry, operands[0]), [_read_each(entry, o, one.parts[-1]) for o in operands[1:]]

    def change(machine: _Machine, threads: np.ndarray) -> None:
        view, index = machine.memory.atomic(address(machine, threads), dtype.itemsize, machine.at.number[threads])
        values = [read(machine, threads) for read in reads]
        for k, thread in enumerate(threads):
            old = view[index[k : k + 1]].view(dtype)
            view[index[k]] = function(old, *(v[k : k + 1] for v in values)).view(view.dtype)[0]
            if row is not None:
                machine.registers[row, thread] = old.astype(np.uint64)[0]

    return change


def _lanes(machine: _Machine, threads: np.ndarray) -> dict[tuple[int, int], int]:
    """Which thread is where: (row of the warp, lane) -> thread."""
    pairs = zip(machine.at.warp[threads].tolist(), (machine.at.number[threads] % _WARP).tolist(), strict=True)
    return dict(zip(pairs, threads.tolist(), strict=True))


def _exchange(entry: Entry, one: Instruction) -> _Step:
    """shfl.sync: a value of another lane. All lanes that are named must be there."""
    mode = one.parts[2]
    target, _, hit = one.operands[0].partition("|")
    row, hits = entry.registers[target], entry.registers.get(hit)
    reads = [_read_each(entry, operand, "u32") for operand in one.operands[1:]]

    def exchange(machine: _Machine, threads: np.ndarray) -> None:
        value, by, clamp, mask = (read(machine, threads) for read in reads)
        there, values = _lanes(machine, threads), dict(zip(threads.tolist(), value.tolist(), strict=True))
        result = []
        for k, ((warp, lane), thread) in enumerate(there.items()):
            _check_mask(there, warp, int(mask[k]))
            segment, limit = int(clamp[k]) >> 8 & 31, int(clamp[k]) & 31
            low, high = lane & segment, (lane & segment) | (limit & ~segment & 31)
            other = {
                "up": lane - int(by[k]),
                "down": lane + int(by[k]),
                "bfly": lane ^ int(by[k]),
                "idx": low | (int(by[k]) & ~segment & 31),
            }[mode]
            fits = other >= high if mode == "up" else other <= high
            result.append((values[there[warp, other]] if fits else values[thread], fits))
        machine.registers[row, threads] = [v for v, _ in result]
        if hits is not None:
            machine.registers[hits, threads] = [f for _, f in result]

    return exchange


def _check_mask(there: dict[tuple[int, int], int], warp: int, mask: int) -> None:
    if any(mask >> lane & 1 and (warp, lane) not in there for lane in range(_WARP)):
        raise Fault("a lane of the mask is elsewhere")


def _vote(entry: Entry, one: Instruction) -> _Step:
    """vote.sync: a question to all lanes of a warp."""
    mode, row = one.parts[2], entry.registers[one.operands[0]]
    read, mask = _read_each(entry, one.operands[1].lstrip("!"), "pred"), _read_each(entry, one.operands[2], "u32")
    negated = one.operands[1].startswith("!")

    def vote(machine: _Machine, threads: np.ndarray) -> None:
        said = read(machine, threads) != negated
        lanes, warps, named = machine.at.number[threads] % _WARP, machine.at.warp[threads], mask(machine, threads)
        there = _lanes(machine, threads)
        for warp in np.unique(warps):
            mine = warps == warp
            _check_mask(there, int(warp), int(named[mine][0]))
            ballot = int(np.sum(1 << lanes[mine][said[mine]]))
            answer = {"ballot": ballot, "any": int(said[mine].any()), "all": int(said[mine].all())}[mode]
            machine.registers[row, threads[mine]] = answer

    return vote
