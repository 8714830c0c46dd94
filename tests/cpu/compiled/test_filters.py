"""The filters of the compiled loop are those of numcodecs, bit for bit."""

from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gzarr
from gzarr.codecs import (
    BytesCodec,
    CastValueCodec,
    Crc32cCodec,
    NumcodecsCodec,
    ScaleOffsetCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from gzarr.codecs.rounding import ROUNDINGS
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.errors import ChunkError, GzarrError
from tests.cpu.compiled.looping import Watched, files, made_to_lie, needs_loop
from tests.properties.cases import same

pytestmark = [
    needs_loop,
    pytest.mark.usefixtures("few_chunks_are_enough"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]

SHAPE, CHUNK = (23, 9), (10, 5)
INTEGERS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"]


def delta(dtype: str, astype: str | None = None) -> numcodecs.Delta:
    return numcodecs.Delta(dtype, astype or dtype)


def scaled(dtype: str, astype: str, offset: Any = 1000, scale: Any = 10.0) -> numcodecs.FixedScaleOffset:
    return numcodecs.FixedScaleOffset(offset, scale, dtype, astype)


#: Filters by the dtype of the array. Numbers are from 0 to 250, and all of them fit.
KNOWN: list[tuple[str, list[Any]]] = [
    *((order + dtype, [delta(order + dtype)]) for dtype in (*INTEGERS, "f4", "f8") for order in "<>"),
    ("<u2", [delta("<u2", "u1")]),
    ("<i4", [delta("<i4", "<i2")]),
    ("<i4", [delta("<i4", "u1")]),
    ("<u4", [delta("<u4", "<i2")]),
    ("<f8", [delta("<f8", "<f4")]),
    ("<M8[s]", [delta("<i8")]),
    *(("<f4", [scaled("<f4", astype, 0.5, 1.0)]) for astype in ("u1", "<u2", ">u4", "<i2", "<i4", "<f4")),
    *(("<f8", [scaled("<f8", astype, -3, 100)]) for astype in ("<u2", "<u4", ">u8", "<i2", "<i4", "<i8", "<f4", "<f8")),
    (">f4", [scaled(">f4", ">i2", -100, 7.25)]),
    ("<f4", [numcodecs.Quantize(1, "<f4")]),
    ("<f8", [numcodecs.Quantize(2, "<f8", "<f4")]),
    (">f8", [numcodecs.Quantize(-1, ">f8")]),
    *((dtype, [numcodecs.BitRound(3)]) for dtype in ("<f2", "<f4", ">f4", "<f8")),
    ("<f4", [numcodecs.BitRound(23)]),
    ("?", [numcodecs.PackBits()]),
    ("<f8", [numcodecs.AsType("<f4", "<f8")]),
    ("<i4", [numcodecs.AsType("<i2", "<i4")]),
    (">i8", [numcodecs.AsType("u1", ">i8")]),
    ("<f4", [numcodecs.AsType("<f2", "<f4")]),
    *((dtype, [numcodecs.Shuffle(n)]) for dtype, n in (("<i4", 4), (">f8", 8), ("<u2", 2), ("<c8", 8), ("S5", 5))),
    ("<f8", [numcodecs.Shuffle(5)]),
    ("<i4", [delta("<i4"), numcodecs.Shuffle(4)]),
    (">f4", [scaled(">f4", ">i4"), delta(">i4", ">i2"), numcodecs.Shuffle(2)]),
    ("<f4", [numcodecs.BitRound(5), numcodecs.Shuffle(4), numcodecs.Shuffle(4)]),
    ("<i2", [delta("<i2", "<i4")]),
    ("<f4", [scaled("<f4", "<i8")]),
    ("u1", [numcodecs.AsType("<i8", "u1"), delta("<i8"), numcodecs.Shuffle(8)]),
    ("<i2", [numcodecs.AsType("<i4", "<i2"), numcodecs.AsType("<i8", "<i4"), numcodecs.AsType("<i2", "<i8")]),
]  # fmt: skip


def values(dtype: Any) -> np.ndarray:
    numbers = np.random.default_rng(1).integers(0, 250, SHAPE)
    return (numbers / 4 if np.dtype(dtype).kind == "f" else numbers).astype(dtype)


def create(folder: Path, dtype: Any, filters: list[Any], **options: Any) -> gzarr.Array:
    given: Any = {"zarr_format": 2, "compressor": numcodecs.Zlib(1), "fill_value": None, **options}
    return gzarr.create_array(folder, shape=SHAPE, chunks=CHUNK, dtype=dtype, filters=filters, overwrite=True, **given)


def bits(array: np.ndarray) -> bytes:
    """The bytes of an array, with one kind of NaN: sums may have that of either operand."""
    if array.dtype.kind != "f":
        return array.tobytes()
    return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes()


def both(folder: Path, write: Any) -> np.ndarray:
    """What is read after a function has written with the loop: the same as without it, from the same files."""
    stored, read = [], []
    for native in (True, False):
        with config.set({"cpu.native": native}):
            array = write(folder / str(native))
            stored.append(files(folder / str(native)))
            try:
                read += [array[...], array[3:19, 2:7]]
            except ChunkError as error:  # a number is cast to none of its type
                read += [np.array(str(error.__cause__))] * 2
    assert stored[0] == stored[1]
    for ours, theirs in zip(read[:2], read[2:], strict=True):
        assert ours.dtype == theirs.dtype
        assert bits(ours) == bits(theirs)
    return read[0]


@pytest.mark.parametrize(("dtype", "filters"), KNOWN, ids=repr)
def test_files_and_values_are_as_of_numcodecs(dtype: str, filters: list[Any], tmp_path: Path, watched: Watched) -> None:
    def write(folder: Path) -> gzarr.Array:
        array = create(folder, dtype, filters, order="CF"[len(repr(filters)) % 2])
        array[...] = values(dtype)
        array[2:18, 1:] = values(dtype)[::-1][2:18, 1:]
        return array

    both(tmp_path, write)
    assert (watched.left, watched.refused) == (0, 0)
    assert watched.done
    assert watched.written


FLOATS = [0.0, -0.0, 0.5, -1.5, 2.5, 1e-40, 3e38, 1e300, np.inf, -np.inf, np.nan, 2.0**23 + 1, 2.0**31, 255.5, 65535.5]


@settings(max_examples=30)
@given(data=st.data())
def test_all_numbers_come_out_as_of_numcodecs(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    dtype, filters = data.draw(st.sampled_from(KNOWN))
    kind = np.dtype(dtype).kind
    elements: Any = None
    if kind == "f":
        elements = st.one_of(st.sampled_from(FLOATS), st.floats(width=32)).map(lambda x: np.float64(x).astype(dtype))
    elif kind in "MSc":
        dtype, filters = "<i8", [delta("<i8")]
    array = data.draw(hnp.arrays(dtype, SHAPE, elements=elements, fill=None))

    def write(folder: Path) -> gzarr.Array:
        made = create(folder, dtype, filters)
        try:
            made[...] = array
        except ChunkError:  # NumPy refuses some first numbers of deltas; which other chunks are there is not said
            made = create(folder, dtype, filters)
        return made

    both(tmp_path_factory.mktemp("filters"), write)


#: Codecs of Zarr v3 by the dtype of the array.
OF_ZARR: list[tuple[str, list[Any]]] = [
    *((dtype, [ScaleOffsetCodec(3, 2)]) for dtype in (*INTEGERS, "f4", "f8")),
    *((dtype, [ScaleOffsetCodec(-3, -7)]) for dtype in ("i1", "i4", "i8", "f4")),
    ("i8", [ScaleOffsetCodec(1 << 40, 1)]),
    ("i1", [ScaleOffsetCodec(0, -1)]),
    *((a, [CastValueCodec(b)]) for a in ("i1", "u2", "i4", "u8") for b in ("uint8", "int16", "int64", "float32")),
    *((a, [CastValueCodec(b, out_of_range="clamp")]) for a in ("i1", "u4", "u8", "f4", "f8")
      for b in ("uint8", "int16", "uint32", "int64", "uint64", "float32")),
    *((a, [CastValueCodec(b, out_of_range="wrap")]) for a in ("i8", "u8", "f8") for b in ("uint8", "int16", "uint64")),
    *((a, [CastValueCodec("int16", rounding, "clamp")]) for a in ("f4", "f8") for rounding in ROUNDINGS),
    *((a, [CastValueCodec("float64", "towards-zero")]) for a in ("i4", "u2")),
    ("f8", [ScaleOffsetCodec(-10.5, 100), CastValueCodec("int32"), NumcodecsCodec("delta", {"dtype": "<i4"})]),
]  # fmt: skip
#: Around the limits of types, and of what is exact.
LIMITS = [x + y for x in (0, 3, 2**7, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64) for y in (-1, 0, 1)]
BEYOND = [*FLOATS, *(sign * (x + y) for x in LIMITS for y in (-0.5, 0.0, 0.5) for sign in (-1.0, 1.0))]


def values_of(dtype: str, seed: int) -> np.ndarray:
    """Numbers of a type, of which few are near its limits, or all of them."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            chosen = np.array(BEYOND).astype(dtype)
    else:
        chosen = np.array([x for y in LIMITS for x in (y, -y) if np.iinfo(kind).min <= x <= np.iinfo(kind).max], kind)
    array = rng.integers(3, 16, SHAPE).astype(dtype)
    n = [0, 1, 30, array.size][seed % 4]
    array.reshape(-1)[rng.integers(0, array.size, n)] = rng.choice(chosen, n)
    return array


@pytest.mark.parametrize(("dtype", "filters"), OF_ZARR, ids=repr)
def test_numbers_are_scaled_and_cast_as_by_the_codecs_of_zarr(
    dtype: str, filters: list[Any], tmp_path: Path, watched: Watched
) -> None:
    create_here = partial(gzarr.create_array, shape=SHAPE, chunks=CHUNK, dtype=dtype, filters=filters, overwrite=True)
    for seed in (0, 2, 3):
        array = values_of(dtype, seed)

        def write(folder: Path, array: np.ndarray = array) -> gzarr.Array:
            made = create_here(folder, fill_value=3)
            try:
                made[...] = array
            except ChunkError:  # some numbers are refused; which other chunks are there is not said
                made = create_here(folder, fill_value=3)
            return made

        both(tmp_path / str(seed), write)
        if not seed:
            assert (watched.left, watched.refused) == (0, 0)
            assert watched.written


def test_damage_of_scaled_numbers_is_refused_as_by_the_codec(tmp_path: Path) -> None:
    for native in (True, False):
        with config.set({"cpu.native": native}):
            codecs: dict[str, Any] = {"filters": ScaleOffsetCodec(0, 2), "compressors": None}
            array = gzarr.create_array(tmp_path, shape=8, chunks=4, dtype="i4", **codecs, overwrite=True)
            array[...] = np.arange(8)
            (tmp_path / "c" / "1").write_bytes(np.array([2, 3, 4, 5], "<i4").tobytes())
            with pytest.raises(ChunkError, match="3 is not a multiple of scale 2"):
                array[...]


CHAINS: dict[str, list[Any]] = {
    "in shards": [ShardingCodec((5, 5), [NumcodecsCodec("delta", {"dtype": "<i4"}), BytesCodec(), ZstdCodec(1)])],
    "transposed, with a checksum": [
        TransposeCodec((1, 0)),
        NumcodecsCodec("delta", {"dtype": "<i4", "astype": "<i2"}),
        BytesCodec("big"),
        NumcodecsCodec("shuffle", {"elementsize": 2}),
        Crc32cCodec(),
    ],
    "big-endian": [BytesCodec("big"), NumcodecsCodec("shuffle"), ZstdCodec(1)],
    "scaled and cast": [ScaleOffsetCodec(-5, 3), CastValueCodec("uint16"), BytesCodec("big"), ZstdCodec(1)],
    "not compressed": [NumcodecsCodec("astype", {"encode_dtype": "<i2", "decode_dtype": "<i4"}), BytesCodec()],
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_zarr_3_have_filters(name: str, tmp_path: Path, watched: Watched) -> None:
    model = values("<i4")

    def write(folder: Path) -> gzarr.Array:
        array = gzarr.create_array(folder, shape=SHAPE, chunks=CHUNK, dtype="<i4", codecs=CHAINS[name], overwrite=True)
        array[...] = model
        array[1:, 2:8] = model[1:, 2:8]
        return array

    same(both(tmp_path, write), model)
    array = gzarr.open_array(tmp_path / "True")
    same(array.vindex[[0, 22, 22], [8, 0, 8]], model[[0, 22, 22], [8, 0, 8]])
    same(array.oindex[[1, 1, 20], :], model[[1, 1, 20]])
    assert (watched.left, watched.refused) == (0, 0)
    assert watched.written


def test_large_chunks_with_filters_are_not_read_in_blocks(tmp_path: Path) -> None:
    model = np.arange(1 << 20, dtype="<i4").reshape(64, -1)
    array = gzarr.create_array(
        tmp_path, shape=model.shape, chunks=(32, 1 << 14), dtype="<i4", zarr_format=2,
        filters=[delta("<i4"), numcodecs.Shuffle(4)], compressor=numcodecs.Blosc("lz4", 1, 0),
    )  # fmt: skip
    array[...] = model
    same(array[3:40, 100:120], model[3:40, 100:120])
    same(array[...], model)


@pytest.mark.parametrize(
    ("dtype", "filters"),
    [
        ("<i4", [scaled("<i4", "<i4", 1, 2)]),
        ("<f4", [scaled("<f4", "u1", 0, 1000)]),  # NumPy refuses to divide bytes by that
        ("<f4", [scaled("<f4", "<i2", 0, 0.0)]),
        ("<f8", [scaled("<f8", "<i8", 1 << 60, 1)]),
        ("<i4", [delta("<f4")]),
        ("<f4", [delta("<f4", "<i4")]),
        ("<f2", [delta("<f2")]),
        ("<f8", [numcodecs.AsType("<f2", "<f8")]),
        ("<f4", [numcodecs.AsType("<i4", "<f4")]),
        ("<i4", [delta("<i4")] * 9),
        ("<f4", [numcodecs.Quantize(40, "<f4")]),
    ],
    ids=repr,
)
def test_other_filters_are_left_to_numcodecs(dtype: str, filters: list[Any], tmp_path: Path) -> None:
    placement = create(tmp_path, dtype, filters).placement
    assert ["not in the compiled loop" in row[2] for row in placement[-2:]] == [True, True]


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [
        ("f2", ScaleOffsetCodec(1, 2)),
        ("i8", ScaleOffsetCodec(1 << 60, 1)),
        ("f8", ScaleOffsetCodec("NaN", 1)),
        ("f4", CastValueCodec("float16")),
        ("f8", CastValueCodec("float32", "towards-zero")),
        ("f4", CastValueCodec("int8", scalar_map={"encode": [["NaN", 0]]})),
    ],
    ids=repr,
)
def test_other_codecs_of_zarr_are_left_to_the_reference_path(dtype: str, codec: Any, tmp_path: Path) -> None:
    placement = gzarr.create_array(tmp_path, shape=9, chunks=3, dtype=dtype, filters=codec, fill_value=1).placement
    assert ["not in the compiled loop" in row[2] for row in placement[-2:]] == [True, True]


@pytest.mark.parametrize("filters", [[numcodecs.PackBits()], [delta("|b1")]])
def test_damage_has_the_outcome_of_the_reference_path(filters: list[Any], tmp_path: Path) -> None:
    if filters[0].codec_id == "delta":
        filters, dtype = [delta("<i2")], "<i2"
    else:
        dtype = "?"
    array = create(tmp_path, dtype, filters, compressor=None)
    array[...] = values(dtype)
    sound = (tmp_path / "0.0").read_bytes()
    for damaged in (b"", sound[:-1], sound + b"\0", b"\1" + sound[1:]):
        (tmp_path / "0.0").write_bytes(damaged)
        outcomes = []
        for native in (True, False):
            with config.set({"cpu.native": native}):
                try:
                    outcomes.append(gzarr.open_array(tmp_path)[...].tobytes())
                except GzarrError as error:
                    outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@cache
def calls(number: int, folder: Path) -> tuple[list[tuple[str, Any]], Any]:
    """What the loop is asked for an array, and what must live as long as it is asked that."""
    asked: list[tuple[str, Any]] = []
    dtype, filters = (KNOWN + OF_ZARR)[number]
    options = {} if number < len(KNOWN) else {"zarr_format": 3, "compressor": None, "fill_value": 3}
    array = create(folder / str(number), dtype, filters, **options)
    model = (values("i8") // 20 + 3).astype(dtype)

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: (asked.append((name, args)), getattr(library.extension(), name)(*args))[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", Recorded)
        array[...] = model
        found = array[...]
    return asked, (model, found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lies")


@settings(max_examples=100)
@given(data=st.data())
def test_tables_that_lie_are_refused_or_do_no_harm(folder: Path, data: st.DataObject) -> None:
    (asked, _) = calls(data.draw(st.integers(0, len(KNOWN + OF_ZARR) - 1)), folder)
    name, (job, *args) = data.draw(st.sampled_from(asked))
    filters = 8 * (16 + 4 * 2)
    with suppress(ValueError):
        getattr(library.extension(), name)(job[:filters] + made_to_lie(data, job[filters:], is_job=False), *args)
