"""Datasets that the tests of the engine and of the writer share."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from gzarr.interop.xarray import GzarrBackendEntrypoint

#: What zarr-python warns of.
IGNORED = [
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),  # of fixed-length text
    pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore:.*not currently part in the Zarr format 3 specification"),
]


def opened(path, **kwargs):
    return xr.open_dataset(path, engine=GzarrBackendEntrypoint, **kwargs)


def climate():
    rng = np.random.default_rng(0)
    t = rng.random((40, 9, 12)).astype("f4")
    t[0, 0, :3] = np.nan
    return xr.Dataset(
        {
            "t": (["time", "lat", "lon"], t, {"units": "K"}),
            "count": (["lat"], np.arange(9), {"flag": [1, 2]}),
            "complex": (["lat"], np.arange(9) * (1 + 2j)),
            "mask": (["lat", "lon"], rng.random((9, 12)) > 0.5),
            "when": (["lat"], pd.date_range("2020-01-01", periods=9, freq="36h")),
            "scalar": ((), 3.0),
            "place": (["lat"], np.array(["a", "bcd", "", "é", "e", "f", "g", "h", "i"], object)),
        },
        coords={
            "time": pd.date_range("2024-05-20", periods=40),
            "lat": np.arange(-40, 50, 10.0),
            "lon": np.arange(0, 360, 30.0),
            "height": (["lat"], np.arange(9) * 100.0),
        },
        attrs={"title": "made up", "version": 3},
    )


ENCODING = {"t": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 0.5, "_FillValue": -9999, "chunks": (10, 9, 6)}}
