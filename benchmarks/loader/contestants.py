"""The contestants by name: where each is made. Other loaders can be named on the command line in the same way."""

from __future__ import annotations

import importlib

from benchmarks.loader.contestant import Make

CONTESTANTS = {
    "gzarr": "benchmarks.loader.drivers_gzarr:Gzarr",
    "tensorstore": "benchmarks.loader.drivers_tensorstore:TensorStore",
    "tensorstore futures": "benchmarks.loader.drivers_tensorstore:sample_futures",
    "torch 0": "benchmarks.loader.drivers_torch:plain_0",
    "torch 2": "benchmarks.loader.drivers_torch:plain_2",
    "torch 0 fused": "benchmarks.loader.drivers_torch:fused_0",
    "torch 2 fused": "benchmarks.loader.drivers_torch:fused_2",
    "insitubatch": "benchmarks.loader.drivers_blocks:InSituBatch",
    "annbatch": "benchmarks.loader.drivers_blocks:AnnBatch",
}


def maker(where: str) -> Make:
    """The function that makes a contestant, of "module:name"."""
    module, _, name = where.partition(":")
    make: Make = getattr(importlib.import_module(module), name)
    return make
