"""Makes gzarr's pipeline the one of zarr-python, and chooses the memory that its arrays are read into."""

from __future__ import annotations

import zarr

from gzarr.devices import backend_for

_BUFFERS = {
    "auto": {},
    "cpu": {"buffer": "zarr.buffer.cpu.Buffer", "ndbuffer": "zarr.buffer.cpu.NDBuffer"},
    "cuda": {"buffer": "zarr.buffer.gpu.Buffer", "ndbuffer": "zarr.buffer.gpu.NDBuffer"},
}


def install(path: str, device: str) -> None:
    """`gzarr.interop.zarr.install`. path: of the pipeline's class."""
    if device not in _BUFFERS:
        raise ValueError(f"device must be one of {', '.join(map(repr, _BUFFERS))}; got {device!r}")
    if device == "cuda":
        backend_for(device)  # says what is missing
    zarr.config.set({"codec_pipeline.path": path, **_BUFFERS[device]})
