"""Filters with halos over large arrays: what scipy.ndimage gives for the whole array, in bounded memory."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.images import Image, build_pyramid, create_image, depth_of, map_blocks, map_overlap, open_image
from tests.support.memory import traced

ndi = pytest.importorskip("scipy.ndimage", reason="scipy is the oracle")
DEVICES = ["cpu", "emulated"]


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1000, (20, 33, 41)).astype("u2")


@pytest.mark.parametrize("mode", ["reflect", "mirror", "nearest", "wrap", "constant"])
def test_filters_are_those_of_scipy(data: np.ndarray, mode: str, device: str) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))

    def median(block: Any) -> Any:
        return ndi.median_filter(block, (3, 5, 3))

    out = map_overlap(median, z, None, (1, 2, 1), mode, cval=17, device=device, max_nbytes=10**6)
    np.testing.assert_array_equal(out.to("cpu")[...], ndi.median_filter(data, (3, 5, 3), mode=mode, cval=17))
    assert (out.chunks, out.dtype) == (z.chunks, z.dtype)


MODES = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


HALO = st.one_of(st.integers(0, 3), st.integers(0, 20), st.tuples(st.integers(0, 20), st.integers(0, 20)))


@settings(max_examples=40)
@given(st.data(), st.sampled_from(DEVICES))
def test_halos_of_any_depth_are_those_of_numpy(draw: st.DataObject, device: str) -> None:
    shape = tuple(draw.draw(st.lists(st.sampled_from([1, 2, 3, 5, 12]), min_size=1, max_size=3)))
    chunks = tuple(draw.draw(st.integers(1, n)) for n in shape)
    halos = [draw.draw(HALO) for _ in shape]
    modes = [draw.draw(st.sampled_from(list(MODES))) for _ in shape]
    values = padded = np.random.default_rng(0).integers(0, 1000, shape)
    before, after = zip(*[halo if isinstance(halo, tuple) else (halo, halo) for halo in halos], strict=True)
    for axis, mode in enumerate(modes):
        width = [(0, 0)] * axis + [(before[axis], after[axis])] + [(0, 0)] * (len(shape) - axis - 1)
        constant = {"constant_values": 7} if mode == "constant" else {}
        padded = np.pad(padded, width, MODES[mode], **constant)
    axes = tuple(range(len(shape)))

    def corners(block: Any, *others: Any) -> Any:
        """What the ends of the halos of each element hold."""
        xp = gzarr.array_namespace(block)
        found = 10_000 * xp.roll(block, before, axes) + xp.roll(block, tuple(-n for n in after), axes)
        assert all((other == block).all() for other in others)
        return found

    inner = tuple(slice(b, b + n) for b, n in zip(before, shape, strict=True))
    cuts = st.tuples(*[st.integers(1, n) for n in shape])
    inputs = [gzarr.array(values, chunks=chunks)]
    if draw.draw(st.booleans()):
        inputs.append(gzarr.array(values.astype("u2"), chunks=draw.draw(cuts)))
    out = gzarr.zeros(shape, dtype="i8", chunks=draw.draw(cuts)) if draw.draw(st.booleans()) else None
    nbytes = draw.draw(st.sampled_from([1, 1000, 10**8]))
    keywords: dict[str, Any] = {"cval": 7, "device": device}
    try:
        made = map_overlap(corners, inputs, out, halos, modes, max_nbytes=nbytes, **keywords)
    except ValueError as error:  # which says the least, as measured: another time it may be a little more
        (least,) = re.findall(r"take (\d+) bytes", str(error))
        made = map_overlap(corners, inputs, out, halos, modes, max_nbytes=2 * int(least) + (1 << 20), **keywords)
    np.testing.assert_array_equal(made.to("cpu")[...], corners(padded)[inner])


def test_a_function_is_told_where_its_block_lies(data: np.ndarray, tmp_path: Path) -> None:
    image = picture(tmp_path / "in.zarr", data)

    def place(block: Any, where: Any) -> Any:
        y = np.arange(where.box[1].start - where.halo[1][0], where.box[1].stop + where.halo[1][1])
        assert where.units["x"][1] == (where.box[2].stop - 0.5) * 0.5
        return np.broadcast_to(y[:, None], block.shape).astype("u2")

    out = map_overlap(place, image, None, {"y": 2, "x": 1}, block={"y": 10}, max_nbytes=10**6)
    np.testing.assert_array_equal(out[0][...], np.broadcast_to(np.arange(33)[:, None], data.shape))
    np.testing.assert_array_equal(map_blocks(np.square, image, None)[0][...], np.square(data))  # another "where"


def test_inputs_differ_in_chunks_and_dtype(data: np.ndarray, device: str) -> None:
    z, mask = gzarr.array(data, chunks=(8, 16, 16)), gzarr.array(data > 500, chunks=(20, 7, 41))

    def mean_within(block: Any, inside: Any) -> Any:
        return ndi.uniform_filter(np.where(inside, block, 0).astype("f8"), 3)

    out = map_overlap(mean_within, (z, mask), None, 1, "mirror", device=device, max_nbytes=2 * 10**6)
    expected = ndi.uniform_filter(np.where(data > 500, data, 0).astype("f8"), 3, mode="mirror")
    np.testing.assert_allclose(out.to("cpu")[...], expected)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gaussian_filter", {"sigma": (0.5, 1, 2), "truncate": 3}),
        ("gaussian_laplace", {"sigma": 1}),
        ("median_filter", {"size": (1, 3, 4)}),
        ("maximum_filter", {"footprint": np.ones((3, 1, 5)), "origin": (1, 0, -2)}),
        ("grey_opening", {"size": 3}),
        ("white_tophat", {"structure": np.zeros((3, 5, 1))}),
        ("convolve", {"weights": np.arange(45.0).reshape(3, 3, 5)}),
        ("binary_closing", {"iterations": 2}),
        ("binary_dilation", {"iterations": 3, "structure": np.ones((3, 3, 1))}),
        ("sobel", {}),
    ],
)
def test_depths_of_known_filters_are_enough(data: np.ndarray, name: str, given: dict[str, Any]) -> None:
    values = data > 900 if name.startswith("binary") else data.astype("i4")
    func = partial(getattr(ndi, name), **given)
    depth = depth_of(func)
    out = map_overlap(func, gzarr.array(values, chunks=(5, 6, 7)), None, depth, "mirror", block=(10, 12, 14))
    inner = tuple(slice(n, -n or None) for n in np.broadcast_to(depth, 3))  # some filters have no mode
    np.testing.assert_array_equal(out[...][inner], func(values)[inner])


def test_depths_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="fourier_gaussian is not known"):
        depth_of(ndi.fourier_gaussian, sigma=1)
    with pytest.raises(ValueError, match="said by sigma"):
        depth_of(ndi.gaussian_filter)
    with pytest.raises(ValueError, match="arbitrarily far"):
        depth_of(ndi.binary_dilation, iterations=0)


def test_inputs_broadcast_and_levels_are_repeated(data: np.ndarray, device: str) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    plane, row, half = data[:1, :, :1], data[0], data[::2, ::2, ::2]
    inputs = [z, *(gzarr.array(one, chunks=5) for one in (plane, row, half))]

    def add(block: Any, *others: Any) -> Any:
        assert others[2].shape == block.shape
        return (block + others[0] + others[1] + others[2])[...]

    out = map_overlap(add, inputs, None, (1, 2, 3), "nearest", device=device, max_nbytes=3 * 10**6)
    repeated = np.kron(half, np.ones((2, 2, 2), "u2"))[:20, :33, :41]
    np.testing.assert_array_equal(out.to("cpu")[...], data + plane + row + repeated)


@pytest.mark.parametrize("scale", [2, 1 / 2])
def test_results_of_another_scale(data: np.ndarray, tmp_path: Path, device: str, scale: float) -> None:
    image = picture(tmp_path / "in.zarr", data)

    def zoom(block: Any) -> Any:
        smooth = block.copy()
        smooth[:, 2:-2] = block[:, :-4] // 2 + block[:, 4:] // 2
        return smooth[:, ::2, ::2] if scale < 1 else smooth.repeat(2, 1).repeat(2, 2)

    factors = {"y": scale, "x": scale}
    out = map_overlap(zoom, image, None, {"y": 2}, scale=factors, device=device, max_nbytes=4 * 10**5)
    padded = np.pad(data, [(0, 0), (2, 2), (0, 0)], "symmetric")
    smooth = padded[:, :-4] // 2 + padded[:, 4:] // 2
    expected = smooth[:, ::2, ::2] if scale < 1 else smooth.repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(out.to("cpu")[0][...], expected)
    assert out.scale() == {"z": 2, "y": 0.5 / scale, "x": 0.5 / scale}
    assert out.translation()["x"] == (0.25 if scale < 1 else -0.125)


def test_axes_are_left_out_and_new(data: np.ndarray, tmp_path: Path, device: str) -> None:
    image = picture(tmp_path / "in.zarr", data)

    def ends(block: Any) -> Any:
        return gzarr.array_namespace(block).stack([block.min(0), block.max(0)])

    call = {"out_axes": "cyx", "out_shape": {"c": 2}, "device": device, "max_nbytes": 4 * 10**5}
    out = map_blocks(ends, image, tmp_path / "out.zarr", **call)
    np.testing.assert_array_equal(out.to("cpu")[0][...], [data.min(0), data.max(0)])
    assert (out.axes, out.scale()["x"]) == (("c", "y", "x"), 0.5)
    longer = map_blocks(lambda block: np.repeat(block, 3, 0)[:50], image, None, out_shape={"z": 50}, block={"y": 7})
    np.testing.assert_array_equal(longer[0][...], data.repeat(3, 0)[:50])
    with pytest.raises(ValueError, match="the new axis 'c' of out_axes needs"):
        map_blocks(ends, image, None, out_axes="cyx")


def test_several_results_of_one_pass_go_on(data: np.ndarray, tmp_path: Path) -> None:
    image = picture(tmp_path / "in.zarr", data)
    outs = [tmp_path / "even.zarr", gzarr.zeros(data.shape, chunks=(20, 12, 16), dtype="f4")]
    calls = iter(range(1000))

    def halves(block: Any, limit: list[int]) -> Any:
        if next(calls) > limit[0]:
            raise ArithmeticError("no")
        return block // 2, (block % 2).astype("f4")

    limit = [3]
    for resume in ("a", "a"):
        try:
            made = map_blocks(lambda b: halves(b, limit), image, outs, max_nbytes=4 * 10**5, resume=resume, levels=1)
        except ArithmeticError:
            limit[0] = 1000
    np.testing.assert_array_equal(made[0][0][...], data // 2)
    np.testing.assert_array_equal(made[1][...], data % 2)
    expected = build_pyramid(picture(tmp_path / "two.zarr", data // 2), 1)
    np.testing.assert_array_equal(made[0][1][...], expected[1][...])


def test_what_is_not_stored_costs_nothing() -> None:
    z = gzarr.zeros((64, 64), chunks=(8, 8))
    z[:8, :8] = 1
    seen = []
    out = map_overlap(lambda b: seen.append(b.shape) or b * 2, z, None, 1, keeps_fill=True, max_nbytes=10**5)
    np.testing.assert_array_equal(out[...], z[...] * 2)
    assert sum(map(np.prod, seen[1:])) < 64 * 64


def counted_store(folder: Path) -> gzarr.storage.CountingStore:
    return gzarr.storage.CountingStore(gzarr.storage.LocalStore(folder))


def test_every_shard_is_written_once_and_every_chunk_read_once(data: np.ndarray, tmp_path: Path) -> None:
    source, target = counted_store(tmp_path / "in.zarr"), counted_store(tmp_path / "out.zarr")
    z = gzarr.create_array(source, data=data, chunks=(4, 8, 8))
    out = gzarr.create_array(target, shape=data.shape, dtype="u2", chunks=(4, 8, 8), shards=(8, 16, 16))
    source.reset()
    target.reset()
    map_overlap(lambda x: ndi.maximum_filter(x, 3), z, out, 1, max_nbytes=500_000)
    written = [key for key in target.written if key.startswith("c/")]
    assert len(written) == len(set(written)) == 3 * 3 * 3
    in_trial = z.nchunks
    assert len(source.requests) <= 1.3 * (in_trial + z.nchunks)  # threads may want a chunk at the same time
    np.testing.assert_array_equal(out[...], ndi.maximum_filter(data, 3))


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_georeference_stays_where_elements_do(version: Any) -> None:
    said: dict[str, Any] = {"grid_mapping": "crs", "proj:code": "EPSG:32633", "spatial:transform": [3, 0, 9, 0, -3, 8]}
    image = create_image(data=np.arange(-1.0, 11).reshape(3, 4), skip=-1, version=version)
    image[0].attrs.update(said | {"units": "m", "missing_value": -1})
    for one in (image, image[0]):
        same = map_blocks(np.copy, one, None)
        first = same[0] if isinstance(same, Image) else same
        assert first.attrs.items() >= (said | {"missing_value": -1}).items()
        assert "units" not in first.attrs
        assert first.stats().n_missing == 1
        small = map_blocks(lambda block: block[:1, ::2], one, None, scale={1: 1 / 2}, out_shape={0: 1})
        turned = gzarr.images.flip(one, None, 0)
        for other in (small, turned):
            assert not said.keys() & (other[0] if isinstance(other, Image) else other).attrs.keys()


def test_map_blocks_goes_element_by_element(data: np.ndarray, tmp_path: Path, device: str) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16), compressors=gzarr.codecs.ZstdCodec(level=3))
    out = map_blocks(lambda x: (x > 500).astype("u1"), z, tmp_path / "o.zarr", device=device, max_nbytes=10**5)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "o.zarr", mode="r")[...], data > 500)
    assert (out.chunks, out.compressors) == (z.chunks, z.compressors)


def test_blocks_of_map_blocks_may_be_changed(data: np.ndarray) -> None:
    def add(block: Any) -> Any:
        block += 1
        return block

    np.testing.assert_array_equal(map_blocks(add, gzarr.array(data, chunks=(8, 16, 16)), None)[...], data + 1)


def test_blocks_have_the_shape_that_is_asked_for(data: np.ndarray) -> None:
    seen = set()

    def look(block: Any) -> Any:
        seen.add(block.shape)
        return block

    z = gzarr.array(data, chunks=(4, 4, 4))
    out = map_overlap(look, z, None, {0: 1}, block={1: 11, 2: 20})
    np.testing.assert_array_equal(out[...], data)
    assert {shape[1:] for shape in seen} - {data.shape[1:]} <= {(n, m) for n in (11, 1, 9) for m in (20, 4, 1)}


def test_progress_counts_bytes(data: np.ndarray) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    calls: list[tuple[int, int, str]] = []
    map_blocks(lambda x: x, z, None, max_nbytes=10**5, progress=lambda *call: calls.append(call))
    assert calls[-1][:2] == (data.nbytes, data.nbytes)
    assert len(calls) > 3


def test_an_array_without_elements_needs_no_call() -> None:
    out = map_overlap(pytest.fail, gzarr.zeros((0, 5), chunks=(2, 2), dtype="u1"), None, {1: 2}, dtype="f4")
    assert (out.shape, out.dtype) == ((0, 5), np.dtype("f4"))


# -- images ------------------------------------------------------------------------------------------------------------


def smooth(block: Any) -> Any:
    return ndi.uniform_filter(block, 3)


def picture(folder: Path, data: np.ndarray, **options: Any) -> Image:
    return create_image(folder, data, chunks=(8, 8, 8), scale=(2, 0.5, 0.5), units="micrometer", **options)


def test_the_pyramid_of_a_new_image_is_built_in_the_same_pass(
    data: np.ndarray, tmp_path: Path, version: str, device: str
) -> None:
    image = picture(tmp_path / "in.zarr", data, version=version)
    levels = {"levels": 2, "factors": 2}
    made = map_overlap(
        smooth, image, tmp_path / "out.zarr", {"z": 1, "y": 1, "x": 1}, device=device, max_nbytes=10**6, **levels
    )
    out = open_image(tmp_path / "out.zarr", "r")
    np.testing.assert_array_equal(out[0][...], ndi.uniform_filter(data, 3))
    expected = build_pyramid(picture(tmp_path / "two.zarr", out[0][...], version=version), **levels)
    assert len(out) == len(made) == len(expected) == 3
    for one, two in zip(out, expected, strict=True):
        np.testing.assert_array_equal(one[...], two[...])
    assert [out.scale(k) for k in range(3)] == [expected.scale(k) for k in range(3)]
    assert (out.units, out.version, out.metadata.name) == (image.units, version, "out.zarr")
    assert gzarr.verify(tmp_path / "out.zarr").ok


def test_an_image_keeps_its_levels(data: np.ndarray, tmp_path: Path) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    image = build_pyramid(
        picture(tmp_path / "a.zarr", np.zeros_like(data), shards=(16, 16, 16)), 1, {"y": 2, "x": 2}, "max"
    )
    map_overlap(smooth, z, image, 1, method="max", max_nbytes=10**6)
    out = open_image(tmp_path / "a.zarr", "r")
    assert [level.shape for level in out] == [(20, 33, 41), (20, 17, 21)]
    np.testing.assert_array_equal(out[1][0, 0, 0], ndi.uniform_filter(data, 3)[0, :2, :2].max())
    assert gzarr.verify(tmp_path / "a.zarr").ok


def test_an_image_is_not_its_own_output(data: np.ndarray, tmp_path: Path) -> None:
    image = build_pyramid(picture(tmp_path / "a.zarr", data), 1)
    for inputs in (image, image[0]):
        with pytest.raises(ValueError, match="is an input"):
            map_blocks(identity, inputs, image)


def test_methods_that_do_not_fit_one_pass_are_refused(data: np.ndarray, tmp_path: Path) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    with pytest.raises(ValueError, match="leave it out and call build_pyramid afterwards"):
        map_overlap(smooth, z, picture(tmp_path / "a.zarr", data), 1, method="gaussian")
    with pytest.raises(ValueError, match="average"):
        map_overlap(smooth, z, picture(tmp_path / "b.zarr", data), 1, method="average")


# -- going on ----------------------------------------------------------------------------------------------------------


def test_icechunk_takes_no_notes(data: np.ndarray) -> None:
    icechunk = pytest.importorskip("icechunk")
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    out = gzarr.create_array(session.store, shape=data.shape, chunks=(8, 16, 16), dtype="u2")
    map_overlap(smooth, gzarr.array(data, chunks=(8, 16, 16)), out, 1)
    np.testing.assert_array_equal(out[...], ndi.uniform_filter(data, 3))


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Blocks, results, shared chunks and what the function takes, of an array of 8 MiB."""
    z = gzarr.create_array(tmp_path / "a", data=np.ones((32, 256, 512), "u2"), chunks=(16, 64, 64))

    def wasteful(block: Any) -> Any:
        return (block.astype("f4") * 2).astype("u2")

    with traced() as peak:
        map_overlap(wasteful, z, tmp_path / "b", 2, max_nbytes=5 << 20)
        assert peak() < 6 << 20


