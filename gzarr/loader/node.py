"""One pool of samples for the ranks of a host: which memory they share, and who decodes what into it.

Theory of operation. Ranks have the same order, so each can work out what all of them want. Batch ``k`` of all ranks of
the host is one large batch, and every rank runs the same planner over these: it says which chunks are opened when, and
which slot of the memory each sample goes to. So there is nothing to agree upon but progress. A step of the plan is cut
into units, as many as there are ranks; whoever comes first claims one, decodes its chunks, and says that it is done. A
batch is copied out of the memory once all units of its step are done. The slots that a plan frees are those of the step
``window`` steps before; they are written to once every rank has copied its batches of that step (`NodeTurn.release`).

An iteration is a *turn*, told by a key of everything that the plan depends on. A rank joins it as long as no slot has
been used again, and a new turn begins when nobody is in the last one.

Rules.

1. Words in the memory change under a file lock, which the system releases if its holder dies. A death between any two
   stores of a change leaves a valid state: a step is open once its tag is written, a unit done once its claim says so.
2. A unit that a dead rank has claimed is claimed again. All of its slots are written again.
3. A rank is never waited for in vain, nor is the lock, which a process that was stopped may have. The dead are passed
   by. One that does not come, or does not go on while the caller of another has waited for `PATIENCE_S`, is expelled if
   it has claimed nothing. It notices that before it writes, and after it has copied a batch, which it then drops.
   Whoever is expelled, or cannot join, reads alone until its iteration ends (`TurnOverError`): the same batches, with a
   share of the memory.
4. Each step has a checksum of its plan. Ranks whose plans differ, as they may with a sampler, raise an error.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from gzarr.loader.node_memory import LocalRanks, NodeMemory, started
from gzarr.loader.stats import Meter

#: Seconds that the caller of a rank waits for others that are alive before it does without them.
PATIENCE_S = 10.0
#: The same for others to end an iteration that is not this one: they do at once, or are in the midst of it.
JOIN_S = 1.0
#: Seconds between two looks at shared words while waiting, and at processes.
_POLL_S, _LOOK_S = 0.001, 0.25
#: Whose environment tells which ranks are on this host, and what tells jobs apart: torchrun and Open MPI.
_LOCAL = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE"),
    tuple(f"OMPI_COMM_WORLD_{name}" for name in ("LOCAL_RANK", "LOCAL_SIZE", "RANK", "SIZE")),
)
_JOB = (
    *("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"),
    *("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"),
)
_FREE, _DONE = 0, -1
_LEFT, _RUNNING, _EXPELLED = 0, 1, 2


class TurnOverError(Exception):
    """A rank has to go on alone: never seen by users."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """How the ranks of a host share one pool of samples: ``share=`` of a `gzarr.Loader`.

    Parameters
    ----------
    ranks : sequence of int, optional
        The ranks on this host. By default those that torchrun or Open MPI tells, if they number processes as the loader
        does; without a launcher, all.
    on_exit : {"continue", "raise"}
        What the others do when the process of a rank has died: go on without it, or raise RuntimeError.

    Raises
    ------
    ValueError
        If ``on_exit`` is malformed.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> share = gzarr.NodePool(ranks=[0], on_exit="raise")
    >>> loader = gzarr.Loader(gzarr.array(np.arange(6), chunks=2), 3, rank=0, world_size=1, share=share)
    >>> [batch.tolist() for batch in loader]
    [[0, 1, 2], [3, 4, 5]]
    """

    ranks: Sequence[int] | None = None
    on_exit: Literal["continue", "raise"] = "continue"

    def __post_init__(self) -> None:
        if self.on_exit not in ("continue", "raise"):
            raise ValueError(f"on_exit must be 'continue' or 'raise', got {self.on_exit!r}")


def parse_share(share: Any, rank: int, world_size: int, device: str) -> LocalRanks | None:
    """Which ranks share a pool; None for one alone. Raises: TypeError, ValueError.

    By default they do where the launcher tells that several are here, and batches are on the CPU.
    """
    if not (share is None or share in ("node", "none") or isinstance(share, NodePool)):
        raise ValueError(f"share must be 'node', 'none' or a gzarr.NodePool, got {share!r:.100}")
    told = _told_ranks(rank, world_size)
    is_usual = sys.platform == "linux" and device == "cpu" and len(told or ()) > 1
    if share == "none" or (share is None and not is_usual):
        return None
    if sys.platform != "linux":
        raise ValueError(f"share={share!r} needs memfd_create and /proc of Linux: leave it out on {sys.platform}")
    given = share.ranks if isinstance(share, NodePool) else None
    if given is None and told == ():
        raise ValueError(
            f"share: rank={rank} of world_size={world_size} is not what the launcher calls this process: "
            "say which ranks are on this host, share=gzarr.NodePool(ranks=[...])"
        )
    ranks = tuple(sorted({int(r) for r in given})) if given is not None else told or tuple(range(world_size))
    if rank not in ranks or not 0 <= ranks[0] <= ranks[-1] < world_size:
        raise ValueError(f"share: rank={rank} of world_size={world_size} is not among the ranks of this host, {ranks}")
    strict = isinstance(share, NodePool) and share.on_exit == "raise"
    return LocalRanks(ranks, ranks.index(rank), strict, share is not None)


def _told_ranks(rank: int, world_size: int) -> tuple[int, ...] | None:
    """The ranks of this host; None if the environment tells nothing; none if it tells of others than the loader's.

    So it does where the ranks of a loader are groups of processes, which want the same samples. Launchers place ranks
    one host after the other, unless asked otherwise: then most of them see numbers that do not fit.
    """
    if world_size == 1:
        return (0,)
    for names in _LOCAL:
        if all(name in os.environ for name in names):
            own, size, *job = (int(os.environ[name]) for name in names)
            first = rank - own
            fits = job == [rank, world_size] and first >= 0 and first % size == 0 and first + size <= world_size
            return tuple(range(first, first + size)) if fits else ()
    return None


def job_name() -> str:
    """What the ranks of a job have in common."""
    told = [os.environ.get(name, "") for name in _JOB]
    return "|".join(told) if any(told) else f"child of {os.getppid()}"


class NodeTurn:
    """One iteration of the ranks of a host over their shared memory, as one of them sees it.

    Parameters
    ----------
    memory : NodeMemory
        The memory.
    key : int
        What the plan depends on.
    meter : Meter
        Tells how long the caller has waited.
    """

    def __init__(self, memory: NodeMemory, key: int, meter: Meter) -> None:
        self.memory, self._key, self._meter = memory, key, meter
        self._record = memory.records[memory.local.me]
        self._stopped = self._is_stuck = False
        self._looks: dict[tuple[int, int], tuple[float, bool]] = {}
        self._late: dict[int, tuple[list[int], float]] = {}
        self._wait(self._join)
        self._place = int(self._record[5])

    def end(self) -> None:
        """Leave the turn, once nothing of it is being written any more."""
        self.memory.over = self._place
        if not self._is_stuck:
            with suppress(TurnOverError), self._locked():
                if self._is_mine():
                    self._record[4] = _LEFT

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self.memory.locked(PATIENCE_S):
                yield
        except TimeoutError as error:  # of a process that was stopped
            self._is_stuck = True
            raise TurnOverError(str(error)) from error

    def stop(self) -> None:
        """Let `fill` end, in other threads."""
        self._stopped = True

    def check(self) -> None:
        """Raise TurnOverError unless this rank is still waited for: what it has copied out of the memory is good."""
        with self._locked():
            self._check()

    def release(self, step: int) -> None:
        """Say that all batches of a step were copied out of the memory."""
        with self._locked():
            self._check()
            self._record[3] = step + 1

    def fill(
        self, step: int, checksum: int, prepare: Callable[[], object], units: Sequence[Callable[[], object]]
    ) -> list[int]:
        """Carry out units of a step that nobody else has, and wait for the others.

        Parameters
        ----------
        step : int
            Its number.
        checksum : int
            Of its plan.
        prepare : callable
            Called once, by the first rank, before any unit.
        units : sequence of callable
            As many as there are ranks.

        Returns
        -------
        list of int
            The units that this rank has carried out.

        Raises
        ------
        TurnOverError
            If the rank has to go on alone.
        RuntimeError
            If plans differ, or another rank has died and that is an error.
        """
        done: list[int] = []
        entry = self.memory.ring[step % self.memory.window]
        self._wait(lambda: self._open(entry, step, checksum, prepare))
        while True:
            unit = self._wait(lambda: self._claim(entry))
            if unit == len(units):
                return done
            try:
                units[unit]()
            except BaseException:
                with self._locked():
                    entry[2 + unit] = _FREE
                raise
            with self._locked():
                entry[2 + unit] = _DONE
            done.append(unit)

    # -- what follows runs under the lock ------------------------------------------------------------------------

    def _join(self) -> int | None:
        """Join the turn of the key, or begin it if nobody is in another one."""
        memory, (pid, start, number, _, state, place) = self.memory, self._record.tolist()
        if state == _RUNNING and number == memory.head[0]:
            if pid and place != memory.over and started(pid) == start:
                raise TurnOverError("another loader has the place of this rank")
            self._record[4] = _LEFT
        inside = [rank for rank in range(len(memory.records)) if self._is_inside(rank)]
        is_intact = memory.head[1] == self._key and memory.head[2] <= memory.window
        if not (is_intact and (inside or number != memory.head[0])):
            if inside:
                if self._meter.waited_s() > JOIN_S:
                    raise TurnOverError("others are in the midst of another iteration")
                return None
            memory.ring[:] = 0
            memory.head[2] = 0
            memory.head[1] = self._key
            memory.head[0] += 1
        for claims in memory.ring[:, 2:]:
            claims[claims == memory.local.me + 1] = _FREE  # those of a process that has died
        self._record[4] = _LEFT
        memory.head[3] += 1
        self._record[:4] = os.getpid(), started(os.getpid()), memory.head[0], 0
        self._record[5] = memory.head[3]
        self._record[4] = _RUNNING
        return 1

    def _open(self, entry: Any, step: int, checksum: int, prepare: Callable[[], object]) -> int | None:
        """Begin a step, if its slots are free and nobody has begun it."""
        self._check()
        memory = self.memory
        if entry[0] != step + 1:
            needed = step - memory.window + 1
            late = [rank for rank in range(len(memory.records)) if self._released(rank) < needed]
            if late:
                self._expel_if_late(late)
                return None
            memory.head[2] = max(memory.head[2], step + 1)  # readers of this rank may overtake each other
            entry[0] = 0
            prepare()
            entry[1], entry[2:] = checksum, _FREE
            entry[0] = step + 1
        if entry[1] != checksum:
            raise RuntimeError(
                "ranks of this host have different orders of samples: give all of them one sampler, or share='none'"
            )
        return 1

    def _claim(self, entry: Any) -> int | None:
        """A unit to be carried out, this rank's own first; their number if all are done; None to wait."""
        self._check()
        claims: list[int] = entry[2:].tolist()
        me = self.memory.local.me
        for unit in [*range(me, len(claims)), *range(me)]:
            rank = claims[unit] - 1
            if claims[unit] != _DONE and (claims[unit] == _FREE or not self._is_inside(rank)):
                entry[2 + unit] = me + 1
                return int(unit)
        if all(claim == _DONE for claim in claims):
            return len(claims)
        if self._meter.waited_s() > 6 * PATIENCE_S:
            raise TurnOverError("a rank takes long to decode its part")
        return None

    def _is_mine(self) -> bool:
        return bool(self._record[5] == self._place and self._record[4] == _RUNNING)

    def _check(self) -> None:
        if self._stopped or not self._is_mine():
            raise TurnOverError("the rank was expelled")

    def _is_alive(self, rank: int) -> bool:
        """Whether the process that a rank was last is there. Raises: RuntimeError if its death is an error."""
        pid, start = self.memory.records[rank, :2].tolist()
        looked, alive = self._looks.get((pid, start), (-_LOOK_S, False))
        if time.monotonic() - looked > _LOOK_S:
            alive = pid != 0 and started(pid) == start
            self._looks[pid, start] = time.monotonic(), alive
            if pid and not alive and self.memory.local.strict and self.memory.records[rank, 4] == _RUNNING:
                raise RuntimeError(
                    f"rank {self.memory.local.ranks[rank]}, process {pid}, has died; go on without it with "
                    "share=gzarr.NodePool(on_exit='continue'), or start the job again from its last state"
                )
        return alive

    def _is_inside(self, rank: int) -> bool:
        """Whether a rank is in the turn that is under way."""
        record, head = self.memory.records[rank], self.memory.head
        return bool(record[4] == _RUNNING and record[2] == head[0]) and self._is_alive(rank)

    def _released(self, rank: int) -> float:
        """How many steps a rank has released; infinitely many if nobody has to wait for it."""
        record, head = self.memory.records[rank], self.memory.head
        if self._is_inside(rank):
            return int(record[3])
        is_coming = record[2] != head[0] and record[4] != _EXPELLED and (record[0] == 0 or self._is_alive(rank))
        return 0 if is_coming else float("inf")

    def _expel_if_late(self, ranks: Sequence[int]) -> None:
        """Do without ranks that have not gone on while the caller waited. Raises: TurnOverError if one is writing."""
        now = time.monotonic()
        for rank in ranks:
            record = self.memory.records[rank]
            place, since = self._late.setdefault(rank, (record.tolist(), now))
            if place != record.tolist():
                self._late[rank] = record.tolist(), now
            elif min(now - since, self._meter.waited_s()) > PATIENCE_S:
                if (self.memory.ring[:, 2:] == rank + 1).any():
                    raise TurnOverError("another rank does not go on")
                record[2] = self.memory.head[0]
                record[4] = _EXPELLED

    def _wait(self, condition: Callable[[], int | None]) -> int:
        """Ask until there is an answer."""
        while True:
            if self._stopped:
                raise TurnOverError("the iteration has ended")
            with self._locked():
                answer = condition()
            if answer is not None:
                return answer
            time.sleep(_POLL_S)
