"""Gives advice: samples an array, compares candidates for its storage, and says what to change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gzarr.advising.access import Probe, probes_of
from gzarr.advising.advice import Advice, Finding, Gain, GroupAdvice
from gzarr.advising.chains import (
    CHECKSUMS,
    HostStep,
    chain_keywords,
    chunk_of,
    compressors_of,
    host_steps,
    is_shuffled,
    on_device,
    specs_of,
    with_compressor,
)
from gzarr.advising.model import BatchNChunks, StoredLayout, count
from gzarr.advising.rules import MEASURES, Candidate, explain, pick, problems
from gzarr.advising.sampling import Reencoding, Sample, SampledRegions, sample, streams_of
from gzarr.api.open import open as open_node
from gzarr.chunk_io.prepare import find_shardings
from gzarr.codecs.spec import CodecSpec
from gzarr.devices import large_gpu_batch
from gzarr.display.info import human_size
from gzarr.errors import MissingExtraError, UnknownCodecError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.presets import AccessPattern, choose_chunks, choose_shards, is_for_gpu
from gzarr.indexing.chunking import parse_grid
from gzarr.indexing.grid import is_regular, nchunks

#: Gains that say nothing if no chunk of the sample is stored.
_SAMPLED = ("read_amplification", "streams_per_batch", "stored_nbytes")
#: Factor of stored bytes from which a shuffle is worth a re-encoding.
_SHUFFLE_GAIN = 1.25


def advise(what: Any, access: AccessPattern = "volume", *, path: str | None = None) -> Advice | GroupAdvice:
    """Say how an array, or every array of a group, is best stored for a GPU to read it, and what that should gain.

    This looks at metadata and a few chunks. It lists nothing, needs no GPU, and changes nothing. Advice on an array
    that is open on a device ("cuda", "emulated") holds for its batches, other advice for a GPU with memory
    to spare. Numbers are counts and estimates of bytes, streams, objects and requests (`gzarr.advising.model`), not
    times.

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
    probes_of(access, ())
    if not isinstance(what, (Array, Group)) and hasattr(what, "__array__"):
        raise TypeError(f"advise looks at stored arrays, got an array in memory ({type(what).__name__}); save it first")
    if not isinstance(what, (Array, Group)) or path is not None:
        what = open_node(what, mode="r", path=path)
    if isinstance(what, Group):
        arrays = {name: node for name, node in what.members(None) if isinstance(node, Array)}
        return GroupAdvice({name: _advise(array, access, name) for name, array in arrays.items()}, what)
    return _advise(what, access, what.path or str(what.store_path))


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known of an array before candidates for its storage are compared."""

    array: Array
    access: AccessPattern
    specs: tuple[CodecSpec, ...]
    sample: Sample
    probes: list[Probe]
    batch: BatchNChunks

    @property
    def itemsize(self) -> int:
        return max(self.array.metadata.data_type.dtype.itemsize, 1)

    def candidate(self, changes: dict[str, Any], stored: StoredLayout) -> Candidate:
        """A candidate with the cost of the reads."""
        return Candidate(changes, stored, tuple(count(stored, p, self.itemsize, self.batch) for p in self.probes))


def _advise(array: Array, access: AccessPattern, name: str) -> Advice:
    try:
        sampled = sample(array)
    except (UnknownCodecError, MissingExtraError) as error:
        what = f"{array.dtype} {array.shape}"
        return Advice(name, what, access, "nothing", (Finding("codec", str(error)),), {}, {}, (), (), array)
    case = _Case(array, access, specs_of(array.metadata), sampled, probes_of(access, array.shape), _batch(array))
    now = case.candidate({}, sampled.stored)
    text = f"{sampled.nsampled} of {nchunks(sampled.stored.grid):,} chunks, {sampled.npresent} of them stored"
    if not is_for_gpu(array.metadata.data_type.dtype):
        finding = Finding("dtype", f"no GPU has {array.dtype}: the host reads the array in any layout")
        return _advice(case, name, text, [finding], now, now, ({}, 0, 0))
    if array.size == 0:
        return _advice(case, name, text, [Finding("data", "the array is empty")], now, now, ({}, 0, 0))
    on_host = host_steps(case.specs, chunk_of(array.metadata, _lengths(sampled.stored)))
    regions = SampledRegions(
        array, choose_chunks(array.shape, case.itemsize, access=access, sharded=_has_shards(array))
    )
    text += f"; {len(regions.data)} regions re-encoded"
    if not sampled.npresent:
        text += "; too few stored chunks to estimate bytes and streams, counts include missing chunks"
    if on_host:  # the host decodes, a GPU decodes no stream
        now = case.candidate({}, replace(sampled.stored, streams=0))
    specs, findings = _judge_chain(case, on_host, regions)
    candidates = _candidates(case, specs, regions)
    best = pick(candidates)
    findings += _judge_geometry(candidates, now, best)
    if _around(array):
        names = ", ".join(spec.name for spec in _around(array))
        findings.append(
            Finding("shards", f"{names} around shards: every shard is fetched and decoded whole", "leave it out")
        )
    changes = dict(best.changes)
    if specs is not case.specs or (changes and _nested(array) > 1):
        # copies support neither shards in shards nor codecs around them
        present = {"chunks": _lengths(now.stored), "shards": array.metadata.object_shape} if _nested(array) else {}
        changes = {**present, **changes, **chain_keywords(array.metadata, specs)}
    after = best if changes else now
    left = len(host_steps(specs, chunk_of(array.metadata, _lengths(best.stored)))) if changes else len(on_host)
    return _advice(case, name, text, findings, now, after, (changes, len(on_host) + len(_around(array)), left))


def _batch(array: Array) -> BatchNChunks:
    """How many chunks a batch takes, on the array's device or on a large GPU."""
    if array.device == "cpu":
        return large_gpu_batch
    return lambda nchunks, nbytes, _: array.backend.batch_nchunks(None, nchunks, nbytes, writing=False)


