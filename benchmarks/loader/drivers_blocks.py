"""insitubatch and annbatch, which read runs of chunks or rows and shuffle within several of them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.loader.cases import SEED, Task
from benchmarks.loader.contestant import AbsentError, Batch, Contestant


class InSituBatch(Contestant):
    """insitubatch: chunks in random order, samples in blocks of chunks, each chunk decoded once."""

    def __init__(self, task: Task, place: str) -> None:
        super().__init__(task, place)
        if task.case.order == "crops":
            raise AbsentError("samples are rows: no crops")
        if task.case.order == "exact" and (task.data.shards or task.data.chunks[0] > 1):
            raise AbsentError("shuffles within blocks of " + ("shards" if task.data.shards else "chunks") + " only")
        from insitubatch import InSituDataset, obstore_store, open_geometries, split_by_chunk

        self.version = importlib.metadata.version("insitubatch")
        parent, _, self.name = place.rstrip("/").rpartition("/")
        if "://" in parent:
            store = obstore_store(parent, client_options={"allow_http": True})
        else:
            store = obstore_store(Path(parent).as_uri())
        geometries = open_geometries(store, variables=[self.name])
        manifest = split_by_chunk(geometries[self.name], fractions=(1.0, 0.0, 0.0))
        kinds = {"batch_size": task.batch, "block_chunks": task.case.block_chunks, "seed": SEED}
        self.dataset = InSituDataset(store, manifest, geometries, **kinds)

    def epoch(self, number: int) -> Iterator[Batch]:
        self.dataset.set_epoch(number)
        for batch in self.dataset.train:
            yield Batch(batch.sample_indices, batch.arrays[self.name])

    def close(self) -> None:
        self.dataset.close()


class AnnBatch(Contestant):
    """annbatch: runs of rows in random order, as many as memory holds at a time, their rows shuffled."""

    caches = False

    def __init__(self, task: Task, place: str) -> None:
        super().__init__(task, place)
        if task.case.order == "crops":
            raise AbsentError("samples are rows: no crops")
        import annbatch
        import zarr

        self.version = importlib.metadata.version("annbatch")
        self.lib, self.array = annbatch, zarr.open_array(place, mode="r")

    def epoch(self, number: int) -> Iterator[Batch]:
        case = self.task.case
        run = self.task.data.chunks[0] if case.order == "blocks" else 1
        loader = self.lib.Loader(
            batch_size=self.task.batch,
            chunk_size=run,
            preload_nchunks=case.block_chunks if case.order == "blocks" else self._ahead(),
            shuffle=True,
            return_index=True,
            preload_to_gpu=False,
            rng=np.random.default_rng((SEED, number)),
        )
        for batch in loader.add_dataset(self.array):
            yield Batch(batch["index"], batch["X"])

    def _ahead(self) -> int:
        """Rows read at once: whole batches that fit into memory twice, and not all of the epoch."""
        batches = min(self.task.memory // (2 * self.task.batch_nbytes), 8)
        return int(max(batches, 1) * self.task.batch)
