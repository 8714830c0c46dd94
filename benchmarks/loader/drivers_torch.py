"""torch's DataLoader over zarr-python, as its users write it: a sample a call, workers that each open the array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.loader.cases import Task
from benchmarks.loader.contestant import AbsentError, Batch, Contestant

FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"


class Samples:
    """What DataLoader calls a dataset with an index."""

    def __init__(self, task: Task, place: str) -> None:
        self.task, self.place = task, place
        self.array: Any = None  # opened by the process that reads, as an event loop survives no fork

    def __len__(self) -> int:
        return self.task.n

    def __getitem__(self, index: int) -> Any:
        import zarr

        if self.array is None:
            self.array = zarr.open_array(self.place, mode="r")
        if self.task.case.order == "crops":
            return self.array[self.task.box(self.task.crops[index])]
        return self.array[index]


class Order:
    """A sampler of torch: the order of the epoch that is set."""

    def __init__(self, task: Task) -> None:
        self.task, self.epoch = task, 0

    def __iter__(self) -> Iterator[int]:
        return iter(self.task.ids(self.epoch).tolist())

    def __len__(self) -> int:
        return self.task.n


class DataLoader(Contestant):
    """DataLoader with some workers. pipeline: zarr-python's, by its dotted name; the default if None."""

    caches = False

    def __init__(self, task: Task, place: str, workers: int, pipeline: str | None = None) -> None:
        import torch.utils.data
        import zarr
        import zarr.core.codec_pipeline

        super().__init__(task, place)
        if pipeline and not hasattr(zarr.core.codec_pipeline, pipeline.rpartition(".")[2]):
            raise AbsentError(f"zarr {zarr.__version__} has no such pipeline")
        if pipeline:
            zarr.config.set({"codec_pipeline.path": pipeline})
        self.version = f"{torch.__version__}, zarr {zarr.__version__}"
        self.order = Order(task)
        self.loader = torch.utils.data.DataLoader(
            Samples(task, place),
            batch_size=task.batch,
            sampler=self.order,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self.order.epoch = number
        yield from map(Batch, self.task.batches(number), self.loader)

    def close(self) -> None:
        if (iterator := self.loader._iterator) is not None:  # noqa: SLF001 - torch has no public way to end workers
            iterator._shutdown_workers()  # noqa: SLF001


def plain_0(task: Task, place: str) -> Contestant:
    """No workers, zarr-python's default pipeline."""
    return DataLoader(task, place, 0)


def plain_2(task: Task, place: str) -> Contestant:
    """Two workers, zarr-python's default pipeline."""
    return DataLoader(task, place, 2)


def fused_0(task: Task, place: str) -> Contestant:
    """No workers, zarr-python's fused pipeline."""
    return DataLoader(task, place, 0, FUSED)


def fused_2(task: Task, place: str) -> Contestant:
    """Two workers, zarr-python's fused pipeline."""
    return DataLoader(task, place, 2, FUSED)