# -- errors ------------------------------------------------------------------------------------------------------------


def identity(block: Any) -> Any:
    return block


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": {"z": -1}}, "depth names the axis 'z'; the array has 0, 1, 2"),
        ({"depth": -1}, "is negative"),
        ({"depth": (1, 2)}, r"depth \(1, 2\) has 2 items for 3 axes"),
        ({"boundary": "periodic"}, "boundary 'periodic' of axis 0 is unknown; expected one of reflect, mirror"),
        ({"boundary": "constant", "cval": -1}, "cval -1 is no uint16"),
        ({"func": lambda x: x[1:]}, r"func returned shape \(\d+, \d+, \d+\), expected"),
        ({"func": lambda x: x.astype("f4"), "out": "same"}, "returned float32, but the output is of uint16"),
        ({"max_nbytes": 1000}, "max_nbytes=1000: the smallest blocks that can be written whole take"),
        ({"out": "input"}, "is an input, and would be read after it was written"),
        ({"out": "short"}, r"has shape \(3,\), the result \(20, 33, 41\)"),
        ({"block": 0}, "block 0 must be of positive integers"),
        ({"inputs": []}, "there is no input"),
        ({"inputs": gzarr.array(3)}, "has no axes"),
    ],
)
def test_bad_arguments_are_refused(data: np.ndarray, change: dict[str, Any], message: str) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    outs = {"input": z, "same": gzarr.zeros_like(z), "short": gzarr.zeros(3)}
    arguments = {"func": identity, "inputs": z, "out": None, "depth": 1, **change}
    arguments["out"] = outs.get(arguments["out"])
    with pytest.raises(ValueError, match=message):
        map_overlap(**arguments)


