"""Carries out reads and writes of selections: hands batches to executors, and what these leave to the reference path.

Theory of operation. An executor (`gzarr.backend.ReadExecutor`, `WriteExecutor`) does a job in batches: the compiled
loop or a device, or the reference path (`gzarr.chunk_io.reference`) if those do not take it. What an executor leaves of
a batch, the reference path does at once. Every batch of a write has objects of its own, which are locked here while it
is written. The batches of several reads, or of several writes, run together.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import call
from typing import Any, TypeAlias

from gzarr.backend import ReadExecutor, Work, WriteExecutor
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.reference import (
    READING_NBYTES,
    ReadJob,
    ReferenceRead,
    ReferenceWrite,
    WriteJob,
    cut_job,
    find_covered,
    make_reference_write,
)
from gzarr.profiling.recorder import recorder_for, spanned, stage, staged
from gzarr.storage.invalidation import invalidate
from gzarr.storage.locks import while_locked

#: An array, and the arguments of `Backend.run`: a task, the batches that it is done for, and how much there is to do.
_Run: TypeAlias = tuple[ArrayIO, Callable[[Any], Any], Iterable[Any], Work]


def read(jobs: Sequence[ReadJob]) -> None:
    """Carry out reads, all at once. Raises: ChunkError for damaged chunks, StoreError."""
    spanned("gzarr.read", _read_all, jobs)


def _read_all(jobs: Sequence[ReadJob]) -> None:
    runs: list[_Run] = []
    retries: list[tuple[ReadExecutor, _Run]] = []
    task: Callable[[Any], Any]
    again: Callable[[Any], Any]
    for job in jobs:
        recorder = recorder_for(job.io.backend.device)
        nparts, compiled = job.plan.nparts, job.io.compiled
        reader = "" if compiled is None else compiled.take_read(job.plan, nparts, job.out, job.fields)
        if isinstance(reader, str):
            reference = ReferenceRead(job, *cut_job(job, nparts, job.out))
            task = reference.read if recorder is None else recorder.carry("locate", reference.read, job.io.marker)
            runs.append((job.io, task, reference.batches, reference.work))
            continue
        task, again = partial(_read, job, reader), ReferenceRead(job).read
        if recorder is not None:
            task = recorder.carry(reader.stage, task, job.io.marker)
            again = recorder.carry("locate", again, job.io.marker)
        runs.append((job.io, task, reader.batches, reader.work))
        retries.append((reader, (job.io, again, (), reader.work)))
    _run_all(runs)
    for reader, (io, again, _, work) in retries:
        left = reader.retry()
        if left is not None:
            _run_all([(io, again, ([group] for group in left), work)])


def write(jobs: Sequence[WriteJob]) -> None:
    """Carry out writes, all at once. Objects written before a failure stay written; each is replaced whole or not.

    If jobs overlap, it is undefined which value wins. The caller has asked whether the stores are writable.

    Raises: ChunkError for damaged old chunks or values that a codec refuses, StoreError.
    """
    spanned("gzarr.write", _write_all, jobs)


def _write_all(jobs: Sequence[WriteJob]) -> None:
    runs: list[_Run] = []
    for job in jobs:
        recorder = recorder_for(job.io.backend.device)
        nparts, compiled = job.plan.nparts, job.io.compiled
        writer: WriteExecutor | str = ""
        if compiled is not None and job.check is None:
            writer = compiled.take_write(job.plan, nparts, job.value, job.fields, keep_empty=job.write_empty)
        if isinstance(writer, str):
            writer = make_reference_write(job, nparts)
        task: Callable[[Any], None] = partial(_write, job, writer)
        if recorder is not None:
            task = recorder.carry(writer.stage, task, job.io.marker)
        runs.append((job.io, task, writer.batches, writer.work))
    _run_all(runs)


def _read(job: ReadJob, executor: ReadExecutor, batch: Any) -> None:
    left = executor.read(batch)
    if left:
        staged("locate", ReferenceRead(job).read, left)


def _write(job: WriteJob, executor: WriteExecutor, batch: Any) -> None:
    """Write a batch, its objects locked, and then what is left of it."""
    store = job.io.store
    keys, merged = executor.objects(batch)
    task = partial(executor.write, batch, keys, merged)
    try:
        left = while_locked(store.locked(keys, merged), task) if keys else task()
    finally:
        invalidate(lambda: [store.lock_name(key) for key in keys])
    if left:
        with stage("build"):
            for covered in find_covered(job, left):
                _write(job, ReferenceWrite(job), covered)


def _run_all(runs: Sequence[_Run]) -> None:
    """Run all jobs, those of one backend together."""
    if len(runs) == 1:
        io, task, batches, work = runs[0]
        io.backend.run(task, batches, work)
        return
    by_backend: dict[int, list[_Run]] = {}
    for run in runs:
        by_backend.setdefault(id(run[0].backend), []).append(run)
    for members in by_backend.values():
        calls = (partial(task, batch) for _, task, batches, _ in members for batch in batches)
        requests = max(io.store.concurrency for io, *_ in members)
        work = _sum([work for *_, work in members], requests)
        most = READING_NBYTES // max(io.chunk_nbytes for io, *_ in members)
        members[0][0].backend.run(call, calls, work._replace(at_once=max(min(work.at_once, most), 1)))


def _sum(works: Sequence[Work], requests: int) -> Work:
    """How much there is to do in all. requests: that the store takes at once."""
    nchunks, known = sum(work.nchunks for work in works), all(work.chunk_s for work in works)
    return Work(
        nchunks=nchunks,
        part_nbytes=sum(work.nchunks * work.part_nbytes for work in works) // max(nchunks, 1),
        batch_nchunks=max(work.batch_nchunks for work in works),
        unlocked=all(work.unlocked for work in works),
        waits=requests > 1,
        chunk_s=sum(work.nchunks * work.chunk_s for work in works) / max(nchunks, 1) if known else 0.0,
        at_once=min(max(work.at_once for work in works), requests),
    )
