"""The steps that all codecs share: tables and streams are copied to and within the device, decoded and compressed.

Compressed streams go to slots that are large enough for the worst case. When their sizes are known, for which the host
waits once, headers and checksums are laid out on the host and put in place by one launch of copy_streams. The payload
never leaves the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import ALIGNMENT, BatchContext, Chunks, Encoded, Streams
from gzarr.gpu.codecs.refusing import refuse
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP
from gzarr.gpu.device.nvcomp_tables import compress_alignment, status_text
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN, parts, prefix_sums, unit_starts
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from gzarr.gpu.kernels.sources import BLOCK_THREADS, UNIT_NBYTES

#: The kernels by the mode of what they copy, and the most blocks of a launch.
_COPIES = {PLAIN: "copy_plain", BYTE_SHUFFLED: "copy_bytes", BIT_SHUFFLED: "copy_bits"}
_MAX_BLOCKS = 1 << 31
#: The most threads of a launch of shuffle, which finds chunks by the numbers of threads.
_MAX_THREADS = 1 << 31
#: The values of boxes of bytes.
_BYTES = 0, np.zeros(1, np.uint8)


def upload_tables(context: BatchContext, *tables: NDArray[Any]) -> list[int]:
    """Upload tables in one transfer. Returns: their addresses."""
    starts = []
    size = 0
    for table in tables:
        starts.append(size)
        size += -(-max(table.nbytes, 1) // ALIGNMENT) * ALIGNMENT
    staging = context.device.staging(size)
    for table, start in zip(tables, starts, strict=True):
        staging[start : start + table.nbytes] = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
    base = context.device.address(context.upload(staging))
    return [base + start for start in starts]


def new_rows(context: BatchContext, n: int, nbytes: int) -> tuple[Array, Table]:
    """Allocate device memory for n chunks. Returns: a uint8 array (n, nbytes), and the address of every row."""
    rows = context.empty(n * nbytes).reshape(n, nbytes)
    return rows, row_addresses(context, rows)


def new_places(context: BatchContext, sizes: Table, spare: int = 0) -> tuple[Array, Table]:
    """Allocate device memory for pieces of any sizes. Returns: the memory, and the address of each, which is aligned.

    spare: bytes behind the last piece, which decoders may read.
    """
    starts = prefix_sums(-(-sizes // ALIGNMENT) * ALIGNMENT)
    memory = context.empty(int(starts[-1]) + spare)
    return memory, context.device.address(memory) + starts[:-1]


def rows_as_chunks(context: BatchContext, rows: Array) -> Chunks:
    """The rows of a uint8 array (n, nbytes) as chunks. The batch holds the array."""
    context.held.append(rows)
    return Chunks(rows, row_addresses(context, rows), rows.shape[1], rows)


def as_chunks(context: BatchContext, batch: Streams | Chunks, nbytes: int, codec: str) -> Chunks:
    """A batch that is to be decoded, as chunks of one size. Raises: CodecError(index) for a stream of another size."""
    if isinstance(batch, Chunks):
        return batch
    refuse(codec, batch.sizes != nbytes, lambda i: f"expected {nbytes} bytes, got {batch.sizes[i]}")
    return Chunks(batch.staging_buffer, context.device.address(batch.staging_buffer) + batch.offsets, nbytes)


def byte_ranges(batch: Chunks | Encoded) -> tuple[Table, Table]:
    """Addresses and sizes of the items of a batch. Chunks must not be shuffled."""
    if isinstance(batch, Encoded):
        return batch.addresses, batch.sizes
    return batch.addresses, np.full(len(batch), batch.nbytes, np.int64)


def as_rows(context: BatchContext, batch: Chunks | Encoded) -> Array:
    """A batch that is to be encoded, whose items have one size, as a uint8 array (n, nbytes)."""
    if isinstance(batch, Chunks) and batch.rows is not None:
        return batch.rows
    source, sizes = byte_ranges(batch)
    rows, addresses = new_rows(context, len(batch), int(sizes[0]))
    copy_streams(context, source, addresses, sizes)
    return rows


def plain_chunks(context: BatchContext, batch: Chunks | Encoded) -> Chunks:
    """A batch that is to be encoded, whose items have one size, as chunks."""
    return batch if isinstance(batch, Chunks) else rows_as_chunks(context, as_rows(context, batch))


def row_addresses(context: BatchContext, rows: Array) -> Table:
    """The address of every row of a uint8 array (n, nbytes)."""
    addresses: Table = context.device.address(rows) + np.arange(rows.shape[0], dtype=np.int64) * rows.shape[1]
    return addresses


def upload_rows(context: BatchContext, arrays: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> Chunks:
    """Upload decoded chunks, host arrays of one shape, in one transfer and in native byte order."""
    native = dtype.newbyteorder("=")
    nbytes = arrays[0].size * native.itemsize
    staging = context.device.staging(len(arrays) * nbytes)
    for row, array in zip(staging.reshape(len(arrays), nbytes), arrays, strict=True):
        row[:] = np.ascontiguousarray(array, native).reshape(-1).view(np.uint8)
    return rows_as_chunks(context, context.upload_chunks(staging, len(arrays)).reshape(len(arrays), nbytes))


def copy_streams(context: BatchContext, source: Table, target: Table, nbytes: Table) -> None:
    """Copy byte ranges within the device with one launch."""
    if not source.size:
        return
    starts = unit_starts(nbytes)
    tables = upload_tables(context, source, target, nbytes, starts)
    threads = -(-int(starts[-1]) // 128) * 32  # warps for 128 units
    context.device.launch("copy_streams", threads, (source.size, *tables))


def copy_boxes(context: BatchContext, boxes: Boxes, shuffles: Shuffles, values: tuple[int, NDArray[Any]]) -> None:
    """Copy the parts of a batch, with one launch for each kind of shuffle among them, if they are not odd.

    values: bytes of the numbers whose order is reversed, or 0; and one element that missing chunks are full of, in the
        target's byte order.
    """
    mode = _copied(context, boxes, shuffles, values)
    for reason in np.unique(mode[mode < 0]).tolist():
        which = np.flatnonzero(mode == reason)
        some, given = boxes.take(which), values
        if reason == parts.SHUFFLED:
            some = replace(some, source=_unshuffled(context, some.source, shuffles.take(which)))
        elif reason == parts.TOO_LARGE:
            some = parts.cut(some)
        else:
            (at,) = upload_tables(context, np.frombuffer(values[1].tobytes(), np.uint8))
            some, given = parts.in_bytes(some, values[0], at), _BYTES
        copy_boxes(context, some, parts.plain_shuffles(some.source.size), given)


def _copied(
    context: BatchContext, boxes: Boxes, shuffles: Shuffles, values: tuple[int, NDArray[Any]]
) -> NDArray[np.int64]:
    """Copy the parts that kernels take. Returns: of each, the mode, or why it was not copied (`Descriptors.mode`)."""
    swap_unit, fill = values
    described = parts.describe(boxes, shuffles, swap_unit)
    for kind, kernel in _COPIES.items():
        which = described.mode == kind
        if which.any():
            table = described.table if which.all() else described.table[which]
            extra = (_constant(boxes.nbytes, swap_unit, fill),) if kind == PLAIN else ()
            lists = boxes.lists.astype(np.uint32).view(np.int32)
            _launch_copies(context, kernel, table, (lists, swap_unit, *extra))
    return described.mode


def _unshuffled(context: BatchContext, sources: Table, shuffles: Shuffles) -> Table:
    """Addresses of plain copies of shuffled chunks, each of which is made once."""
    addresses, first, number = np.unique(sources, return_index=True, return_inverse=True)
    how = shuffles.take(first)
    _, places = new_places(context, how.nbytes)
    _unshuffle(context, addresses, places, how)
    return places[number]


def _launch_copies(context: BatchContext, kernel: str, table: NDArray[np.uint32], last: tuple[Any, ...]) -> None:
    """Launch a copy. last: its last arguments, with tables."""
    per_part = int(table[:, parts.N_BLOCKS].max(initial=0))
    blocks = len(table) * per_part
    if blocks >= _MAX_BLOCKS:
        for some in np.array_split(table, 2):
            _launch_copies(context, kernel, some, last)
    elif blocks:
        by = (int(column[0]) for column in parts.divisors(np.array([per_part])))
        at = iter(upload_tables(context, table, *(item for item in last if isinstance(item, np.ndarray))))
        args = (per_part, *by, next(at), *(next(at) if isinstance(x, np.ndarray) else x for x in last))
        context.device.launch(kernel, blocks * BLOCK_THREADS, args)


def _constant(nbytes: int, swap_unit: int, fill: NDArray[Any]) -> NDArray[np.uint8]:
    """Two units of an element, before the kernels reverse its numbers; zeros if elements do not fill them evenly."""
    if UNIT_NBYTES % nbytes:
        return np.zeros(2 * UNIT_NBYTES, np.uint8)
    unit = np.tile(np.frombuffer(fill.tobytes(), np.uint8), 2 * UNIT_NBYTES // nbytes)
    return np.ascontiguousarray(unit.reshape(-1, max(swap_unit, 1))[:, ::-1]).reshape(-1)


def aligned(context: BatchContext, source: Table, nbytes: Table, alignment: int) -> Table:
    """Addresses of the byte ranges at multiples of ``alignment``. Ranges that are not aligned are copied."""
    odd = source % alignment != 0
    if not odd.any():
        return source
    _, places = new_places(context, nbytes[odd], ALIGNMENT)
    copy_streams(context, source[odd], places, nbytes[odd])
    source = source.copy()
    source[odd] = places
    return source


def decompress(
    context: BatchContext, codec: str, decoder: str, items: Table, streams: tuple[Table, Table, Table, Table]
) -> None:
    """Decode streams with one call; the batch then checks their statuses and sizes.

    items: the chunk of the batch that each stream belongs to, for errors.
    streams: addresses and sizes of the encoded streams, addresses and sizes of the decoded ones.
    """
    source, nbytes, target, decoded = streams
    if not source.size:
        return
    source = aligned(context, source, nbytes, NVCOMP[decoder].alignment.input)
    outcome = context.device.decompress(decoder, source, nbytes, target, decoded)
    context.held.append(outcome)
    context.expect(codec, outcome, items, decoded)


def decode_on_host(
    context: BatchContext,
    codec: str,
    streams: Streams,
    chunks: Chunks,
    which: NDArray[np.intp],
    decode: Callable[[Any], Any],
) -> None:
    """Decode some chunks on the host and upload them to their places in one transfer. Raises: CodecError(index).

    codec: the name that errors give.
    """
    if not which.size:
        return
    nbytes = chunks.nbytes
    staging = context.device.staging(which.size * nbytes)
    for i, place in zip(which.tolist(), staging.reshape(which.size, nbytes), strict=True):
        start, size = int(streams.offsets[i]), int(streams.sizes[i])
        try:
            data = decode((streams.host[start : start + size],))[0]
        except CodecError as error:
            error.index, error.codec = i, codec
            raise
        place[:] = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    decoded = context.upload_chunks(staging, which.size).reshape(which.size, nbytes)
    source = row_addresses(context, decoded)
    copy_streams(context, source, chunks.addresses[which], np.full(which.size, nbytes, np.int64))


def unshuffled(context: BatchContext, chunks: Chunks) -> Chunks:
    """The chunks as contiguous plain bytes."""
    if chunks.shuffle is None and chunks.rows is not None:
        return chunks
    n, nbytes = len(chunks), chunks.nbytes
    rows, addresses = new_rows(context, n, nbytes)
    _unshuffle(context, chunks.addresses, addresses, chunks.shuffle or parts.plain_shuffles(n, nbytes))
    return Chunks(rows, addresses, nbytes, rows)


def _unshuffle(context: BatchContext, source: Table, target: Table, how: Shuffles) -> None:
    """Copy chunks as plain bytes. Last blocks that Blosc could not bit-shuffle go apart."""
    rest = how.nbytes % np.maximum(how.blocksize, 1)
    nitems = rest // np.maximum(how.typesize, 1)
    rest[(how.mode != BIT_SHUFFLED) | (rest == how.nbytes) | ((nitems % 8 == 0) & (nitems > 0))] = 0
    how = how._replace(nbytes=how.nbytes - rest)
    mode = _copied(context, parts.runs(source, target, how.nbytes, 1), how, _BYTES)
    apart, left = np.flatnonzero(rest), np.flatnonzero(mode < 0)
    if apart.size:
        ends = parts.runs((source + how.nbytes)[apart], (target + how.nbytes)[apart], rest[apart], 1)
        _copied(context, ends, parts.plain_shuffles(apart.size), _BYTES)
    if left.size:
        starts = unit_starts(how.nbytes[left])
        tables = upload_tables(context, source[left], target[left], starts, *how.take(left))
        context.device.launch("unshuffle", int(starts[-1]), (left.size, *tables))


def shuffled(context: BatchContext, chunks: Chunks, mode: int, typesize: int, blocksize: int) -> Chunks:
    """A copy of plain chunks with the bytes or bits of their elements shuffled, Blosc block by Blosc block.

    mode: BYTE_SHUFFLED or BIT_SHUFFLED. typesize: bytes of an element. blocksize: bytes of a block.
    """
    n, nbytes = len(chunks), chunks.nbytes
    memory, addresses = new_places(context, np.full(n, nbytes, np.int64))
    how = parts.shuffling(mode, typesize, blocksize, nbytes)
    each = how[-3]
    for some in np.array_split(np.stack([chunks.addresses, addresses]), 1 + n * each // _MAX_THREADS, axis=1):
        tables = upload_tables(context, *some)
        context.device.launch("shuffle", some.shape[1] * each, (some.shape[1], *tables, *how))
    return Chunks(memory, addresses, nbytes, None if nbytes % ALIGNMENT else memory.reshape(n, nbytes))


def reversed_units(context: BatchContext, rows: Array, unit: int) -> Array:
    """Rows with the order of bytes reversed in every ``unit`` bytes."""
    n, nbytes = rows.shape
    flipped = context.device.xp.ascontiguousarray(rows.reshape(n, nbytes // unit, unit)[:, :, ::-1]).reshape(n, nbytes)
    context.held.append(flipped)
    return flipped


#: Bytes left free behind encoded chunks: room for four checksums.
ROOM = 16

#: Byte ranges to copy: sources, targets, sizes.
Piece: TypeAlias = tuple[Table, Table, Table]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Device memory for compressed streams.

    Attributes
    ----------
    rows : Array
        uint8 (n, stride), one row for each stream.
    addresses : Table
        Where the streams begin.
    front : int
        Where they begin in their rows.
    capacity : int
        Bytes that a stream may have.
    """

    rows: Array
    addresses: Table
    front: int
    capacity: int


