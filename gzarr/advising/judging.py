"""Gives advice: counts what reads of an array touch as it is stored and as it could be stored, and compares.

Chunks and objects are counted on the chunk grids. What a codec chain stores is estimated by encoding a few regions of
the data. Nothing here is a time, and nothing was measured on a GPU.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.advising import advice
from gzarr.api.open import open as open_node
from gzarr.chunk_io.prepare import find_shardings
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec, fill_of
from gzarr.devices import backend_for
from gzarr.display.info import human_size
from gzarr.errors import MissingExtraError, UnknownCodecError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.presets import ACCESS_PATTERNS, AccessPattern, choose_chunks, choose_shards, is_for_gpu
from gzarr.indexing.chunking import parse_grid
from gzarr.indexing.grid import Grid, chunk_shape, is_regular

#: Samples of a read of "batch", and single elements of one of "random".
NSAMPLES, NPOINTS = 32, 1024
#: Streams that keep a GPU busy: 132 multiprocessors (H100, H200) with 32 warps each, one warp a stream. Not measured.
FULL_STREAMS = 4096
#: Decoded bytes of a stream that is short enough for any read: the largest chunk of a layout for GPUs.
_SHORT_NBYTES = 256 << 10
#: Regions that are encoded, and the most decoded bytes of the chunks that they are in.
_NREGIONS, _REGIONS_NBYTES = 8, 64 << 20
#: What a chunk counts as at least.
_LEAST_NBYTES = 1 << 14
#: Bytes of a chunk in the index of a shard: an offset and a length.
_INDEX_ENTRY_NBYTES = 16
#: Factor of stored bytes from which a shuffle is worth encoding everything anew.
_SHUFFLE_GAIN = 1.25


def advise(
    what: Any, access: AccessPattern = "volume", *, path: str | None = None
) -> advice.Advice | advice.GroupAdvice:
    """Say how an array, or every array of a group, is best stored for a GPU to read it, and what that should gain.

    This looks at metadata and a few chunks. It lists nothing, needs no GPU, and changes nothing.

    Parameters
    ----------
    what : Array, Group, Store, path or URL
        What to look at.
    access : {"volume", "batch", "plane", "random"}
        How the array is read: "volume" is everything, "batch" samples of axis 0 in random order, "plane" one index of
        any axis, "random" single elements.
    path : str, optional
        Path of the array or group in the store.

    Returns
    -------
    Advice or GroupAdvice
        The advice; ``advice.apply(dest)`` carries it out.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there.
    ValueError
        If the access is unknown.
    TypeError
        If ``what`` is an array in memory.
    ChunkError
        If the array is damaged.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array(shape=(512, 512), chunks=(8, 8), dtype="i4")
    >>> print(gzarr.advise(z).changes["chunks"])
    (256, 256)
    """
    if access not in ACCESS_PATTERNS:
        raise ValueError(f"access must be one of {', '.join(map(repr, ACCESS_PATTERNS))}; got {access!r}")
    if not isinstance(what, (Array, Group)) and hasattr(what, "__array__"):
        raise TypeError(f"advise looks at stored arrays, got an array in memory ({type(what).__name__}); save it first")
    if not isinstance(what, (Array, Group)) or path is not None:
        what = open_node(what, mode="r", path=path)
    if isinstance(what, Group):
        arrays = {name: node for name, node in what.members(None) if isinstance(node, Array)}
        return advice.GroupAdvice({name: _advise(array, access, name) for name, array in arrays.items()}, what)
    return _advise(what, access, what.path or str(what.store_path))


class _Probe(NamedTuple):
    """A read: its name, and the indices wanted along each axis (None: all), or those of single elements."""

    name: str
    indices: tuple[NDArray[np.int64] | None, ...]
    of_points: bool = False


class _Candidate(NamedTuple):
    """One way to store an array: the keywords that make it so, its grids, and a chunk's decoded bytes and streams."""

    changes: dict[str, Any]
    chunks: Grid
    objects: Grid
    nbytes: int
    streams: float


class _Measure(NamedTuple):
    """A number of a read; less is better. A problem is more than the floor, and than the factor times the best."""

    name: str
    about: str
    text: str
    of: Callable[[_Candidate, _Probe], float]
    factor: float
    floor: float


