"""The demo: its data, its colours, and the whole story on a small scale."""

from __future__ import annotations

import importlib.util
import json
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import gzarr
from gzarr.demo import story
from gzarr.demo.picture import MAP, draw_picture, enlarge
from gzarr.demo.relief import load_relief, unpack_heights
from gzarr.demo.shading import hillshade, shaded_relief, tint
from gzarr.demo.throughput import median_s, wait_for
from gzarr.demo.windows import HIMALAYA, PLACES, Answers, cell_col, cell_row, make_windows
from gzarr.errors import DeviceError, GzarrError, NodeNotFoundError

RELIEF = load_relief()


def tool(name: str) -> ModuleType:
    """A script from ``tools/``, which is no package."""
    path = Path(__file__).parents[2] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- data --------------------------------------------------------------------------------------------------------------


def test_relief_is_the_grid_that_was_packed() -> None:
    assert RELIEF.heights.shape == (540, 1080)
    assert RELIEF.heights.dtype == np.int16
    assert (RELIEF.heights.min(), RELIEF.heights.max()) == (-9027, 6229)
    assert zlib.crc32(RELIEF.heights.astype("<i2").tobytes()) == 692407013


def test_coordinates_are_cell_centres() -> None:
    assert RELIEF.lat.shape == (540,)
    assert RELIEF.lon.shape == (1080,)
    np.testing.assert_allclose([RELIEF.lat[0], RELIEF.lat[-1]], [-90 + 1 / 6, 90 - 1 / 6])
    np.testing.assert_allclose([RELIEF.lon[0], RELIEF.lon[-1]], [-180 + 1 / 6, 180 - 1 / 6])


def test_land_covers_as_much_of_the_globe_as_it_should() -> None:
    land = ((RELIEF.heights >= 0) * np.cos(np.deg2rad(RELIEF.lat))[:, None]).sum() / 1080
    assert land / np.cos(np.deg2rad(RELIEF.lat)).sum() == pytest.approx(0.29, abs=0.02)


def test_places_lie_where_they_should() -> None:
    rows, cols = [cell_row(place.lat) for place in PLACES], [cell_col(place.lon) for place in PLACES]
    assert max(abs(RELIEF.lat[row] - place.lat) for row, place in zip(rows, PLACES, strict=True)) <= 1 / 6
    assert max(abs(RELIEF.lon[col] - place.lon) for col, place in zip(cols, PLACES, strict=True)) <= 1 / 6
    heights = dict(zip((place.name for place in PLACES), RELIEF.heights[rows, cols].tolist(), strict=True))
    assert heights["Mount Everest"] > 5000
    assert heights["Dead Sea"] < 0
    assert heights["Challenger Deep"] < -7000


def test_unpacking_undoes_packing_for_any_heights() -> None:
    heights = np.random.default_rng(3).integers(-32768, 32768, (540, 1080)).astype("i2")
    np.testing.assert_array_equal(unpack_heights(tool("pack_relief").pack(heights)), heights)


@pytest.mark.parametrize("packed", [b"", b"not an xz file", lzma.compress(b"too short")])
def test_a_damaged_relief_file_says_so(packed: bytes) -> None:
    with pytest.raises(GzarrError, match=r"relief\.xz is damaged .*; reinstall gzarr"):
        unpack_heights(packed)


# -- colours -----------------------------------------------------------------------------------------------------------


def test_flat_ground_has_light_one() -> None:
    flat = np.zeros((3, 4))
    np.testing.assert_allclose(hillshade(flat, flat, flat, np.zeros(3), 1.0), 1.0)


def test_slopes_facing_north_west_are_lit_and_their_backs_dark() -> None:
    ground, equator, rise = np.full((9, 9), 500.0), np.zeros(9), np.full((9, 9), 400.0)
    facing = hillshade(-rise, rise, ground, equator, 1 / 3)
    back = hillshade(rise, -rise, ground, equator, 1 / 3)
    assert facing.min() > 1.05
    assert back.max() < 0.95


def test_tints_separate_land_from_sea() -> None:
    sea, land = tint(np.array([-1.0, 1.0]))
    assert sea[2] > sea[0] + 30
    assert land[1] > land[2] + 30


def test_coast_is_drawn_between_land_and_sea_but_not_on_flat_ice() -> None:
    island = np.full((9, 9), -100.0)
    island[3:6, 3:6] = 100
    lat = np.zeros(9)
    drawn, bare = shaded_relief(island, lat, 1.0), shaded_relief(island, lat, 1.0, coast=0)
    assert (drawn != bare).any(axis=-1)[2:7, 2:7].any()
    assert not (drawn != bare).any(axis=-1)[:, 0].any()
    ice = np.zeros((5, 5))
    np.testing.assert_array_equal(shaded_relief(ice, lat[:5], 1.0), shaded_relief(ice, lat[:5], 1.0, coast=0))


