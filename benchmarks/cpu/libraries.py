"""The libraries, with the environment and the driver of each."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cpu.driver import Driver
from benchmarks.cpu.drivers_other import H5py, TensorStore
from benchmarks.cpu.drivers_zarr import Gzarr, Zarr2, Zarr3, ZarrFused, Zarrs

# Library -> (environment, class of its driver).
LIBRARIES: dict[str, tuple[str, Callable[[], Driver]]] = {
    "gzarr": ("v3", Gzarr),
    "zarr": ("v3", Zarr3),
    "zarr fused": ("v3", ZarrFused),
    "zarrs": ("v3", Zarrs),
    "tensorstore": ("v3", TensorStore),
    "zarr 2": ("v2", Zarr2),
    "h5py": ("v3", H5py),
}
REFERENCES = frozenset({"h5py"})  # not Zarr: shown, but not counted among the peers
