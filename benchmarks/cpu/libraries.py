"""The libraries, with the environment and the driver of each."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cpu.driver import Driver
from benchmarks.cpu.drivers_other import H5py, TensorStore
from benchmarks.cpu.drivers_zarr import Gzarr, GzarrInZarr, Zarr2, Zarr3, ZarrFused, Zarrs

# Library -> (environment, class of its driver).
LIBRARIES: dict[str, tuple[str, Callable[[], Driver]]] = {
    "gzarr": ("v3", Gzarr),
    "zarr": ("v3", Zarr3),
    "zarr fused": ("v3", ZarrFused),
    "zarrs": ("v3", Zarrs),
    "gzarr in zarr": ("v3", GzarrInZarr),
    "tensorstore": ("v3", TensorStore),
    "zarr 2": ("v2", Zarr2),
    "h5py": ("v3", H5py),
}
# gzarr's codec pipeline for zarr-python, and the pipelines that it competes with.
PLUGIN, PIPELINES = "gzarr in zarr", ("zarr", "zarr fused", "zarrs")
REFERENCES = frozenset({"h5py"})  # not Zarr: shown, but not counted among the peers
NO_PEERS = frozenset({"gzarr", PLUGIN, *REFERENCES})
