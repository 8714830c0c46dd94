"""Writes the new arrays of copies: their chunks as blocks, and the metadata when these are complete."""

from __future__ import annotations

from functools import partial
from typing import Any

from gzarr.copying.arrays import CopyBlock, copy_blocks
from gzarr.copying.planning import Job
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.open_options import OpenedWith
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import write_node
from gzarr.scale.blocks import BlockPlan
from gzarr.storage.base import Store
from gzarr.storage.foreign import is_transactional


def array_blocks(store: Store, job: Job, opened_with: OpenedWith, *, resuming: bool = False, **how: Any) -> BlockPlan:
    """The blocks of a new array. how: other fields of `BlockPlan`."""
    dest = partial(Array, store, job.path, job.meta, opened_with, write_empty_chunks=False)
    block = job.source.block or CopyBlock
    do = block(job.source, dest, job.route, resuming=resuming)
    return copy_blocks(job.source, job.route, do, stores=(store,), **how)


def begin_array(store: Store, job: Job, *, resuming: bool = False) -> None:
    """Begin to write the chunks of a new array."""
    if is_transactional(store):
        write_node(store, job.path, job.meta)
    elif not resuming:  # chunks that a killed copy left would show where this one stores nothing
        delete_objects(store, job)


def close_array(store: Store, job: Job) -> None:
    """Write the metadata of an array whose chunks are complete."""
    if not is_transactional(store):
        write_node(store, job.path, job.meta)


def delete_objects(store: Store, job: Job) -> None:
    """Delete the stored objects of a new array."""
    coords = objects_stored(job.meta, store, job.path)
    store.delete_many([join_path(job.path, job.meta.keys.encode(c)) for c in coords])