def test_enlarging_joins_the_edges_at_180_degrees() -> None:
    ramp = np.tile(np.concatenate([np.arange(0, 500, 10), np.arange(500, 0, -10)]).astype("i2"), (4, 1))
    large = enlarge(ramp, 2)
    assert large.shape == (8, 200)
    assert abs(large[0, 0] - large[0, -1]) < 20


def test_the_picture_shows_sea_land_and_the_outlined_window() -> None:
    image = np.asarray(draw_picture(answers(), "subtitle")).astype(int)

    def at(lat: float, lon: float) -> np.ndarray:
        return image[MAP.y + round((90 - lat) * 6), MAP.x + round((lon + 180) * 6)]

    pacific, congo = at(-40, -130), at(-2, 21)
    assert pacific[2] > pacific[0] + 50
    assert congo[1] > congo[2]
    south, north, west, _ = HIMALAYA
    np.testing.assert_array_equal(at((south + north) / 2 + 1, west), (200, 16, 46))


def answers() -> Answers:
    """The right ones, from the source."""
    return Answers(RELIEF.heights, *(window.expected(RELIEF.heights) for window in make_windows()))


# -- story -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One small run of the whole demo: where it wrote, what it said, what it read."""
    out = tmp_path_factory.mktemp("demo") / "new" / "out"
    lines: list[str] = []
    read = story.run_demo(out, "cpu", tiles=1, say=lines.append)
    return SimpleNamespace(out=out, text="\n".join(lines), read=read)


def test_the_demo_reads_back_what_it_wrote(told: SimpleNamespace) -> None:
    expected = answers()
    for name in Answers.__slots__:
        np.testing.assert_array_equal(getattr(told.read, name), getattr(expected, name))
    assert told.text.count("equals the source (v3 and v2)") == 5


def test_the_demo_tells_its_steps(told: SimpleNamespace) -> None:
    for part in ("1. The data", "2. Written as Zarr", "3. Windows read back", "4. Throughput on cpu", "5. A picture"):
        assert part in told.text
    assert told.text.count("MB/s") == 4
    assert "placement" in told.text


def test_the_demo_leaves_two_groups_and_a_picture(told: SimpleNamespace) -> None:
    assert sorted(path.name for path in told.out.iterdir()) == ["relief-v2.zarr", "relief-v3.zarr", "relief.png"]
    with Image.open(told.out / "relief.png") as image:
        assert image.size == (2352, 1786)


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
    for form in story.make_forms():
        story.write_form(told.out / form.filename, form, RELIEF, "cpu")
        story.read_form(told.out / form.filename, "cpu", RELIEF.heights)


def test_a_difference_stops_the_demo_and_is_named(tmp_path: Path) -> None:
    form = story.make_forms()[0]
    path = tmp_path / form.filename
    story.write_form(path, form, RELIEF, "cpu")
    gzarr.open_group(path, mode="r+")["relief"][350, 760] = 9999
    with pytest.raises(GzarrError, match=r"relief-v3\.zarr, relief\[\.\.\.\]: 1 of 583200 .* first at \(350, 760\)"):
        story.read_form(path, "cpu", RELIEF.heights)


def test_a_wrong_dtype_is_a_difference() -> None:
    with pytest.raises(GzarrError, match=r"expected int16 \(2,\), got int32 \(2,\)"):
        story.check_equal("x", np.zeros(2, "i4"), np.zeros(2, "i2"))


def test_without_pillow_only_the_picture_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., object] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "PIL" else find(name, *rest))
    lines: list[str] = []
    story.run_demo(tmp_path, "cpu", tiles=1, say=lines.append)
    assert lines[-1] == "   not drawn: Pillow is missing; pip install 'gzarr[demo]' adds it"
    assert not (tmp_path / "relief.png").exists()


def test_windows_that_live_on_a_device_are_copied_to_the_host() -> None:
    values = np.arange(3)
    on_device = SimpleNamespace(get=lambda: values)
    assert story.to_host(on_device) is values
    assert story.to_host(values) is values


def test_the_clock_waits_for_the_device_and_takes_the_median() -> None:
    waited = []
    wait_for(SimpleNamespace(device=SimpleNamespace(synchronize=lambda: waited.append(1))))
    wait_for(np.zeros(1))
    assert waited == [1]
    calls = []
    assert median_s(lambda: calls.append(1), 3) >= 0
    assert len(calls) == 4


def test_an_impossible_device_stops_the_demo_before_it_writes(tmp_path: Path) -> None:
    with pytest.raises(DeviceError):
        story.run_demo(tmp_path, "abacus", tiles=1, say=lambda _: None)
    assert not list(tmp_path.iterdir())


def test_an_unreadable_place_is_an_error_of_gzarr(tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        story.read_form(tmp_path / "nothing.zarr", "cpu", RELIEF.heights)
