"""What the tests of the compiled loop share: chains, arrays, a loop that counts."""

import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import gzarr
from gzarr.chunk_io import engine
from gzarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from gzarr.config import config
from gzarr.cpu.compiled import library
from tests.properties.test_copies import job_for

ROOT = Path(__file__).parents[3]
needs_loop = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")
SHAPE, CHUNK = (70, 45, 3), (20, 15, 3)
STRUCT = np.dtype([("a", "<i4"), ("b", ">f4"), ("c", "u1", (3,))])
DTYPES = ["<i4", ">f4", "u1", "<c16", ">c8", "<M8[s]", STRUCT]

SMALL = BloscCodec("lz4", 5, "shuffle", 4, 256)
#: Chains that the loop knows.
CHAINS: dict[str, list[Any]] = {
    "plain": [BytesCodec()],
    "big-endian": [BytesCodec("big")],
    "plain with checksum": [BytesCodec(), Crc32cCodec()],
    "blosc": [BytesCodec(), SMALL],
    "blosc of transposed": [TransposeCodec((2, 0, 1)), BytesCodec("big"), BloscCodec("zstd", 1, "bitshuffle", 4)],
    "blosc stored": [BytesCodec(), BloscCodec("lz4", 0, "noshuffle", typesize=4)],
    "zstd": [BytesCodec(), ZstdCodec(1)],
    "zstd with checksum": [BytesCodec(), ZstdCodec(1, checksum=True), Crc32cCodec()],
    "lz4": [BytesCodec(), NumcodecsCodec("lz4", {})],
    "gzip": [BytesCodec("big"), GzipCodec(1), Crc32cCodec()],
    "shards": [ShardingCodec((10, 5, 3), [BytesCodec(), ZstdCodec(1)])],
    "shards of plain": [ShardingCodec((10, 5, 1), [BytesCodec(), Crc32cCodec()], index_location="start")],
    "transposed shards": [TransposeCodec((2, 0, 1)), ShardingCodec((3, 10, 5), [BytesCodec(), SMALL])],
}


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def both_ways(folder: Path, write: Callable[[Path], Any], raises: Any = ()) -> tuple[dict[str, bytes], list[str]]:
    """What a function leaves in a folder, and which error of some types it raises; the same with the loop and without.

    raises: the types.
    """
    found: list[tuple[dict[str, bytes], list[str]]] = []
    for on in (True, False):
        path, said = folder / str(on), list[str]()
        path.mkdir(parents=True)
        with config.set({"cpu.native": on}):
            try:
                write(path)
            except raises as error:
                said.append(f"{type(error).__name__}: {error}".replace(str(path), ""))
        found.append((files(path), said))
    assert found[0] == found[1]
    return found[0]


#: Kinds of selections.
KEYS: dict[str, Any] = {
    "all": np.s_[...],
    "box": np.s_[5:60, 3, 1],
    "steps": np.s_[::7, ::11],
    "strided": np.s_[...],
    "lists": ([3, 69, 3, 20], [44, 0], slice(None)),
    "points": ([3, 69, 3, 25, -30], [44, 0, 1, 20, 20], [0, 1, 2, 1, 2]),
    "copies": None,
}
#: Boxes that are copied, and where to.
STARTS, SIZE = [(0, 0, 0), (60, 35, 0), (13, 5, 1), (13, 5, 1), (33, 33, 0), (20, 15, 1), (5, 30, 0)], (10, 10, 2)
SLOTS = [3, 1, 0, 5, 7, 2, 6]