def test_inputs_of_other_shapes_and_kinds_are_refused(data: np.ndarray) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    with pytest.raises(ValueError, match="inputs must have one shape, or broadcast"):
        map_blocks(identity, [z, gzarr.zeros(3)], None)
    with pytest.raises(TypeError, match="inputs must be gzarr arrays or images, got ndarray"):
        map_blocks(identity, data, None)
    with pytest.raises(TypeError, match=r"^func must be callable, got str"):
        map_blocks("sqrt", z, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="func returned NoneType, expected an array"):
        map_blocks(lambda _: None, z, None)


def test_the_same_place_in_another_store_is_an_overlap(data: np.ndarray, tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "g.zarr", name="a", data=data)
    again = gzarr.open_array(tmp_path / "g.zarr" / "a", mode="r+")
    with pytest.raises(ValueError, match="is an input"):
        map_blocks(identity, z, again)


def test_an_input_is_not_replaced(data: np.ndarray, tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "g.zarr", name="a", data=data)
    for out in (tmp_path / "g.zarr", tmp_path / "g.zarr" / "a"):
        with pytest.raises(ValueError, match="would be deleted before it is read"):
            map_blocks(identity, [gzarr.zeros_like(z), z], out, overwrite=True)
    np.testing.assert_array_equal(z[...], data)


