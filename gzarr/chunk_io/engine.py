"""Carries out reads and writes of selections: hands batches to executors, and what these leave to the reference path.

Theory of operation. An executor (`gzarr.backend.ReadExecutor`, `WriteExecutor`) does a job in batches: the compiled
loop or a device, or the reference path (`gzarr.chunk_io.reference`) if those do not take it. What an executor leaves of
a batch, the reference path does at once. Every batch of a write has objects of its own, which are locked here while it
is written. The batches of several reads, or of several writes, run together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import call
from typing import Any, NamedTuple, TypeVar, cast

from gzarr.backend import Backend, ReadExecutor, Work, WriteExecutor
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.profiled_backend import ProfiledBackend
from gzarr.chunk_io.reference import (
    READING_NBYTES,
    ReadJob,
    ReferenceWrite,
    WriteJob,
    find_covered,
    make_reference_read,
    make_reference_write,
    read_groups,
)
from gzarr.indexing.plan import Groups
from gzarr.profiling.recorder import recorder_for, stage
from gzarr.storage.base import Store
from gzarr.storage.invalidation import announce
from gzarr.storage.locks import while_locked

Job = TypeVar("Job", ReadJob, WriteJob)


class _Run(NamedTuple):
    """Arguments of `Backend.run`, and the array that they are about."""

    io: ArrayIO
    task: Callable[[Any], None]
    batches: Iterable[Any]
    work: Work


def read(jobs: Sequence[ReadJob]) -> None:
    """Carry out reads, all at once. Raises: ChunkError for damaged chunks, StoreError."""
    noted = list(map(_profiled, jobs))
    readers = list(map(_reader, noted))
    _run_all([_run(job, reader, partial(_read, job, reader)) for job, reader in zip(noted, readers, strict=True)])
    for job, reader in zip(noted, readers, strict=True):
        left = reader.retry()
        if left is not None:
            task = _task(job.io, "locate", partial(read_groups, job))
            _run_all([_Run(job.io, task, ([group] for group in left), reader.work)])


def write(jobs: Sequence[WriteJob]) -> None:
    """Carry out writes, all at once. Objects written before a failure stay written; each is replaced whole or not.

    If jobs overlap, it is undefined which value wins. The caller has asked whether the stores are writable.

    Raises: ChunkError for damaged old chunks or values that a codec refuses, StoreError.
    """
    noted = list(map(_profiled, jobs))
    writers = list(map(_writer, noted))
    _run_all(
        [_run(job, executor, partial(_write, job, executor)) for job, executor in zip(noted, writers, strict=True)]
    )


def _reader(job: ReadJob) -> ReadExecutor:
    nparts, compiled = job.plan.nparts, job.io.compiled
    taken = "" if compiled is None else compiled.take_read(job.plan, nparts, job.out, job.fields)
    return make_reference_read(job, nparts) if isinstance(taken, str) else taken


def _writer(job: WriteJob) -> WriteExecutor:
    nparts, compiled = job.plan.nparts, job.io.compiled
    taken: WriteExecutor | str = ""
    if compiled is not None and job.check is None:
        taken = compiled.take_write(job.plan, nparts, job.value, job.fields, keep_empty=job.write_empty)
    return make_reference_write(job, nparts) if isinstance(taken, str) else taken


def _read(job: ReadJob, executor: ReadExecutor, batch: Any) -> None:
    left = executor.read(batch)
    if left:
        with stage("locate"):
            read_groups(job, left)


def _write(job: WriteJob, executor: WriteExecutor, batch: Any) -> None:
    left = _write_locked(job.io.store, executor, batch)
    if left:
        with stage("build"):
            for covered in find_covered(job, left):
                _write_locked(job.io.store, ReferenceWrite(job), covered)


def _write_locked(store: Store, executor: WriteExecutor, batch: Any) -> Groups:
    """Write a batch, its objects locked. Returns: what is left of it."""
    keys, merged = executor.objects(batch)
    if not keys:
        return executor.write(batch, keys, merged)
    try:
        return while_locked(store.locked(keys, merged), lambda: executor.write(batch, keys, merged))
    finally:
        announce(lambda: [store.lock_name(key) for key in keys])


def _run_all(runs: Sequence[_Run]) -> None:
    """Run all jobs, those of one backend together."""
    if len(runs) == 1:
        io, task, batches, work = runs[0]
        io.backend.run(task, batches, work)
        return
    by_backend: dict[int, list[_Run]] = {}
    for run in runs:
        backend = run.io.backend
        inner = backend.inner if isinstance(backend, ProfiledBackend) else backend
        by_backend.setdefault(id(inner), []).append(run)
    for members in by_backend.values():
        calls = (partial(run.task, batch) for run in members for batch in run.batches)
        requests = max(run.io.store.concurrency for run in members)
        work = _sum([run.work for run in members], requests)
        most = READING_NBYTES // max(run.io.chunk_nbytes for run in members)
        members[0].io.backend.run(call, calls, work._replace(at_once=max(min(work.at_once, most), 1)))


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


def _profiled(job: Job) -> Job:
    """The job with a backend whose calls are noted, if a profile is taken."""
    recorder = recorder_for(job.io.backend.device)
    if recorder is None:
        return job
    backend = cast(Backend, ProfiledBackend(job.io.backend, recorder))
    return job._replace(io=job.io._replace(backend=backend))


def _run(job: ReadJob | WriteJob, executor: ReadExecutor | WriteExecutor, task: Callable[[Any], None]) -> _Run:
    return _Run(job.io, _task(job.io, executor.stage, task), executor.batches, executor.work)


def _task(io: ArrayIO, first: str, task: Callable[[Any], None]) -> Callable[[Any], None]:
    """The task of a job, for each of its batches. first: the stage of a profile that a batch begins with."""
    recorder = recorder_for(io.backend.device)
    return task if recorder is None else recorder.carry(first, task, io.marker)
