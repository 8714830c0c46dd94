"""The peers of the GPU benchmark: what each needs, and how it reads and writes a stored array.

No peer is required. On a machine without a package index, peers come from a folder of installed wheels through
``PYTHONPATH``. The result names those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import gzarr
from benchmarks.gpu.cases import Selection
from benchmarks.gpu.measure import version_of

#: Opens a path; returns a function from a selection to an array on the host or the device.
Reader: TypeAlias = Callable[[Path], Callable[[Selection], Any]]
#: Opens a path; returns a function that writes an array of the host over all of it.
Writer: TypeAlias = Callable[[Path], Callable[[np.ndarray], None]]
N_THREADS = 16
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"


class Peer(NamedTuple):
    """A peer that is installed.

    Attributes
    ----------
    version : str
        Its version.
    read : Reader
        Opens a path for reading.
    write : Writer or None
        Opens a path for writing from host memory, or None.
    lean : bool
        Whether it is measured in every case, as one of the best decoders of the host.
    """

    version: str
    read: Reader
    write: Writer | None = None
    lean: bool = False


def find_peers(device: Any) -> tuple[dict[str, Peer], dict[str, str]]:
    """(the peers that are there, of all: the version, or "absent: " and why). device: see benchmarks.gpu.run.Device."""
    present: dict[str, Peer] = {}
    said: dict[str, str] = {}
    for name, make in PEERS.items():
        try:
            present[name] = make(device)
            said[name] = present[name].version
        except Exception as error:  # noqa: BLE001 - an absent or broken peer is named, whatever it raises
            said[name] = f"absent: {type(error).__name__}: {error}"[:300]
    return present, said


def _gzarr_on_the_cpu(_: Any) -> Peer:
    def read(path: Path) -> Callable[[Selection], Any]:
        array = gzarr.open_array(path, mode="r", device="cpu")

        def take(selection: Selection) -> Any:
            with gzarr.config.set({"threading.max_workers": N_THREADS}):
                return selection.of(array)

        return take

    def write(path: Path) -> Callable[[np.ndarray], None]:
        array = gzarr.open_array(path, mode="r+", device="cpu")

        def put(values: np.ndarray) -> None:
            with gzarr.config.set({"threading.max_workers": N_THREADS}):
                array[...] = values

        return put

    return Peer(gzarr.__version__, read, write, lean=True)


def _zarr(pipeline: str | None, *, on_gpu: bool = False) -> tuple[Reader, Writer]:
    """zarr-python with a pipeline; None for its default."""
    import zarr

    settings: dict[str, Any] = {"threading.max_workers": N_THREADS, "async.concurrency": N_THREADS}
    if pipeline is not None:
        settings["codec_pipeline.path"] = pipeline

    @contextmanager
    def configured() -> Iterator[None]:
        with zarr.config.set(settings), zarr.config.enable_gpu() if on_gpu else nullcontext():
            yield

    def read(path: Path) -> Callable[[Selection], Any]:
        with configured():
            array = zarr.open_array(str(path), mode="r")

        def take(selection: Selection) -> Any:
            with configured():
                return selection.of(array)

        return take

    def write(path: Path) -> Callable[[np.ndarray], None]:
        with configured():
            array = zarr.open_array(str(path), mode="r+")

        def put(values: np.ndarray) -> None:
            with configured():
                array[...] = values

        return put

    return read, write


def _zarr_python(_: Any) -> Peer:
    import zarr

    return Peer(zarr.__version__, *_zarr(None))


def _zarr_fused(_: Any) -> Peer:
    import zarr
    import zarr.core.codec_pipeline as pipelines

    if not hasattr(pipelines, "FusedCodecPipeline"):
        raise RuntimeError(f"zarr {zarr.__version__} has no fused pipeline")
    return Peer(zarr.__version__, *_zarr(FUSED))


def _zarr_in_gpu_mode(device: Any) -> Peer:
    import zarr

    if device.gpu is None:
        raise RuntimeError("GPU mode needs a GPU")
    return Peer(zarr.__version__, _zarr(None, on_gpu=True)[0])


def _zarrs(_: Any) -> Peer:
    import zarrs

    return Peer(version_of("zarrs") or str(zarrs), *_zarr("zarrs.ZarrsCodecPipeline"), lean=True)


def _tensorstore(_: Any) -> Peer:
    import tensorstore as ts

    limits = {name: {"limit": N_THREADS} for name in ("data_copy_concurrency", "file_io_concurrency")}

    def opened(path: Path, **mode: bool) -> Any:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}, "context": limits}
        return ts.open(spec, **mode).result()

    def read(path: Path) -> Callable[[Selection], Any]:
        array = opened(path, read=True)
        return lambda selection: selection.of(array).read().result()

    def write(path: Path) -> Callable[[np.ndarray], None]:
        array = opened(path, read=True, write=True)
        return lambda values: array.write(values).result()

    return Peer(version_of("tensorstore") or "unknown", read, write, lean=True)


#: The name says if a result is read on the host and then uploaded. Peers write from host memory.
PEERS: dict[str, Callable[[Any], Peer]] = {
    "gzarr on the CPU, upload": _gzarr_on_the_cpu,
    "TensorStore, upload": _tensorstore,
    "zarrs, upload": _zarrs,
    "zarr-python, upload": _zarr_python,
    "zarr-python fused, upload": _zarr_fused,
    "zarr-python, GPU mode": _zarr_in_gpu_mode,
}