def _probes(access: AccessPattern, shape: tuple[int, ...]) -> list[_Probe]:
    """The reads of an access pattern, the same ones for the same shape."""
    whole: tuple[NDArray[np.int64] | None, ...] = (None,) * len(shape)
    rng = np.random.default_rng(0)
    if access == "plane" and shape:
        middles = [(axis, np.array([n // 2])) for axis, n in enumerate(shape)]
        return [_Probe(f"one index of axis {axis}", (*whole[:axis], at, *whole[axis + 1 :])) for axis, at in middles]
    if access == "batch" and shape:
        picked = rng.choice(shape[0], min(NSAMPLES, shape[0]), replace=False)
        return [_Probe(f"{picked.size} samples of axis 0", (picked, *whole[1:]))]
    if access == "random" and shape:
        n = min(NPOINTS, math.prod(shape))
        return [_Probe(f"{n} single elements", tuple(rng.integers(0, extent, n) for extent in shape), of_points=True)]
    return [_Probe("everything", whole)]


def _touched(grid: Grid, read: _Probe) -> int:
    """The chunks of a grid that a read touches."""
    pairs = list(zip(grid, read.indices, strict=True))
    if read.of_points:
        return len(np.unique(np.stack([axis.locate_all(at) for axis, at in pairs if at is not None]), axis=1).T)
    return math.prod(axis.nchunks if at is None else np.unique(axis.locate_all(at)).size for axis, at in pairs)


def _nchunks(candidate: _Candidate, read: _Probe) -> float:
    return _touched(candidate.chunks, read)


def _nobjects(candidate: _Candidate, read: _Probe) -> float:
    return _touched(candidate.objects, read)


def _amplification(candidate: _Candidate, read: _Probe) -> float:
    shape = [axis.extent for axis in candidate.chunks]
    wanted = math.prod(n if at is None else at.size for n, at in zip(shape, read.indices, strict=True))
    if read.of_points:
        wanted = len(read.indices[0]) if read.indices[0] is not None else 1
    return _nchunks(candidate, read) * math.prod(_first_shape(candidate.chunks)) / max(wanted, 1)


def _lack_of_streams(candidate: _Candidate, read: _Probe) -> float:
    """How many times too few streams decode the requested bytes; 1 if they are enough, or none are needed.

    A small read has fewer than `FULL_STREAMS`: streams shorter than a good chunk gain nothing.
    """
    if not candidate.streams:
        return 1.0
    requested = _nchunks(candidate, read) * candidate.nbytes / _amplification(candidate, read)
    return max(candidate.nbytes / candidate.streams / max(_SHORT_NBYTES, requested / FULL_STREAMS), 1.0)


def _index_share(candidate: _Candidate, read: _Probe) -> float:
    """Bytes of the indexes of shards, for each decoded byte."""
    held = _size(candidate.chunks) / _size(candidate.objects)
    if held == 1:
        return 0.0
    entries = _nobjects(candidate, read) * held
    return entries * _INDEX_ENTRY_NBYTES / (_nchunks(candidate, read) * candidate.nbytes)


def _size(grid: Grid) -> int:
    return math.prod(axis.nchunks for axis in grid)


_MEASURES = (
    _Measure("amplification", "chunks", "decoded bytes per requested byte", _amplification, 2.0, 2.0),
    _Measure("streams", "chunks", "times too few streams", _lack_of_streams, 2.0, 2.0),
    _Measure("chunks", "chunks", "chunks decoded", _nchunks, 8.0, FULL_STREAMS),
    _Measure("objects", "shards", "objects opened", _nobjects, 4.0, 16.0),
    _Measure("index", "chunks", "index bytes per decoded byte", _index_share, 2.0, 0.02),
)


def _first_shape(grid: Grid) -> tuple[int, ...]:
    return chunk_shape(grid, (0,) * len(grid))


def _advise(array: Array, access: AccessPattern, name: str) -> advice.Advice:
    meta = array.metadata
    specs = advice.specs_of(meta)
    chunk = ArrayRepr(meta.data_type.dtype, _first_shape(meta.chunk_grid), meta.fill_value)
    size = human_size(math.prod(chunk.shape) * chunk.dtype.itemsize)
    sharded = "" if array.shards is None else f" in shards {array.shards}"
    codecs = ", ".join(spec.name for spec in specs)
    summary = f"{array.dtype} {array.shape}, chunks {array.chunks} of {size} bytes{sharded}, {codecs}"
    only: advice.Finding | None = None
    if not is_for_gpu(chunk.dtype):
        only = advice.Finding("dtype", f"no GPU has {array.dtype}: the host reads the array in any layout")
    elif array.size == 0:
        only = advice.Finding("data", "the array is empty")
    else:
        try:
            findings, changes, gains = _judge(array, access, specs, chunk)
            return advice.Advice(name, summary, access, findings, changes, gains, array)
        except (UnknownCodecError, MissingExtraError) as error:
            only = advice.Finding("codec", str(error))
    return advice.Advice(name, summary, access, (only,), {}, {}, array)


def _judge(
    array: Array, access: AccessPattern, specs: tuple[CodecSpec, ...], chunk: ArrayRepr
) -> tuple[tuple[advice.Finding, ...], dict[str, Any], dict[str, advice.Gain]]:
    """What is wrong with an array, what to change, and what that should gain."""
    meta, shardings = array.metadata, find_shardings(array.metadata.codecs, array.ndim)[0]
    on_host = advice.host_steps(specs, chunk)
    regions = _regions(array, choose_chunks(array.shape, chunk.dtype.itemsize, access=access, sharded=True))
    chain, findings = _judge_chain(specs, chunk, regions)
    nbytes = math.prod(chunk.shape) * chunk.dtype.itemsize
    now = _Candidate({}, meta.chunk_grid, meta.grid, nbytes, 0.0 if on_host else advice.streams_of(specs, nbytes))
    around = [spec.name for sharding in shardings for spec in sharding.wrap]
    candidates = _candidates(array, access, chain, rewraps=bool(around))
    reads = _probes(access, array.shape)
    best = min(candidates, key=lambda one: len(_problems(one, candidates, reads)))
    findings += _judge_geometry(now, best, candidates, reads)
    if around:
        text = f"{', '.join(around)} around shards: every shard is fetched and decoded whole"
        findings.append(advice.Finding("shards", text, "leave it out"))
    changes = dict(best.changes)
    if chain is not specs or (changes and len(shardings) > 1):
        # copies support neither shards in shards nor codecs around them
        kept = {"chunks": chunk.shape, "shards": meta.object_shape} if shardings else {}
        changes = {**kept, **changes, **advice.chain_keywords(meta, chain)}
    gains: dict[str, advice.Gain] = {}
    if changes:
        gains = {m.name: advice.Gain(m.text, _worst(m, now, reads), _worst(m, best, reads)) for m in _MEASURES}
        steps = len(on_host) + len(around), len(advice.host_steps(chain, chunk))
        gains["host_steps"] = advice.Gain("steps of the chain on the host", *steps)
        present = _regions(array, chunk.shape)
        if regions and present:
            ratios = (_ratio(specs, present, meta.fill_value), _ratio(chain, regions, meta.fill_value))
            gains["stored_nbytes"] = advice.Gain("stored bytes in all", *(ratio * array.nbytes for ratio in ratios))
    return tuple(findings), changes, gains


def _judge_chain(
    specs: tuple[CodecSpec, ...], chunk: ArrayRepr, regions: Sequence[NDArray[Any]]
) -> tuple[tuple[CodecSpec, ...], list[advice.Finding]]:
    """The chain to use, and findings on the present one."""
    chain, findings = specs, []
    on_host = advice.host_steps(specs, chunk)
    if on_host:
        chain = advice.on_device(specs, chunk)
        for step in on_host:
            about = "filters" if step.spec.kind == "array_array" else "codec"
            change = None if step.spec in chain else "leave it out" if about == "filters" else "replace it"
            findings.append(advice.Finding(about, f"{step.spec.name} runs on the host: {step.why}", change))
    elif chunk.dtype.itemsize > 1 and advice.compressors_of(specs) and not advice.is_shuffled(specs) and regions:
        shuffled = advice.with_compressor(specs)
        gain = _ratio(specs, regions, chunk.fill_value) / max(_ratio(shuffled, regions, chunk.fill_value), 1e-9)
        if gain > _SHUFFLE_GAIN:
            text = f"bytes are not shuffled; Blosc with lz4 and a shuffle would store {100 / gain:.2g} % as many"
            findings.append(advice.Finding("shuffle", text, "shuffle them"))
            chain = shuffled
    if not any(spec.name in advice.CHECKSUMS for spec in chain) and advice.compressors_of(chain):
        findings.append(advice.Finding("checksum", "no codec verifies chunks; crc32c would, also on a GPU"))
    return chain, findings


def _candidates(
    array: Array, access: AccessPattern, chain: tuple[CodecSpec, ...], *, rewraps: bool
) -> list[_Candidate]:
    """The present chunks, the same in shards, and the chunks of the layout for GPUs. rewraps: whether shards change."""
    meta, itemsize = array.metadata, max(array.metadata.data_type.dtype.itemsize, 1)
    chunks, shards = _first_shape(meta.chunk_grid), None if meta.sharding is None else meta.object_shape
    nbytes, same = math.prod(chunks) * itemsize, {"chunks": chunks, "shards": shards} if rewraps else {}
    present = _Candidate(same, meta.chunk_grid, meta.grid, nbytes, advice.streams_of(chain, nbytes))
    candidates, has_shards = [present], meta.zarr_format == 3
    if has_shards and shards is None and is_regular(meta.grid):
        joined = choose_shards(array.shape, chunks, itemsize)
        if joined is not None:
            candidates.append(_shaped(array, {"chunks": chunks, "shards": joined}, chain))
    best = choose_chunks(array.shape, itemsize, access=access, sharded=has_shards)
    best_shards = choose_shards(array.shape, best, itemsize) if has_shards else None
    if (best, best_shards) != (chunks, shards):
        changes = {"chunks": best, **({"shards": best_shards} if has_shards else {})}
        candidates.append(_shaped(array, changes, chain))
    return candidates


def _shaped(array: Array, changes: dict[str, Any], chain: tuple[CodecSpec, ...]) -> _Candidate:
    itemsize = max(array.metadata.data_type.dtype.itemsize, 1)
    objects, inner = parse_grid(changes["chunks"], changes.get("shards"), array.shape, itemsize)
    grid = objects if inner is None else tuple(axis.subdivided(n) for axis, n in zip(objects, inner, strict=True))
    nbytes = math.prod(changes["chunks"]) * itemsize
    return _Candidate(changes, grid, objects, nbytes, advice.streams_of(chain, nbytes))


def _worst(measure: _Measure, candidate: _Candidate, reads: Sequence[_Probe]) -> float:
    return max(measure.of(candidate, read) for read in reads)


def _problems(candidate: _Candidate, candidates: Sequence[_Candidate], reads: Sequence[_Probe]) -> list[_Measure]:
    """The numbers of a candidate that are much worse than those of the best one."""

    def is_problem(measure: _Measure) -> bool:
        value = _worst(measure, candidate, reads)
        return value > max(measure.floor, measure.factor * min(_worst(measure, one, reads) for one in candidates))

    return list(filter(is_problem, _MEASURES))


def _judge_geometry(
    now: _Candidate, best: _Candidate, candidates: Sequence[_Candidate], reads: Sequence[_Probe]
) -> list[advice.Finding]:
    """The problems of the present storage that the best candidate does not have."""
    if not best.changes:
        return []
    findings, left = [], _problems(best, candidates, reads)
    for measure in _problems(now, [now, *candidates], reads):
        if measure not in left:
            worst = max(reads, key=lambda read: measure.of(now, read))
            value, possible = (advice.as_number(one) for one in (measure.of(now, worst), _worst(measure, best, reads)))
            numbers = f"{value} {measure.text} ({possible} possible)"
            is_joined = measure.about == "shards" and best.changes.get("shards")
            change = "put them into shards" if is_joined else "change the chunks"
            findings.append(advice.Finding(measure.about, f"{worst.name}: {numbers}", change))
    return findings


def _regions(array: Array, chunks: tuple[int, ...]) -> list[NDArray[Any]]:
    """Regions of the data in the shape of a chunk, at random, as far as few chunks hold them; not those of fill."""
    rng, left = np.random.default_rng(1), _REGIONS_NBYTES
    meta, on_host = array.metadata, array.to("cpu")
    chunk = ArrayRepr(meta.data_type.dtype, chunks, meta.fill_value)
    chunk_nbytes = max(math.prod(_first_shape(meta.chunk_grid)) * chunk.dtype.itemsize, _LEAST_NBYTES)
    regions: list[NDArray[Any]] = []
    for _ in range(_NREGIONS):
        start = [int(rng.random() * n) // c * c for n, c in zip(array.shape, chunks, strict=True)]
        stops = [min(s + c, n) for s, c, n in zip(start, chunks, array.shape, strict=True)]
        spans = zip(meta.chunk_grid, start, stops, strict=True)
        left -= chunk_nbytes * math.prod(axis.locate(stop - 1) - axis.locate(first) + 1 for axis, first, stop in spans)
        if left < 0:
            break
        data = np.full(chunks, fill_of(chunk), chunk.dtype)
        empty = data.tobytes()
        found = on_host[tuple(slice(first, stop) for first, stop in zip(start, stops, strict=True))]
        data[tuple(slice(0, n) for n in np.shape(found))] = found
        if meta.fill_value is None or data.tobytes() != empty:
            regions.append(data)
    return regions


def _ratio(specs: Sequence[CodecSpec], regions: Sequence[NDArray[Any]], fill: Any) -> float:
    """Stored bytes for each decoded one, of regions that a chain encodes."""
    chunk = ArrayRepr(regions[0].dtype, regions[0].shape, fill)
    chain = backend_for("cpu").prepare(prepare(complete(tuple(specs), chunk), chunk), chunk)
    return sum(memoryview(one).nbytes for one in chain.encode(list(regions))) / sum(data.nbytes for data in regions)