def _has_shards(array: Array) -> bool:
    """Whether the array's format has shards."""
    return array.metadata.zarr_format == 3


def _lengths(stored: StoredLayout) -> tuple[int, ...]:
    return tuple(axis.bounds(0)[1] - axis.bounds(0)[0] for axis in stored.grid)


def _nested(array: Array) -> int:
    """Number of levels of shards."""
    return len(find_shardings(array.metadata.codecs, array.ndim)[0])


def _around(array: Array) -> list[CodecSpec]:
    """The codecs around shards."""
    return [spec for sharding in find_shardings(array.metadata.codecs, array.ndim)[0] for spec in sharding.wrap]


def _judge_chain(
    case: _Case, on_host: list[HostStep], regions: SampledRegions
) -> tuple[tuple[CodecSpec, ...], list[Finding]]:
    """The chain to use, and findings on the present one."""
    meta, specs = case.array.metadata, case.specs
    findings = []
    if on_host:
        chunk = chunk_of(meta, _lengths(case.sample.stored))
        specs = on_device(specs, chunk)
        for step in on_host:
            about = "filters" if step.spec.kind == "array_array" else "codec"
            change = None if step.spec in specs else "leave it out" if about == "filters" else "replace it"
            findings.append(Finding(about, f"{step.spec.name} runs on the host: {step.why}", change))
    elif case.itemsize > 1 and compressors_of(specs) and not is_shuffled(specs) and regions.data:
        with_shuffle = with_compressor(specs)
        gain = regions.encoded(specs).ratio / max(regions.encoded(with_shuffle).ratio, 1e-9)
        if gain > _SHUFFLE_GAIN:
            text = f"bytes are not shuffled; Blosc with lz4 and a shuffle would store {100 / gain:.2g} % as many"
            findings.append(Finding("shuffle", text, "shuffle them"))
            specs = with_shuffle
    if not any(spec.name in CHECKSUMS for spec in specs) and compressors_of(specs):
        findings.append(Finding("checksum", "no codec verifies chunks; crc32c would, also on a GPU"))
    return specs, findings


def _candidates(case: _Case, specs: tuple[CodecSpec, ...], regions: SampledRegions) -> list[Candidate]:
    """The present chunks with the chain to use, the same chunks in shards, and the chunks of the layout for GPUs."""
    array, now = case.array, case.sample.stored
    trial = regions.encoded(specs)
    chunks = _lengths(now)
    present = now
    if specs is not case.specs:
        same_shape = SampledRegions(array, chunks).encoded(specs)
        present = _estimated(case, now, specs, same_shape if same_shape.nregions else trial)
    candidates = [case.candidate({}, present)]
    if _around(array):
        same = {"chunks": chunks, "shards": array.metadata.object_shape}
        candidates = [_with_shape(case, same, present)]
    if _has_shards(array) and not now.sharded and is_regular(now.grid):
        shards = choose_shards(array.shape, chunks, case.itemsize)
        if shards is not None:
            candidates.append(_with_shape(case, {"chunks": chunks, "shards": shards}, present))
    best = choose_chunks(array.shape, case.itemsize, access=case.access, sharded=_has_shards(array))
    shards = choose_shards(array.shape, best, case.itemsize) if _has_shards(array) else None
    if (best, shards) != (chunks, array.metadata.object_shape if now.sharded else None):
        changes = {"chunks": best, **({"shards": shards} if _has_shards(array) else {})}
        stored = _estimated(case, _with_shape(case, changes, present).stored, specs, trial)
        candidates.append(case.candidate(changes, stored))
    return candidates


