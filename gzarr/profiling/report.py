"""`gzarr.profile`: where the time of reads and writes goes, stage by stage, and how far stages overlap."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gzarr.profiling.recorder import MAX_ROWS, Recorder, Row, Stage, active, recorder_for

#: In the order in which chunks come through them.
_OF_READS = ("loop", "locate", "read", "upload", "parse", "decode", "place", "check")
_ORDER = (*_OF_READS, "load old", "gather", "encode", "store", "build")
_HEAD = ("stage", "calls", "batches", "chunks", "seconds", "on device", "bytes in", "bytes out", "GB/s")


@dataclass(slots=True)
class Profile:
    """The result of `profile`. It is filled when the ``with`` statement ends, and prints as a table.

    Attributes
    ----------
    stages : dict of str to Stage
        Stages by name, in the order in which chunks go through them: see `profile`.
    timeline : list of Row
        Which thread was in which stage of which batch, by start. A stage within another interrupts it, so the rows of a
        thread do not overlap. Work on a device has rows of its own.
    span_s : float
        Seconds from the start of the first row to the end of the last.
    n_rows : int
        Number of stretches of stages; the first 100,000 are in `timeline` and `Stage.device_seconds`.
    """

    stages: dict[str, Stage] = field(default_factory=dict)
    timeline: list[Row] = field(default_factory=list)
    span_s: float = 0.0
    n_rows: int = 0

    @property
    def busy_s(self) -> float:
        """Seconds that all threads spent in stages together."""
        return sum(stage.seconds for stage in self.stages.values())

    @property
    def overlap(self) -> float:
        """How many threads were in a stage at once, on average: `busy_s` by `span_s`."""
        return self.busy_s / self.span_s if self.span_s else 0.0

    def overlap_s(self, stages: str | Iterable[str], others: str | Iterable[str]) -> float:
        """Seconds in which a batch was in one of some stages while another batch was in one of some others.

        >>> p = Profile(timeline=[Row("read", 1, "a", 0.0, 3.0), Row("decode", 0, "b", 1.0, 2.0)])
        >>> p.overlap_s("read", ["decode", "place"])
        1.0
        """
        one, two = _names(stages), _names(others)
        changes = sorted(
            (time, step, row.batch, side)
            for row in self.timeline
            for side, names in ((0, one), (1, two))
            if row.stage in names
            for time, step in ((row.start, 1), (row.end, -1))
        )
        now: tuple[dict[int, int], dict[int, int]] = ({}, {})
        total, before = 0.0, 0.0
        for time, step, batch, side in changes:
            if now[0] and now[1] and len(now[0].keys() | now[1].keys()) > 1:
                total += time - before
            now[side][batch] = now[side].get(batch, 0) + step
            if not now[side][batch]:
                del now[side][batch]
            before = time
        return total

    def __str__(self) -> str:
        if not self.stages:
            return "nothing was read or written"
        rows = [_HEAD, *(_cells(name, stage) for name, stage in self.stages.items())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = ["  ".join(_aligned(*cell) for cell in zip(row, widths, _HEAD, strict=True)) for row in rows]
        lines.append(f"{self.busy_s:.6f} s in stages, within {self.span_s:.6f} s: {self.overlap:.2f} at once")
        reading = self.overlap_s("read", ("parse", "decode", "place", "check"))
        if reading:
            lines.append(f"{reading:.6f} s in which a batch was read while another was decoded, placed or waited for")
        if self.n_rows > MAX_ROWS:
            lines.append(f"overlaps and times on devices are of the first {MAX_ROWS:,} of {self.n_rows:,} stretches")
        return "\n".join(line.rstrip() for line in lines)


@contextmanager
def profile() -> Iterator[Profile]:
    """Measure where the time of reads and writes goes, on any device.

    The profile covers the reads and writes of the current thread, or coroutine, within the ``with`` statement, and the
    work for them on gzarr's own threads (`Array.aread` too). Threads that you start take part only if they run in your
    context (``contextvars.copy_context().run``, ``asyncio.to_thread``). A profile within another one is counted in
    both.

    The stages of a read are "locate" (find keys and read shard indexes; what no other stage has counts here),
    "read" (fetch bytes from the store), "upload" (to the device), "parse" (headers of compressed chunks), "decode",
    "place" (copy decoded chunks to where they belong in the result) and "check" (wait for the device, and compare
    checksums). On the CPU, the compiled loop reads many chunks in one call: one stage, "loop", instead of these.
    The stages of a write are "load old", "encode" (merging and
    encoding, without the "decode" of old chunks), "store" and "build" (building objects, locks, and everything else). A
    device goes on working after a stage has submitted to it: ``device_seconds`` are measured there, without waiting.

    On a CUDA device, the stages are also NVTX ranges, "gzarr:read" and so on, which Nsight Systems shows. The setting
    ``gpu.nvtx`` shows them without a profile.

    Yields
    ------
    Profile
        The profile. It is filled at the end, which waits for the device.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> array = gzarr.create_array(data=np.ones((100, 100), "i4"), chunks=(10, 10))
    >>> with gzarr.profile() as p:
    ...     _ = array[:20]
    >>> p.stages["read"].chunks, p.stages["loop"].bytes_out
    (20, 8000)
    """
    recorder = Recorder(recorder_for("cpu"))
    result = Profile()
    token = active.set(recorder)
    try:
        yield result
    finally:
        active.reset(token)
        recorder.close()
        result.stages.update(sorted(recorder.stages.items(), key=_place_in_order))
        result.timeline.extend(recorder.rows)
        result.n_rows = recorder.n_rows
        if recorder.rows:
            end = max(recorder.ended, *(row.end for row in recorder.rows))
            result.span_s = end - recorder.rows[0].start


def _place_in_order(item: tuple[str, Any]) -> int:
    return _ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER)


def _names(stages: str | Iterable[str]) -> frozenset[str]:
    return frozenset((stages,) if isinstance(stages, str) else stages)


def _cells(name: str, stage: Stage) -> tuple[str, ...]:
    device = "" if stage.device_seconds is None else f"{stage.device_seconds:.6f}"
    moved = bool(stage.bytes_in or stage.bytes_out)
    sizes = (f"{stage.bytes_in:,}", f"{stage.bytes_out:,}", f"{stage.bytes_per_s / 1e9:.3f}") if moved else ("", "", "")
    chunks = f"{stage.chunks:,}" if stage.chunks else ""
    return name, f"{stage.calls:,}", f"{stage.batches:,}", chunks, f"{stage.seconds:.6f}", device, *sizes


def _aligned(cell: str, width: int, column: str) -> str:
    return cell.ljust(width) if column == "stage" else cell.rjust(width)
