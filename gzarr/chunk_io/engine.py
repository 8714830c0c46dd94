"""Carries out reads and writes of selections: cuts plans into waves, or lets compiled code do them in pieces.

Theory of operation. The backend says how many decoded bytes a wave may hold, and runs several waves at once where that
pays; `gzarr.chunk_io.waves` does a wave. A backend may have compiled code that takes a job and does it in pieces
(`Compiled`, `PieceJob`); what that leaves is done in waves, the reference path. Every wave or piece of a write has
objects of its own, so they never meet. The waves and pieces of several reads, or of several writes, run together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import call
from typing import Any, TypeAlias, TypeVar, cast

from gzarr.backend import Array, Backend, PieceJob, Work
from gzarr.chunk_io.array_io import ArrayIO, Wave
from gzarr.chunk_io.profiled_backend import ProfiledBackend
from gzarr.chunk_io.waves import ReadJob, WriteJob, read_wave, write_wave
from gzarr.indexing.copies import CopyPlan, Plan
from gzarr.profiling.recorder import Recorder, recorder_for, stage
from gzarr.storage.invalidation import announce
from gzarr.storage.locks import while_locked

T = TypeVar("T")
Job = TypeVar("Job", ReadJob, WriteJob)

#: Decoded bytes of a wave where a store takes many requests at once: what waiting for a server costs is shared by the
#: requests of a wave, and the cache that smaller waves are made for is of no use to it.
WAITING_WAVE_NBYTES = 1 << 24
#: Decoded bytes of all waves that are under way at once there. A connection brings 50 to 100 MB/s, so the shards of 16
#: MiB that fit keep a network of 10 Gbit/s busy; what is written is encoded meanwhile, which takes longer.
READING_NBYTES, WRITING_NBYTES = 1 << 28, 7 << 23
#: The same for objects so large that each is a wave: a connection takes long for one of them.
_WRITING_LARGE_NBYTES = 1 << 27
#: Waves of a short read there, so that one is decoded while others come, and of what is written at once.
_WAITING_WAVES = 4
#: Chunks of so many bytes take long enough to decode for that.
PARALLEL_NBYTES = 1 << 18

#: One stored object: as many of them at once as a server takes, which is more than there are threads.
_SINGLE = Work(1, 0, 1, at_once=64)

#: Arguments of `Backend.run`: a task, the waves or pieces that it is done with, and how much there is to do.
Run: TypeAlias = tuple[Callable[[Any], None], Iterable[Any], Work]


def read(jobs: Sequence[ReadJob]) -> None:
    """Carry out reads, all at once. Raises: ChunkError for damaged chunks, StoreError."""
    if len(jobs) > 1:
        _read_together(jobs)
        return
    for job in jobs:
        nparts = job.plan.nparts
        pieces = _take_read(job, nparts)
        if pieces is None:
            job.io.backend.run(*_in_waves(job, read_wave, "locate", nparts, job.out))
        else:
            job.io.backend.run(*_in_pieces(job, pieces, read_wave, "locate"))
            for run in _rest(job, pieces):
                job.io.backend.run(*run)


def write(jobs: Sequence[WriteJob]) -> None:
    """Carry out writes, all at once. Objects written before a failure stay written; each is replaced whole or not.

    Elements that several jobs write get the value of one of them. The caller has asked whether the stores are writable.

    Raises: ChunkError for damaged old chunks or values that a codec refuses, StoreError.
    """
    runs: list[tuple[WriteJob, Run]] = []
    for job in jobs:
        io, nparts = job.io, job.plan.nparts
        taken: PieceJob | str = ""
        if io.compiled is not None and job.check is None:
            taken = io.compiled.take_write(job.plan, nparts, job.value, job.fields, keep_empty=job.write_empty)
        if isinstance(taken, str):
            runs.append((job, _in_waves(job, write_wave, "build", nparts, job.value)))
        else:
            runs.append((job, _in_pieces(job, taken, write_wave, "build")))
    if len(runs) > 1:
        _run_all(runs)
        return
    for job, run in runs:
        job.io.backend.run(*run)


def _read_together(jobs: Sequence[ReadJob]) -> None:
    taken = [(job, job.plan.nparts, _take_read(job, job.plan.nparts)) for job in jobs]
    _run_all(
        (
            job,
            _in_waves(job, read_wave, "locate", nparts, job.out)
            if pieces is None
            else _in_pieces(job, pieces, read_wave, "locate"),
        )
        for job, nparts, pieces in taken
    )
    _run_all((job, run) for job, _, pieces in taken if pieces is not None for run in _rest(job, pieces))


def _run_all(runs: Iterable[tuple[Job, Run]]) -> None:
    """Run every job, all jobs of one backend together."""
    by_backend: dict[int, list[tuple[Job, Run]]] = {}
    for job, run in runs:
        by_backend.setdefault(id(job.io.backend), []).append((job, run))
    for members in by_backend.values():
        calls = (partial(task, item) for _, (task, items, _) in members for item in items)
        requests = max(job.io.store.concurrency for job, _ in members)
        work = _sum([work for _, (_, _, work) in members], requests)
        most = READING_NBYTES // max(job.io.chunk_nbytes for job, _ in members)
        members[0][0].io.backend.run(call, calls, work._replace(at_once=max(min(work.at_once, most), 1)))


def _sum(works: Sequence[Work], requests: int) -> Work:
    """How much there is to do in all. requests: that the store takes at once."""
    nchunks, known = sum(work.nchunks for work in works), all(work.chunk_s for work in works)
    return Work(
        nchunks=nchunks,
        part_nbytes=sum(work.nchunks * work.part_nbytes for work in works) // max(nchunks, 1),
        wave_nchunks=max(work.wave_nchunks for work in works),
        unlocked=all(work.unlocked for work in works),
        waits=requests > 1,
        chunk_s=sum(work.nchunks * work.chunk_s for work in works) / max(nchunks, 1) if known else 0.0,
        at_once=min(max(work.at_once for work in works), requests),
    )


def _take_read(job: ReadJob, nparts: int) -> PieceJob | None:
    """Return the read in pieces, if compiled code does it."""
    compiled = job.io.compiled
    taken = "" if compiled is None else compiled.take_read(job.plan, nparts, job.out, job.fields)
    return None if isinstance(taken, str) else taken


def _in_waves(job: Job, do_wave: Callable[[Job, Wave], None], first: str, nparts: int, value: Array) -> Run:
    """A job in waves. first: the stage that a wave begins with. value: what is read into, or written."""
    recorder = recorder_for(job.io.backend.device)
    return _task(do_wave, job, recorder, first), *_waves_and_work(job, nparts, value)


def _in_pieces(job: Job, pieces: PieceJob, do_wave: Callable[[Job, Wave], None], first: str) -> Run:
    """A job in pieces. do_wave, first: as in `_in_waves`, for what is left of a piece."""
    recorder = recorder_for(job.io.backend.device)
    task = _task(partial(_do_piece, pieces, do_wave, first), job, recorder, pieces.stage)
    return task, pieces.pieces, pieces.work


def _rest(job: ReadJob, pieces: PieceJob) -> Iterator[Run]:
    """Yield the rest of a read whose pieces are all done, if there is any."""
    again = pieces.again()
    if again is not None:
        task = _task(read_wave, job, recorder_for(job.io.backend.device), "locate")
        yield task, ([group] for group in again), pieces.work


def _do_piece(pieces: PieceJob, task: Callable[[Job, Wave], None], first: str, job: Job, piece: Any) -> None:
    store, keys = job.io.store, pieces.keys(piece)
    if keys:
        try:
            left = while_locked(store.locked(keys, pieces.merged(piece, keys)), lambda: pieces.do(piece, keys))
        finally:
            announce(lambda: [store.lock_name(key) for key in keys])
    else:
        left = pieces.do(piece, keys)
    if left:
        with stage(first):
            task(job, left)


def _task(task: Callable[[Job, T], None], job: Job, recorder: Recorder | None, first: str) -> Callable[[T], None]:
    """The task of a job, for each of its waves or pieces.

    recorder: of the profile, if there is one. first: the stage that a wave begins with.
    """
    if recorder is None:
        return partial(task, job)
    backend = cast(Backend, ProfiledBackend(job.io.backend, recorder))
    job = job._replace(io=job.io._replace(backend=backend))
    return recorder.carry(first, partial(task, job), job.io.marker)


def _waves_and_work(job: ReadJob | WriteJob, nparts: int, value: Array) -> tuple[Iterable[Wave], Work]:
    """Return the waves of a job and how much there is to do in all."""
    io, plan = job.io, job.plan
    if nparts == 1:
        return (list(plan.groups(io.layout.objects)),), _SINGLE
    nbytes = max(io.chunk_nbytes, 1)
    least = io.backend.wave_nchunks(io.only_chain, nparts, nbytes, writing=isinstance(job, WriteJob))
    first = value[0] if type(value) is tuple else value
    itemsize = first.dtype.itemsize if hasattr(first, "dtype") else 1
    nelements = plan.nelements if isinstance(plan, CopyPlan) else math.prod(plan.shape)
    work = Work(nparts, nelements * itemsize // max(nparts, 1), least)
    if io.store.concurrency == 1:
        return _waves(io, plan, (least, least), 1), work
    return _waiting_waves(job, work, nbytes)


def _waiting_waves(job: ReadJob | WriteJob, work: Work, nbytes: int) -> tuple[Iterable[Wave], Work]:
    """Return the waves of a job whose store takes many requests at once, and how much there is to do in all.

    work: how much there is to do where nothing waits. nbytes: of a decoded chunk.
    """
    requests, least = job.io.store.concurrency, work.wave_nchunks
    wave_nbytes = WRITING_NBYTES // _WAITING_WAVES if isinstance(job, WriteJob) else WAITING_WAVE_NBYTES
    most = max(least, wave_nbytes // nbytes)
    if nbytes >= PARALLEL_NBYTES:
        most = max(least, min(most, work.nchunks // _WAITING_WAVES))
    waves = _waves(job.io, job.plan, (least, most), requests)
    first = next(waves, [])
    wave_nbytes = nbytes * sum(len(parts) for _, parts in first)
    under_way = READING_NBYTES
    if isinstance(job, WriteJob):
        under_way = WRITING_NBYTES if len(first) > 1 else _WRITING_LARGE_NBYTES
    at_once = min(2 * requests // max(len(first), 1), under_way // max(wave_nbytes, 1))
    return chain((first,), waves), work._replace(wave_nchunks=most, waits=True, at_once=max(at_once, 1))


def _waves(io: ArrayIO, plan: Plan, limits: tuple[int, int], nobjects: int) -> Iterator[Wave]:
    """Cut a plan into waves of whole objects.

    limits: chunks of a wave, or few more: so many if they are in so many objects, and in any case.
    """
    least, most = limits
    wave: Wave = []
    count = 0
    for group in plan.groups(io.layout.objects):
        wave.append(group)
        count += len(group[1])
        if count >= most or (count >= least and len(wave) >= nobjects):
            yield wave
            wave, count = [], 0
    if wave:
        yield wave