def _with_shape(case: _Case, changes: Mapping[str, Any], like: StoredLayout) -> Candidate:
    """A candidate with other chunks and shards that are compressed as well as the present ones."""
    array = case.array
    objects, inner = parse_grid(changes["chunks"], changes.get("shards"), array.shape, case.itemsize)
    each = 0
    grid = objects
    if inner is not None:
        grid = tuple(axis.subdivided(n) for axis, n in zip(objects, inner, strict=True))
        each = math.prod(o.bounds(0)[1] // n for o, n in zip(objects, inner, strict=True))
    nbytes = math.prod(changes["chunks"]) * case.itemsize
    encoded = like.encoded_nbytes * nbytes / max(like.chunk_nbytes, 1)
    stored = replace(
        like, grid=grid, objects=objects, chunk_nbytes=nbytes, encoded_nbytes=encoded,
        index_nbytes=16 * each + 4 if each else 0, in_ranges=case.sample.versions,
    )  # fmt: skip
    return case.candidate(dict(changes), stored)


def _estimated(case: _Case, stored: StoredLayout, specs: tuple[CodecSpec, ...], trial: Reencoding) -> StoredLayout:
    """Stored bytes and streams of a chain: as in the trial, or as before if the trial has no data."""
    streams = streams_of(specs, case.array, stored.chunk_nbytes)
    if not trial.nregions or not trial.present:
        return replace(stored, streams=streams)
    return replace(stored, encoded_nbytes=trial.ratio * stored.chunk_nbytes, streams=streams, present=trial.present)


def _judge_geometry(candidates: list[Candidate], now: Candidate, best: Candidate) -> list[Finding]:
    """The problems of the present storage that the best candidate does not have."""
    if not best.changes:
        return []
    left = problems(best, candidates)
    sharded = "put them into shards" if best.changes.get("shards") else "change the chunks"
    remedy = {"chunks": "change the chunks", "shards": sharded}
    solved = [measure for measure in problems(now, [now, *candidates]) if measure not in left]
    return [Finding(m.about, explain(m, now, best), remedy[m.about]) for m in solved]


def _advice(
    case: _Case,
    name: str,
    sampled: str,
    findings: list[Finding],
    now: Candidate,
    then: Candidate,
    chain: tuple[dict[str, Any], int, int],
) -> Advice:
    changes, before, after = chain
    gains: dict[str, Gain] = {}
    if changes:
        for measure in MEASURES:
            gains[measure.name] = Gain(measure.unit, measure.worst(now), measure.worst(then))
        streams = [min(cost.streams_at_once for cost in candidate.costs) for candidate in (now, then)]
        gains["streams_per_batch"] = Gain(gains["streams_per_batch"].unit, *streams)
        gains["host_steps"] = Gain("steps of the chain on the host", before, after)
        gains["stored_nbytes"] = Gain("stored bytes in all", now.stored.nbytes, then.stored.nbytes)
        if not case.sample.npresent:
            gains = {name: gain for name, gain in gains.items() if name not in _SAMPLED}
    return Advice(
        name=name,
        summary=_summary(case, now.stored),
        access=case.access,
        sampled=sampled,
        findings=tuple(findings),
        changes=changes,
        gains=gains,
        before=now.costs,
        after=then.costs,
        array=case.array,
    )


def _summary(case: _Case, stored: StoredLayout) -> str:
    array = case.array
    shards = f" in shards {array.metadata.object_shape}" if stored.sharded else ""
    codecs = ", ".join(spec.name for spec in case.specs)
    size = human_size(int(stored.chunk_nbytes))
    return f"{array.dtype} {array.shape}, chunks {_lengths(stored)} of {size} bytes{shards}, {codecs}"
