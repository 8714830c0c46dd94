# The compiled loop (loop/module.c). The tables are those of gzarr.cpu.compiled; loop/loop.h documents them.

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
from typing_extensions import Buffer, CapsuleType

VERSION: Final[int]

# Take the fields of `struct Library`: addresses of the functions of codecs, 0 for a missing one, and of a table.
def bind(addresses: bytes, /) -> None: ...

# Read a table of chunks: its columns, of gzarr.indexing.tables or of points, and of every block of slots the address
# and the bytes of a row, int64 (n, 2); None for a single result. sources: where chunks are in shards, as loop.h has it:
# offset and bytes of each, the first chunk of each shard, what is known of every shard, paths; None for chunks that are
# stored alone. items: what is stored of every chunk, or of every shard, None for nothing; None if they are files. path:
# what the paths of files begin with. Returns: chunks left, bytes read, bytes placed. Raises: ValueError if the tables
# disagree, TypeError or BufferError if an item is no contiguous buffer.
def read(
    job: Buffer,
    columns: tuple[Buffer | None, ...],
    sources: tuple[Buffer, Buffer, Buffer, bytes] | None,
    items: Sequence[Buffer | None] | None,
    path: bytes,
    fill: Buffer,
    scratch: Buffer,
    status: bytearray,
    /,
) -> tuple[int, int, int]: ...

# Begin to sort n points by the chunks that hold them, in so many blocks. axes: of every axis extent, lengths of shards
# and chunks, bytes of a chunk's stride. start: byte of an element that places begin with. Raises: ValueError if there
# are too many keys.
def begin_sort(axes: Buffer, n: int, n_blocks: int, granule_bits: int, start: int, /) -> CapsuleType: ...

# Sort points together with other threads. coords: of every axis. Returns: number of rows. Raises: ValueError if points
# are not in the array.
def sort_points(
    sort: CapsuleType, coords: tuple[Buffer, ...], order: Buffer, places: Buffer, starts: Buffer, rows: Buffer, /
) -> int: ...

# Make strings (text) or bytes of items, from the first wanted one on, as many as `out`, an array of objects, has
# elements. count: how many items there should be. Returns: whether that was possible.
def decode_items(data: Buffer, count: int, first: int, out: Buffer, text: bool, /) -> bool: ...

# Lay out strings (text) or bytes as items. Returns: None if an element is something else, or cannot be encoded.
def encode_items(items: Buffer, text: bool, /) -> bytes | None: ...

# Gather rows of a pool. source, target: types of a cast. Raises: ValueError if sizes disagree, or a row is not there.
def take(
    pool: Buffer, slots: Buffer, out: Buffer, elements: int, size: int, out_size: int, source: int, target: int, /
) -> None: ...

# Reduce the windows of a block. factors: int64. kind: of numbers, unsigned, signed or floating. Returns: whether the
# loop can do that. Raises: ValueError if shapes disagree.
def reduce(block: Buffer, factors: Buffer, out: Buffer, kind: int, method: int, /) -> bool: ...

# Write a table of chunks. files: path, beginning of the names of temporary files, number of a Target.
# shard: memory, index, where its bytes end, its next entry, the entry up to which old chunks are copied, the old
# bytes and index (None if the table covers the shard), entries of the chunks. chunks: what is stored of every chunk,
# None for nothing, or if the table covers it; memory for all of them. All but one of the three are None. Returns:
# chunks left, bytes gathered, bytes made; then where the shard ends and its next entry, or the list of chunks.
# Raises: as `read`.
def write(
    job: Buffer,
    encoder: Buffer,
    columns: tuple[Buffer | None, ...],
    fill: Buffer,
    files: tuple[bytes, bytes, int] | None,
    shard: tuple[Buffer, Buffer, int, int, int, Buffer | None, Buffer | None, Buffer] | None,
    chunks: tuple[Sequence[Buffer | None], Buffer] | None,
    scratch: Buffer,
    status: bytearray,
    /,
) -> Any: ...

# Fetch the encoded chunks of a table, from a phase of the slab on. coords, path: of files. sources: as of `read`.
# answer: offsets and sizes. Raises: ValueError if the tables disagree.
def fetch(
    ndim: int,
    separator: int,
    coords: Buffer,
    path: bytes,
    sources: tuple[Buffer, Buffer, Buffer, bytes] | None,
    slab: Buffer,
    phase: int,
    answer: tuple[Buffer, Buffer],
    cursor: Buffer,
    /,
) -> None: ...

# Store encoded chunks as files, or as whole shards. Returns: how many of these are left. The addresses are trusted.
def put(
    places: Buffer,
    path: bytes,
    temporary: bytes,
    coords: Buffer,
    addresses: Buffer,
    sizes: Buffer,
    number: int,
    status: bytearray,
    /,
) -> int: ...

# Find the chunks of a slab that are single Zstandard frames with nothing unusual in them. nbytes: int64 (n,), decoded.
def plain_zstd(slab: Buffer, offsets: Buffer, sizes: Buffer, nbytes: Buffer, plain: Buffer, /) -> None: ...

# Describe the Blosc frames of a slab, and say which the host must decode. If there are no streams, `bounds` is the
# answer: where those of each kind begin; otherwise the streams are noted, int64 (5, bounds[-1]). Returns: whether there
# are as many as were counted, else nothing is valid.
def parse_blosc(
    slab: Buffer, offsets: Buffer, sizes: Buffer, nbytes: int, frames: Buffer, bounds: Buffer, streams: Buffer, /
) -> bool: ...

# Reads and writes basic selections of few chunks of an array. job: of a box; where its result lies does not count.
# extents, counts: int64, of the array, and chunks of a shard, ones if chunks are files. path: what the paths of files
# begin with. arrays: their dtype; what makes them; the dtype that these are made of, if not their own; the type of
# NumPy's integers. target: the table of an encoder, what the names of temporary files begin with,
# `number` of a Target; None if nothing is written. shards: what gives the index of a shard, its version and perhaps
# its path, or None, and the entries from one chunk to the next; None if there are none. fetch: gives chunks by
# their coordinates, None for one that is missing; None if chunks are files.
# Raises: ValueError if the tables disagree.
class Basic:
    def __new__(
        cls,
        job: Buffer,
        extents: Buffer,
        counts: Buffer,
        path: bytes,
        fill: bytes,
        arrays: tuple[np.dtype[Any], Callable[..., Any], np.dtype[Any] | None, type],
        target: tuple[Buffer, bytes, Callable[[], int] | None, bool, bool] | None,
        shards: tuple[Callable[[tuple[int, ...]], tuple[object, ...] | None], Buffer] | None,
        fetch: Callable[[list[tuple[int, ...]]], Sequence[Buffer | None]] | None,
        /,
    ) -> Self: ...
    # The result: a new array or scalar, or `out`; None if that is left.
    def read(self, key: Any, dtype: np.dtype[Any], out: Any = None, /) -> Any: ...
    # Coordinates of the only object that a selection touches; None if it is not written here.
    def locate(self, key: Any, /) -> tuple[int, ...] | None: ...
    # What became of the object: stored (0), left (1), or without chunks and deleted (2). With `fetch` nothing is stored
    # or deleted, and the object is returned instead of 0. coords: from `locate`.
    def write(self, coords: tuple[int, ...], key: Any, value: Any, keep_empty: bool, /) -> int | bytes: ...
