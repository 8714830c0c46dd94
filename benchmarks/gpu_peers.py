"""The peers of the GPU benchmark: what each needs, and how it reads a selection of a stored array."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import gzarr
from benchmarks.on_gpu import version_of

#: Opens a path and gives a function from a selection to an array, on the host or on the device.
Reader: TypeAlias = Callable[[Path], Callable[[Any], Any]]
N_THREADS = 16


def _gzarr_on_the_cpu(_: Any) -> tuple[Reader, str]:
    def make(path: Path) -> Callable[[Any], Any]:
        array = gzarr.open_array(path, mode="r", device="cpu")
        return lambda key: array.vindex[key] if isinstance(key[0], np.ndarray) else array[key]

    return make, gzarr.__version__


def _zarr(pipeline: str | None, *, on_gpu: bool) -> Reader:
    import zarr

    def make(path: Path) -> Callable[[Any], Any]:
        settings = {} if pipeline is None else {"codec_pipeline.path": pipeline}

        def read(key: Any) -> Any:
            with zarr.config.set(settings):
                if not on_gpu:
                    array = zarr.open_array(str(path), mode="r")
                    return array.vindex[key] if isinstance(key[0], np.ndarray) else array[key]
                with zarr.config.enable_gpu():
                    array = zarr.open_array(str(path), mode="r")
                    return array.vindex[key] if isinstance(key[0], np.ndarray) else array[key]

        return read

    return make


def _zarr_in_gpu_mode(device: Any) -> tuple[Reader, str]:
    import zarr

    if device.gpu is None:
        raise RuntimeError("GPU mode needs a GPU")
    return _zarr(None, on_gpu=True), zarr.__version__


def _zarrs(_: Any) -> tuple[Reader, str]:
    import zarrs

    return _zarr("zarrs.ZarrsCodecPipeline", on_gpu=False), version_of("zarrs") or str(zarrs)


def _tensorstore(_: Any) -> tuple[Reader, str]:
    import tensorstore as ts

    limits = {name: {"limit": N_THREADS} for name in ("data_copy_concurrency", "file_io_concurrency")}

    def make(path: Path) -> Callable[[Any], Any]:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}, "context": limits}
        array = ts.open(spec, read=True).result()
        return lambda key: array[key].read().result()

    return make, version_of("tensorstore") or "unknown"


#: What is uploaded after it was read on the host says so.
PEERS: dict[str, Callable[[Any], tuple[Reader, str]]] = {
    "gzarr on the CPU, upload": _gzarr_on_the_cpu,
    "TensorStore, upload": _tensorstore,
    "zarrs, upload": _zarrs,
    "zarr-python, GPU mode": _zarr_in_gpu_mode,
}