@pytest.mark.parametrize("wrong", [{"max_nbytes": 1000}, {"func": lambda x: x[:1]}, {"dtype": "f4"}])
def test_nothing_is_created_that_cannot_be_filled(data: np.ndarray, tmp_path: Path, wrong: dict[str, Any]) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    with pytest.raises(ValueError, match=r"max_nbytes=1000|returned shape|returned uint16"):
        map_overlap(**{"func": identity, "inputs": z, "out": tmp_path / "o.zarr", "depth": 1, **wrong})
    assert not (tmp_path / "o.zarr").exists()


def test_errors_name_the_block(data: np.ndarray) -> None:
    z = gzarr.array(data, chunks=(8, 16, 16))
    n_calls = iter(range(1000))

    def fails(block: Any) -> Any:
        if next(n_calls):
            raise ArithmeticError("no")
        return block

    with pytest.raises(ArithmeticError) as caught:
        map_overlap(fails, z, None, 1)
    assert "map_overlap: in the block [0:" in str(caught.value.__notes__)

    def shrinks(block: Any) -> Any:
        return block if next(n_calls) < 5 else block[:1]

    n_calls = iter(range(4, 1000))
    with pytest.raises(ValueError, match=r"(?s)func returned shape \(1, .*in the block \[0:"):
        map_overlap(shrinks, z, None, 1)


