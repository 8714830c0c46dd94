"""Files of other formats in place: every format is measured, and its answers are compared."""

import numpy as np
import pytest

from benchmarks.cpu import in_place


@pytest.mark.parametrize("name", ["HDF5", "NetCDF-4", "TIFF", "kerchunk"])
def test_every_format_is_measured(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(in_place, "ROUNDS", 1)
    monkeypatch.setattr(in_place, "BUDGET_S", 0.0)
    data = np.arange(70 * 16 * 16, dtype="u2").reshape(70, 16, 16)
    with in_place.opened(name, data) as cases:
        for what in ("read all", "one row", "64 random samples", "epoch"):
            found = in_place.race(cases, what, data)
            assert {"gzarr", "gzarr, Zarr"} < found.keys()
            assert in_place.row(what, found).startswith(f"| {what} | ")
        data[:] = 0
        with pytest.raises(AssertionError, match="gzarr, read all: the answer differs"):
            in_place.race(cases, "read all", data)
