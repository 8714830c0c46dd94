"""Writes a file of datasets with all filters. A program of its own, as netCDF4 brings plug-ins that h5py cannot use.

``python -m tests.virtual.hdf5_filters filters.h5``
"""

import sys

import h5py
import hdf5plugin
import numpy as np

DATA = np.random.default_rng(0).integers(0, 1000, (100, 77)).astype("f4")
#: Options of h5py, and whether gzarr decodes the chunks itself.
DATASETS = {
    "gzip": ({"chunks": (16, 16), "compression": "gzip", "shuffle": True}, True),
    "fletcher32": ({"chunks": (16, 16), "compression": "gzip", "fletcher32": True}, True),
    "lzf": ({"chunks": (16, 16), "compression": "lzf"}, False),
    "blosc": ({"chunks": (16, 16), **hdf5plugin.Blosc("zstd", 5, hdf5plugin.Blosc.SHUFFLE)}, True),
    "blosc_bits": ({"chunks": (16, 16), **hdf5plugin.Blosc("lz4", 5, hdf5plugin.Blosc.BITSHUFFLE)}, True),
    "blosc2": ({"chunks": (16, 16), **hdf5plugin.Blosc2("zstd")}, False),
    "zstd": ({"chunks": (16, 16), **hdf5plugin.Zstd(3)}, True),
    "lz4": ({"chunks": (16, 16), **hdf5plugin.LZ4()}, True),
    "bitshuffle": ({"chunks": (16, 16), **hdf5plugin.Bitshuffle()}, False),
    "plain": ({"chunks": (16, 16)}, True),
    "contiguous": ({}, True),
}


if __name__ == "__main__":
    with h5py.File(sys.argv[1], "w") as file:
        for name, (options, _) in DATASETS.items():
            file.create_dataset(name, data=DATA, **options)