def read_into(kind: str, array: gzarr.Array, dtype: Any = None) -> tuple[Any, Any]:
    """Read one kind of selection, perhaps cast. Returns: the memory that was read into, and what was read."""
    dtype = dtype or array.dtype
    if kind == "copies":
        job = job_for(array, STARTS, SIZE, SLOTS, (np.dtype(dtype), 2, 4))
        for block in job.out:
            block[...] = np.zeros((), dtype)
        engine.read([job])
        return job, np.concatenate([np.asarray(block) for block in job.out])[SLOTS]
    view = array if dtype == array.dtype else array.astype(dtype)
    shape = wanted(kind, np.broadcast_to(np.zeros((), dtype), array.shape)).shape
    out = (
        np.zeros((shape[2], 2 * shape[1], shape[0]), dtype).T[:, ::-2] if kind == "strided" else np.zeros(shape, dtype)
    )
    select = {"lists": view.get_orthogonal_selection, "points": view.get_coordinate_selection}
    select.get(kind, view.get_basic_selection)(KEYS[kind], out=out)
    return out, out


def read(kind: str, array: gzarr.Array) -> Any:
    """Read one kind of selection."""
    return read_into(kind, array)[1]


def wanted(kind: str, model: np.ndarray) -> Any:
    """What NumPy reads."""
    if kind == "copies":
        return np.stack([model[tuple(map(slice, at, np.add(at, SIZE)))] for at in STARTS])
    return model[np.ix_(*KEYS[kind][:2])] if kind == "lists" else model[KEYS[kind]]


