"""The bare work: every chunk read, decoded, reduced or filtered, encoded and written once, in one loop of one thread.

numcodecs and scipy do the work, gzarr's kernel the means. Nothing is renamed, no file is looked for before it is
written, and the levels above the image are gathered in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs
import numcodecs.blosc
import numpy as np
from scipy import ndimage

from benchmarks.images.cases import DEPTH, SIGMA
from benchmarks.images.contestants import Job
from benchmarks.images.storing import create
from gzarr.devices import backend_for

VERSION = numcodecs.__version__
CPU = backend_for("cpu")
BLOCK = {2: (2048, 2048), 3: (512, 512)}  # the last extents of a block that is filtered, by the number of axes


def pyramid(job: Job) -> list[str]:
    """Copy the image chunk by chunk, and make every level from the chunks of the one below."""
    source = job.case.source
    names = [str(level) for level in range(source.levels + 1)]
    for level, name in enumerate(names):
        create(job, name, source.shape_of(level))
    chunks = stored_chunks(job)
    for level, name in enumerate(names):
        above = np.empty(source.shape_of(level + 1), source.dtype) if name != names[-1] else None
        write(job, name, reducing(chunks, above, job))
        chunks = cut(above, job) if above is not None else iter(())
    return names


def gaussian(job: Job) -> list[str]:
    """Read the image, filter it in blocks, write it."""
    source = job.case.source
    image = np.empty(source.shape, source.dtype)
    for where, chunk in stored_chunks(job):
        image[box(where, source.chunks)] = chunk
    create(job, "0", source.shape)
    write(job, "0", cut(filtered(image), job))
    return ["0"]


def filtered(image: Any) -> Any:
    """The filtered image: blocks with what is around them, in memory of their own, as rows of 2^n bytes are slow."""
    out, sides = np.empty_like(image), (*image.shape[:-2], *BLOCK[image.ndim])
    for corner in coordinates(image.shape, sides):
        inner = box(corner, sides)
        around = tuple(slice(max(each.start - DEPTH, 0), each.stop + DEPTH) for each in inner)
        smooth = ndimage.gaussian_filter(np.ascontiguousarray(image[around]), SIGMA)
        starts = [each.start - wide.start for each, wide in zip(inner, around, strict=True)]
        target = out[inner]
        target[...] = smooth[tuple(slice(s, s + n) for s, n in zip(starts, target.shape, strict=True))]
    return out


def stored_chunks(job: Job) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Coordinates and values of every chunk, all in one buffer."""
    source, decoder = job.case.source, numcodecs.Zstd()
    buffer = np.empty(source.chunks, source.dtype)
    for where in coordinates(source.shape, source.chunks, job.case.shards):
        decoder.decode(job.image.joinpath("c", *map(str, where)).read_bytes(), buffer)
        yield where, buffer


def reducing(chunks: Iterator[Any], above: Any, job: Job) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The same chunks, each of which is reduced into the level above on its way."""
    factors = job.case.source.factors
    half = tuple(c // f for c, f in zip(job.case.source.chunks, factors, strict=True))
    for where, chunk in chunks:
        if above is not None:
            out = above[box(where, half)]
            inner = tuple(slice(n * f) for n, f in zip(out.shape, factors, strict=True))
            CPU.reduce_windows(chunk[inner], factors, "mean", out)
        yield where, chunk


def cut(values: Any, job: Job) -> Iterator[tuple[tuple[int, ...], Any]]:
    """An array in chunks, those at the ends filled up with zeros."""
    chunks = job.case.source.chunks
    for where in coordinates(values.shape, chunks, job.case.shards):
        block = values[box(where, chunks)]
        if block.shape != chunks:
            block = np.pad(block, [(0, c - n) for c, n in zip(chunks, block.shape, strict=True)])
        yield where, np.ascontiguousarray(block)


def write(job: Job, name: str, chunks: Iterator[Any]) -> None:
    """Encode the chunks and write a file for each, or for each shard."""
    numcodecs.blosc.use_threads = False
    plain = job.case.zarr_format == 2
    encoder = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE) if plain else numcodecs.Zstd(3)
    folder = job.out / name if plain else job.out / name / "c"
    if job.case.shards is None:
        for where, chunk in chunks:
            put(folder, where, encoder.encode(chunk))
        return
    per_shard = tuple(s // c for s, c in zip(job.case.shards, job.case.source.chunks, strict=True))
    shards = itertools.groupby(chunks, lambda each: tuple(i // n for i, n in zip(each[0], per_shard, strict=True)))
    for shard, members in shards:
        put(folder, shard, assembled([(at, encoder.encode(chunk)) for at, chunk in members], per_shard))


def assembled(members: list[tuple[tuple[int, ...], bytes]], per_shard: tuple[int, ...]) -> bytes:
    """A shard of encoded chunks, with its index at the end."""
    index, offset = np.full((*per_shard, 2), -1, "<i8"), 0
    for where, content in members:
        index[tuple(i % n for i, n in zip(where, per_shard, strict=True))] = offset, len(content)
        offset += len(content)
    table = index.tobytes()
    checksum = google_crc32c.value(table).to_bytes(4, "little")
    return b"".join([*(content for _, content in members), table, checksum])


def put(folder: Path, where: tuple[int, ...], content: bytes) -> None:
    """Write a file, with its folder if there is none."""
    path = folder.joinpath(*map(str, where))
    try:
        path.write_bytes(content)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def coordinates(
    shape: tuple[int, ...], chunks: tuple[int, ...], shards: tuple[int, ...] | None = None
) -> Iterator[tuple[int, ...]]:
    """The coordinates of the chunks, those of a shard after one another."""
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    if shards is None:
        yield from itertools.product(*map(range, grid))
        return
    each = [s // c for s, c in zip(shards, chunks, strict=True)]
    for shard in itertools.product(*[range(-(-n // e)) for n, e in zip(grid, each, strict=True)]):
        starts = [i * e for i, e in zip(shard, each, strict=True)]
        yield from itertools.product(*[range(s, min(s + e, n)) for s, e, n in zip(starts, each, grid, strict=True)])


def box(where: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[slice, ...]:
    """The selection of a chunk."""
    return tuple(slice(i * c, (i + 1) * c) for i, c in zip(where, chunks, strict=True))
