"""The tour of the demo, on a small scale."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gzarr
from examples.relief import tour
from examples.relief.relief import PLACES, column_of, load_relief, row_of
from gzarr.errors import DeviceError, GzarrError, NodeNotFoundError

RELIEF = load_relief()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One small run of the whole demo: where it wrote, what it said, what it read."""
    out = tmp_path_factory.mktemp("demo") / "new" / "out"
    lines: list[str] = []
    read = tour.run_tour(out, "cpu", tiles=1, say=lines.append)
    return SimpleNamespace(out=out, text="\n".join(lines), read=read)


def test_the_demo_reads_back_what_it_wrote(told: SimpleNamespace) -> None:
    heights = RELIEF.heights
    rows = np.array([row_of(lat) for _, lat, _ in PLACES])
    columns = np.array([column_of(lon) for _, _, lon in PLACES])
    parallels = np.stack([heights[354], heights[270], heights[204]])
    expected = [heights, heights[342:396][:, 750:852], heights[::8][:, ::8], parallels, heights[rows, columns]]
    for values, right in zip(told.read, expected, strict=True):
        np.testing.assert_array_equal(values, right)
    assert told.text.count("equals the source (v3 and v2)") == 5


def test_the_demo_tells_its_steps(told: SimpleNamespace) -> None:
    for part in ("1. The data", "2. Written as Zarr", "3. Windows read back", "4. Throughput on cpu"):
        assert part in told.text
    assert told.text.count("MB/s") == 4
    assert "placement" in told.text


def test_another_implementation_reads_the_same(told: SimpleNamespace) -> None:
    import zarr

    for name in ("relief-v2.zarr", "relief-v3.zarr"):
        group = zarr.open_group(told.out / name, mode="r")
        np.testing.assert_array_equal(group["relief"][...], RELIEF.heights)
        np.testing.assert_array_equal(group["lat"][...], RELIEF.lat)
        np.testing.assert_array_equal(group["lon"][...], RELIEF.lon)
        assert group["relief"].attrs["units"] == "m"


def test_dimensions_are_named_as_each_format_does_it(told: SimpleNamespace) -> None:
    v3 = json.loads((told.out / "relief-v3.zarr" / "relief" / "zarr.json").read_text())
    v2 = json.loads((told.out / "relief-v2.zarr" / "relief" / ".zattrs").read_text())
    assert v3["dimension_names"] == v2["_ARRAY_DIMENSIONS"] == ["lat", "lon"]


def test_a_second_run_replaces_the_first(told: SimpleNamespace) -> None:
    for form in tour.make_forms():
        tour.write_form(told.out / form.filename, form, RELIEF, "cpu")
        tour.read_form(told.out / form.filename, "cpu", RELIEF.heights)


def test_a_difference_stops_the_demo_and_is_named(tmp_path: Path) -> None:
    form = tour.make_forms()[0]
    path = tmp_path / form.filename
    tour.write_form(path, form, RELIEF, "cpu")
    gzarr.open_group(path, mode="r+")["relief"][350, 760] = 9999
    with pytest.raises(GzarrError, match=r"relief-v3\.zarr, relief\[\.\.\.\]: 1 of 583200 .* first at \(350, 760\)"):
        tour.read_form(path, "cpu", RELIEF.heights)


def test_a_wrong_dtype_is_a_difference() -> None:
    with pytest.raises(GzarrError, match=r"expected int16 \(2,\), got int32 \(2,\)"):
        tour.check_equal("x", np.zeros(2, "i4"), np.zeros(2, "i2"))


def test_the_clock_waits_for_the_device_and_takes_the_median() -> None:
    waited = []
    tour.wait_for(SimpleNamespace(device=SimpleNamespace(synchronize=lambda: waited.append(1))))
    tour.wait_for(np.zeros(1))
    assert waited == [1]
    calls = []
    assert tour.median_s(lambda: calls.append(1), 3) >= 0
    assert len(calls) == 4


def test_an_impossible_device_stops_the_demo_before_it_writes(tmp_path: Path) -> None:
    with pytest.raises(DeviceError):
        tour.run_tour(tmp_path, "abacus", tiles=1, say=lambda _: None)
    assert not list(tmp_path.iterdir())


def test_an_unreadable_place_is_an_error_of_gzarr(tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        tour.read_form(tmp_path / "nothing.zarr", "cpu", RELIEF.heights)