def test_a_damaged_chunk_is_named(data: np.ndarray, tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "z.zarr", data=data, chunks=(8, 16, 16))
    (tmp_path / "z.zarr" / "c" / "1" / "1" / "1").write_bytes(b"damaged")
    with pytest.raises(gzarr.ChunkError, match="c/1/1/1"):
        map_overlap(identity, z, None, 1)


def test_what_keeps_fill_still_has_the_constant_past_the_ends() -> None:
    z = gzarr.create_array(shape=(40, 30), chunks=(4, 5), dtype="f8")
    z[20, 15] = 3
    call: dict[str, Any] = {"boundary": "constant", "cval": 9.0, "keeps_fill": True, "block": 4}
    out = map_overlap(lambda block: ndi.uniform_filter(block, 3), z, None, 1, **call)
    np.testing.assert_allclose(out[...], ndi.uniform_filter(z[...], 3, mode="constant", cval=9), atol=1e-12)


def test_what_keeps_fill_replaces_old_values_of_every_output() -> None:
    z = gzarr.create_array(shape=(40, 30), chunks=(4, 5), dtype="f8")
    z[20, 15] = 3
    outs = [gzarr.zeros(z.shape, chunks=(4, 5)) for _ in range(2)]
    outs[1][...] = 7
    map_blocks(lambda block: (block * 2, block * 3), z, outs, keeps_fill=True, block=4)
    np.testing.assert_array_equal(outs[1][...], z[...] * 3)


