"""Runs the GPU benchmark: all rows of all cases, and a record of what failed or was left out.

Tables of rows. *resident*: encoded streams are on the device; the stages of gzarr beside nvCOMP's batched call alone on
the same streams. *streams*: the same for one to 100,000 chunks of 16 KiB. *file*: a local store in the page cache
becomes an array on the device. *write*: an array on the device becomes a local store; peers write from host memory.
*memory*: device bytes beyond the result, beside the cap. *loader*: whole epochs of `gzarr.Loader`
beside a bare read of all chunks.

Every answer is compared with the source before it is timed. Times are medians, with the least and the most. The result
is rewritten after every row, most telling rows first.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.gpu import rows
from benchmarks.gpu.cases import NO_TIME, TINY, Case, StreamsCase, cases, make_source, selections
from benchmarks.gpu.loading import LoaderCase, time_loader
from benchmarks.gpu.measure import describe_machine, write_json
from benchmarks.gpu.peers import Peer, find_peers
from benchmarks.gpu.pyramids import PyramidCase, time_pyramid
from benchmarks.gpu.sizes import MEANINGLESS
from benchmarks.gpu.stages import in_memory, time_stages
from benchmarks.gpu.streams import open_gpu
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.gpu.reading.select import find_missing_kvikio

#: Seconds that a read may take, extrapolated from smaller reads; slower ones are left out.
CONTENDER_S = 6.0
#: Caps of device memory, as shares of the decoded bytes.
CAP_SHARES = (2, 8)
#: Selections that may be decoded on the host for their size.
SMALL_READS = ("one chunk", "100 random chunks", "points")


class Device:
    """The measured device."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gpu = open_gpu() if kind == "cuda" else None
        self.xp: Any = np
        self.no_kvikio = find_missing_kvikio()
        if self.gpu is not None:
            self.device, self.xp = self.gpu.device, self.gpu.cupy
        else:
            from gzarr.gpu.device.emulated import EmulatedDevice

            self.device = EmulatedDevice()

    @property
    def has_kvikio(self) -> bool:
        """Whether KvikIO reads into this device's memory."""
        return self.gpu is not None and self.no_kvikio is None

    def wait(self) -> None:
        if self.gpu is not None:
            self.xp.cuda.Device().synchronize()

    def upload(self, array: Any) -> Any:
        return self.xp.asarray(array) if self.gpu is not None else np.array(array)

    def equal(self, one: Any, other: Any) -> bool:
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def run(out: Path, kind: str, budget_s: float, *, small: bool, command: str = "") -> Path:
    """Measure what the time allows. Returns: the JSON file."""
    measured = Run(out, Device(kind), time.monotonic() + budget_s, small=small, command=command)
    try:
        measured.result["ceilings"] = rows.ceilings(measured.device, 1 << (20 if small else 30))
        measured.save()
        for case in cases(small=small):
            try:
                measured.case(case)
            except Exception as error:  # noqa: BLE001 - one array that fails takes no other with it
                measured.failed(asdict(case), error)
        measured.result["complete"] = not measured.result["left_out"]
    finally:
        measured.close()
    return measured.path


