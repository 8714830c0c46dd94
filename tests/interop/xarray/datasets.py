"""Datasets that the tests of the engine and of the writer share."""

import numpy as np
import pandas as pd
import xarray as xr


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


ENCODING = {
    "t": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 0.5, "_FillValue": -9999, "chunks": (10, 9, 6)},
}