def new_slots(context: BatchContext, encoder: str, n: int, nbytes: int, front: int = 0, behind: int = 0) -> Slots:
    """Slots for n streams of chunks of at most ``nbytes``. front, behind: free bytes before and behind each stream."""
    capacity = NVCOMP[encoder].compress_bound(nbytes)
    front = -(-front // ALIGNMENT) * ALIGNMENT
    stride = -(-(front + capacity + behind) // ALIGNMENT) * ALIGNMENT
    rows, addresses = new_rows(context, n, stride)
    return Slots(rows, addresses + front, front, capacity)


def compress(
    context: BatchContext,
    codec: str,
    encoder: str,
    items: Table,
    ranges: tuple[Table, Table],
    slots: Slots,
    typesize: int = 1,
    wanted: Callable[[], list[Array]] = list,
) -> tuple[Table, list[NDArray[Any]]]:
    """Compress byte ranges into slots. Waits for the device once.

    codec, items: for errors: the codec's name, and the chunk of the batch that each range belongs to.
    ranges: addresses and sizes. typesize: see `Device.compress`. wanted: gives device arrays to download as well.
    Returns: the sizes of the streams, and the arrays that were wanted.
    Raises: CodecError(index) for the first chunk that the encoder did not compress.
    """
    device = context.device
    source, nbytes = ranges
    source = aligned(context, source, nbytes, compress_alignment(encoder, typesize).input)
    outcome = device.compress(encoder, source, nbytes, slots.addresses, slots.capacity, typesize)
    context.held.append(outcome)
    statuses, written, *rest = device.download_all([outcome.statuses, outcome.sizes, *wanted()])
    sizes = written.astype(np.int64)

    def text(i: int) -> str:
        why = status_text(int(statuses[i])) if statuses[i] else f"{sizes[i]} bytes, but {slots.capacity} is the most"
        return f"the chunk could not be compressed: {why}"

    refuse(codec, (statuses != 0) | (sizes < 1) | (sizes > slots.capacity), text, items)
    return sizes, rest


def copy_pieces(context: BatchContext, pieces: Sequence[Piece]) -> None:
    """Copy byte ranges with one launch."""
    copy_streams(context, *(np.concatenate(column) for column in zip(*pieces, strict=True)))
