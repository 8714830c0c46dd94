"""Who takes part in what: for each kind of work, names and the functions that do it, as "module:function".

A function takes a `Job`, writes what the case asks for under ``job.out``, and returns the paths of the arrays there,
level 0 first. Its module imports the library, so that a run does not time that. `AbsentError` says what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.images.cases import Case
from benchmarks.images.data import Cache

BARE, OWN = "bare", "gzarr"


class AbsentError(Exception):
    """The library cannot take part in a case; the message says why."""


@dataclass(frozen=True)
class Job:
    """A case on its data. out: a folder that does not exist yet."""

    case: Case
    cache: Cache
    out: Path

    @property
    def image(self) -> Path:
        """The array to read."""
        return self.cache.image(self.case.source)


READERS = {OWN: "benchmarks.images.regions:gzarr_reader", "tensorstore": "benchmarks.images.regions:tensorstore_reader"}
CONTESTANTS: dict[str, dict[str, str]] = {
    "pyramid": {
        BARE: "benchmarks.images.bare:pyramid",
        OWN: "benchmarks.images.drivers_gzarr:pyramid",
        "tensorstore": "benchmarks.images.drivers_tensorstore:pyramid",
        "ome-zarr-pyramid": "benchmarks.images.drivers_ome_zarr_pyramid:pyramid",
        "topozarr": "benchmarks.images.drivers_topozarr:pyramid",
        "ome-zarr-py": "benchmarks.images.drivers_ome_zarr_py:pyramid",
        "ngff-zarr": "benchmarks.images.drivers_ngff_zarr:pyramid",
        "dask coarsen": "benchmarks.images.drivers_dask:pyramid",
    },
    "gaussian": {
        BARE: "benchmarks.images.bare:gaussian",
        OWN: "benchmarks.images.drivers_gzarr:gaussian",
        "dask-image": "benchmarks.images.drivers_dask:dask_image",
        "dask map_overlap": "benchmarks.images.drivers_dask:map_overlap",
    },
    **{
        work: {
            BARE: "benchmarks.images.operations:in_memory",
            OWN: "benchmarks.images.operations:by_gzarr",
            "dask-image": f"benchmarks.images.drivers_dask:{work}",
        }
        for work in ("project", "affine", "label", "segment")
    },
    "fuse": {
        OWN: "benchmarks.images.operations:fused",
        "multiview-stitcher": "benchmarks.images.drivers_stitcher:fused",
    },
    "halo": {BARE: "benchmarks.images.drivers_gzarr:plain_read", OWN: "benchmarks.images.drivers_gzarr:halo_read"},
    "regions": {
        OWN: "benchmarks.images.regions:gzarr_reader",
        "tensorstore": "benchmarks.images.regions:tensorstore_reader",
    },
    "planes": {
        OWN: "benchmarks.images.regions:gzarr_reader",
        "tensorstore": "benchmarks.images.regions:tensorstore_reader",
    },
}


def function(where: str) -> Any:
    """The function of a contestant, with its library imported. Raises: ImportError if that is not installed."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