class Run:
    """One run: the result so far, and the data that cases share."""

    def __init__(self, out: Path, device: Device, end: float, *, small: bool, command: str) -> None:
        self.device, self.end = device, end
        self.peers, said = find_peers(device)
        said["raw KvikIO"] = "there" if device.has_kvikio else f"absent: {device.no_kvikio or 'the device is emulated'}"
        said["bare nvCOMP"] = "absent: the device is emulated" if device.gpu is None else "there"
        self.result: dict[str, Any] = {
            "kind": "gpu",
            "device": device.kind,
            "small": small,
            "note": MEANINGLESS,
            "complete": False,
            "command": command,
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(device.gpu),
            "peers": said,
            "ceilings": {},
            "rows": [],
            "failed": [],
            "left_out": [],
        }
        name = re.sub(r"[^a-z0-9]+", "-", (self.result["machine"]["gpu"] or device.kind).lower()).strip("-")
        self.path = out / f"gpu-{name}{'-small' if small else ''}.json"
        self.root = Path(tempfile.mkdtemp(prefix="gzarr-gpu-"))
        self._data: tuple[np.ndarray, Any] | None = None
        self.save()

    def save(self) -> None:
        write_json(self.path, self.result)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.save()

    def data(self, n: int) -> tuple[np.ndarray, Any]:
        """n x n numbers on the host and on the device, cached for one n."""
        if self._data is None or len(self._data[0]) != n:
            self._data = None
            source = make_source(n)
            self._data = source, self.device.upload(source)
        return self._data

    def leave_out(self, about: dict[str, Any], why: str) -> None:
        self.result["left_out"].append({**about, "why": why})

    def failed(self, about: dict[str, Any], error: Exception) -> None:
        self.result["failed"].append({**about, "error": f"{type(error).__name__}: {error}"[:500]})
        print(f"{about}: {error}", file=sys.stderr)

    def row(self, about: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Measure a row if there is time. A failure is recorded, and the run goes on."""
        if time.monotonic() > self.end:
            self.leave_out(about, NO_TIME)
            return None
        try:
            row = {**about, **measure()}
        except Exception as error:  # noqa: BLE001 - a peer's failure is a result, too
            self.failed(about, error)
            return None
        finally:
            self.save()
        self.result["rows"].append(row)
        self.save()
        return row

    def case(self, case: Case | StreamsCase | LoaderCase | PyramidCase) -> None:
        """All rows of one stored array."""
        if isinstance(case, StreamsCase):
            about = {"table": "streams", **asdict(case), "contender": "gzarr"}
            self.row(about, lambda: rows.streams(self.device, case))
            return
        if isinstance(case, LoaderCase):
            about = {"table": "loader", **asdict(case), "contender": "gzarr"}
            wrong = rows.WrongAnswerError("a batch is wrong")
            self.row(about, lambda: time_loader(self.device, self.root, case, wrong))
            return
        if isinstance(case, PyramidCase):
            about = {"table": "pyramid", **asdict(case), "contender": "gzarr"}
            wrong = rows.WrongAnswerError("a level is wrong")
            self.row(about, lambda: time_pyramid(self.device, self.root, case, wrong))
            return
        if time.monotonic() > self.end:
            self.leave_out(asdict(case), NO_TIME)
            return
        path = self.root / "array"
        shutil.rmtree(path, ignore_errors=True)  # of a case that failed
        source, there = self.data(case.n)
        gzarr.create_array(path, data=source, device="cpu", **case.keywords())
        about = {**asdict(case), "encoded_nbytes": rows.encoded_nbytes(path)}
        whole = {"table": "resident", **about, "selection": "whole", "contender": "gzarr"}
        self.row(whole, lambda: time_stages(self.device, in_memory(path), there))
        self.reads(case, path, about, there)
        self.writes(case, about)
        if case.full:
            self.memory(path, about, there)
        shutil.rmtree(path, ignore_errors=True)

    def reads(self, case: Case, path: Path, about: dict[str, Any], there: Any) -> None:
        """The rows of *file*: raw reads of the same bytes, then the reads of every contender, from small to whole."""
        opened = gzarr.open_array(path, mode="r", device=GpuBackend(self.device.device, small_reads=NEVER))
        # The default of users: small reads are decoded on the host.
        default = gzarr.open_array(path, mode="r", device=GpuBackend(self.device.device))
        about = {"table": "file", **about, "reader": ": ".join(opened.backend.reader)}
        for contender, raw in rows.raw_reads(self.device, rows.files_of(path)).items():
            self.row({**about, "selection": "whole", "contender": contender}, raw)
        contenders: dict[str, Callable[[], Any]] = {"gzarr": lambda: lambda selection: selection.of(opened)}
        if self.device.gpu is not None:
            contenders["gzarr, small reads on the host"] = lambda: lambda selection: selection.of(default)
        for name, peer in self._peers(case).items():
            contenders[name] = lambda p=peer: p.read(path)
        for contender, make in contenders.items():
            rate = 0.0
            for selection in selections(case):
                if "small reads" in contender and selection.name not in SMALL_READS:
                    continue
                row = {**about, "selection": selection.name, "contender": contender}
                wanted = there[_on_device(self.device, selection)]
                if rate and wanted.nbytes / rate > CONTENDER_S:
                    self.leave_out(row, f"it would take about {wanted.nbytes / rate:.0f} s")
                    continue
                measured = self.row(row, lambda m=make, s=selection, w=wanted: self._read(m, s, w))
                if measured and selection.kind != "vindex":  # points say nothing about bytes
                    rate = max(rate, measured["GB_per_s"] * 1e9)
                del wanted

    def _read(self, make: Callable[[], Any], selection: Any, wanted: Any) -> dict[str, Any]:
        return rows.timed_read(self.device, make(), selection, wanted)

    def writes(self, case: Case, about: dict[str, Any]) -> None:
        """The rows of *write*: a quarter of the numbers, from the device; peers write from the host."""
        n = case.n if case.n == TINY else case.n // 2
        source = np.ascontiguousarray(self.data(case.n)[0][:n, :n])
        there = self.device.upload(source)
        path = self.root / "written"
        about = {key: value for key, value in about.items() if key != "encoded_nbytes"}
        about = {"table": "write", **about, "n": n, "selection": "whole"}

        def own() -> dict[str, Any]:
            array = rows.written_empty(path, case, n, GpuBackend(self.device.device))

            def put(values: Any) -> None:
                array[...] = values

            return rows.timed_write(self.device, put, path, there, source)

        def of_peer(peer: Peer) -> dict[str, Any]:
            rows.written_empty(path, case, n, "cpu")
            assert peer.write is not None
            return rows.timed_write(self.device, peer.write(path), path, source, source)

        self.row({**about, "contender": "gzarr"}, own)
        for name, peer in self._peers(case).items():
            if peer.write is not None and case.full:
                contender = name.replace("upload", "from the host")
                self.row({**about, "contender": contender}, lambda p=peer: of_peer(p))
        shutil.rmtree(path, ignore_errors=True)

    def memory(self, path: Path, about: dict[str, Any], there: Any) -> None:
        """The rows of *memory*."""
        for share in CAP_SHARES:
            cap = there.nbytes // share
            row = {"table": "memory", **about, "selection": "whole", "contender": "gzarr", "cap_nbytes": cap}
            self.row(row, lambda c=cap: rows.peak_memory(self.device, path, c, there))

    def _peers(self, case: Case) -> dict[str, Peer]:
        return {name: peer for name, peer in self.peers.items() if case.full or peer.lean}


def _on_device(device: Device, selection: Any) -> Any:
    """The key that selects the same from an array on the device."""
    match selection.kind:
        case "oindex":
            return np.ix_(*selection.key) if device.gpu is None else tuple(map(device.upload, np.ix_(*selection.key)))
        case "vindex":
            return tuple(map(device.upload, selection.key))
    return selection.key