@pytest.mark.parametrize("axis", [0, -2, "y"])
def test_axes_of_out_shape_are_whole_even_if_as_long_as_before(data: np.ndarray, tmp_path: Path, axis: Any) -> None:
    image = picture(tmp_path / "in.zarr", data)
    n = {"y": 1, -2: 1, 0: 0}[axis]
    call: dict[str, Any] = {"out_shape": {axis: data.shape[n]}, "block": 5}
    out = map_blocks(lambda block: np.cumsum(block, n, dtype="u8"), image, None, **call)
    np.testing.assert_array_equal(out[0][...], np.cumsum(data, n, dtype="u8"))
    with pytest.raises(ValueError, match="out_shape names the axis 'q'"):
        map_blocks(np.negative, image, None, out_shape={"q": 3})
    with pytest.raises(ValueError, match="names an axis twice"):
        map_blocks(np.negative, image, None, out_axes="yyx")


def test_notes_of_parts_that_one_process_took_over_are_gone(tmp_path: Path) -> None:
    z = gzarr.array(np.arange(1, 1601).reshape(40, 40), chunks=(10, 10))
    out = tmp_path / "out.zarr"
    map_blocks(np.negative, z, out, part=(0, 2))
    made = map_blocks(np.negative, z, out, resume=True)
    with pytest.raises(
        gzarr.errors.ContainsArrayError, match="pass overwrite=True to replace it"
    ):  # what is whole may be anything
        map_blocks(np.square, z, out, resume=True)
    np.testing.assert_array_equal(made[...], -z[...])
    for part in range(2):  # of another job in the same place
        map_blocks(np.square, z, made, part=(part, 2))
    np.testing.assert_array_equal(made[...], z[...] ** 2)
