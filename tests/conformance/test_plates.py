"""Plates of OME-Zarr: other implementations accept and read what gzarr writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gzarr.images import create_plate
from tests.conformance.image_peers import CHECKS, objections, quiet

for _name in CHECKS:
    pytest.importorskip(_name)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_plates_are_valid(tmp_path: Path, version: Any) -> None:
    import ngff_zarr

    path = tmp_path / "plate.zarr"
    plate = create_plate(path, rows=2, columns=3, acquisitions=["a", "b"], version=version)
    for row, column, run in (("A", 1, 0), ("A", 1, 1), ("B", 3, 0)):
        picture = np.full((16, 24), run, "u2")
        plate.create_field(row, column, picture, acquisition=run, scale=0.5, units="micrometer")
    assert objections(path, version) == []
    with quiet():
        read = ngff_zarr.from_hcs_zarr(str(path), validate=True)
    assert [well.path for well in read.wells] == ["A/1", "B/3"]
    well = read.get_well("A", "1")
    assert [image.acquisition for image in well.images] == [0, 1]
    np.testing.assert_array_equal(well.get_image(1).images[0].data, np.full((16, 24), 1))