class Watched:
    """Counts the chunks that the loop is asked to read, finds itself, is to write, and leaves."""

    def __init__(self) -> None:
        self.done = self.left = self.written = self.refused = self.calls = self.files = 0
        self._guard = threading.Lock()

    def _count(self, **more: int) -> None:
        with self._guard:  # several threads call the loop
            vars(self).update({name: getattr(self, name) + n for name, n in more.items()})

    def read(self, *args: Any) -> tuple[int, int, int]:
        found: tuple[int, int, int] = library._loaded()[0].read(*args)
        self._count(calls=1, done=len(args[-1]), left=found[0], files=len(args[-1]) if args[3] is None else 0)
        return found

    def write(self, *args: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = library._loaded()[0].write(*args)
        self._count(written=len(args[-1]), refused=found[0])
        return found


class Recorder:
    """Notes what the loop is asked, and pretends to read; writes are done."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def read(self, *args: Any) -> tuple[int, int, int]:
        self.calls.append(list(args))
        return 0, 0, 0

    def write(self, *args: Any) -> tuple[Any, ...]:
        self.calls.append(list(args))
        return library._loaded()[0].write(*args)


def values(dtype: Any, shape: Sequence[int] = SHAPE) -> np.ndarray:
    numbers = np.random.default_rng(1).integers(0, 250, shape)
    dtype = np.dtype(dtype)
    if dtype.names is None:
        return numbers.astype("i8").astype(dtype)
    out = np.zeros(shape, dtype)
    out["a"], out["b"], out["c"] = numbers, numbers / 2, numbers[..., None] % 200
    return out


def stored(codecs: list[Any], dtype: Any, store: Any, missing: bool = False) -> tuple[gzarr.Array, np.ndarray]:
    """An array at "a/b" and what it holds. missing: four chunks of files, or one shard with eight, are not there."""
    model = values(dtype)
    fill = 7 if np.dtype(dtype).kind in "iufc" else None
    if missing:
        model[: CHUNK[0], : CHUNK[1] * 2] = np.zeros((), model.dtype) if fill is None else fill
    array = gzarr.create_array(
        store, name="a/b", shape=SHAPE, chunks=CHUNK, dtype=dtype, fill_value=fill, codecs=codecs, overwrite=True
    )
    array[...] = model
    return array, model


def made_to_lie(data: st.DataObject, table: bytes, *, is_job: bool) -> bytes:
    """A table of the loop with one number changed to anything, perhaps cut off. is_job: what says where the result or
    the value is stays as it is.
    """
    lying = bytearray(table)
    ndim = int.from_bytes(table[:8], "little", signed=True) if is_job else 0
    words = [i for i in range(len(lying) // 8) if not is_job or not (i in (8, 10) or i >= 16 + 2 * ndim)]
    if words:
        at = 8 * data.draw(st.sampled_from(words))
        small = st.integers(-3, 80)
        number = data.draw(st.one_of(small, small, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32)))
        lying[at : at + 8] = struct.pack("<q", number)
    if data.draw(st.integers(0, 9)) == 0:
        # A job that is cut between two numbers could fit another number of axes, and then say where the result is.
        del lying[len(lying) - data.draw(st.integers(1, 7)) if is_job else data.draw(st.integers(0, len(lying))) :]
    return bytes(lying)


def lying_read(data: st.DataObject, args: list[Any]) -> list[Any]:
    """Arguments of `read` with some numbers changed, but for those that say where memory is and how much."""
    job, (*columns, places), sources, items, path, fill, scratch, status = args
    columns = [None if column is None else np.asarray(column).tobytes() for column in columns]
    sources = sources and [column if type(column) is bytes else column.tobytes() for column in sources]
    for _ in range(data.draw(st.integers(1, 3))):
        which = data.draw(st.sampled_from(["job", "rows", "sources", 0, 0, 1, 2, 3]))
        if which == "job":
            job = made_to_lie(data, job, is_job=True)
        elif which == "rows":
            lower = st.integers(-5, struct.unpack_from("q", job, 80)[0])
            job = job[:80] + struct.pack("q", data.draw(lower)) + job[88:]
        elif which == "sources" and sources is not None:
            at = data.draw(st.integers(0, 3))
            sources[at] = made_to_lie(data, sources[at], is_job=False)
        elif isinstance(which, int) and columns[which] is not None:
            columns[which] = made_to_lie(data, columns[which], is_job=False)
    # The scratch memory has guards around it.
    room = bytearray(len(scratch))
    sources = sources and tuple(sources)
    return [job, (*columns, places), sources, items, path, fill, room, bytearray(status)]


def read_is_refused_or_left(data: st.DataObject, calls: list[list[Any]]) -> None:
    """Check that the loop, asked with lies, refuses to read or says what it leaves."""
    args = lying_read(data, data.draw(st.sampled_from(calls)))
    try:
        n_left, _, _ = library.extension().read(*args)
    except ValueError:
        return
    assert n_left == sum(args[-1])


def write_is_refused_or_left(data: st.DataObject, calls: list[list[Any]]) -> None:
    """The same of a write."""
    job, encoder, columns, fill, files, shard, chunks, scratch, status = data.draw(st.sampled_from(calls))
    columns = [None if column is None else np.asarray(column).tobytes() for column in columns]
    if shard is not None:  # memory with guards around it
        made, index, *numbers, old, old_index, entries = shard
        olds = [None if table is None else np.asarray(table).tobytes() for table in (old_index, entries)]
        made, index = bytearray(len(made)), bytearray(index.tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        which = data.draw(st.sampled_from(["job", "encoder", 0, 0, 1, "shard", "olds", "chunks"]))
        if which == "job":
            job = made_to_lie(data, job, is_job=True)
        elif which == "encoder":
            encoder = made_to_lie(data, encoder, is_job=False)
        elif which == "shard" and shard is not None:
            numbers[data.draw(st.integers(0, 2))] = data.draw(st.one_of(st.integers(-5, 100), st.integers(0, 1 << 20)))
        elif which == "olds" and shard is not None:
            at = data.draw(st.integers(0, 1))
            olds[at] = olds[at] and made_to_lie(data, olds[at], is_job=False)
        elif which == "chunks" and chunks is not None:
            chunks = chunks[0], bytearray(data.draw(st.integers(0, len(chunks[1]))))
        elif isinstance(which, int) and columns[which] is not None:
            columns[which] = made_to_lie(data, columns[which], is_job=False)
    if shard is not None:
        shard = made, index, *numbers, old, *olds
    status = bytearray(status)
    into = files, shard, chunks, bytearray(len(scratch)), status
    try:
        n_left, *_ = library.extension().write(job, encoder, tuple(columns), fill, *into)
    except ValueError:
        return
    assert n_left == status.count(1)
