"""Training by two workers of Ray Train: ``python -m examples.training.with_ray``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from torch import nn

import gzarr.interop.torch
from examples.training.pictures import make_loaders, write_pictures
from examples.training.with_torch import EPOCHS, make_model, measure_accuracy


def work(config: dict[str, Any]) -> None:
    """Train in one worker, of those that Ray has joined by torch.distributed."""
    training, test = make_loaders(Path(config["path"]), "cpu")  # the part of this worker
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(make_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for batch in gzarr.interop.torch.dataset(training):
            loss = nn.functional.cross_entropy(model(batch["image"] / 16), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        torch.distributed.all_reduce(total)
        mean = float(total) / len(training) / torch.distributed.get_world_size()
        ray.train.report({"epoch": epoch, "loss": mean})
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: loss {mean:.3f}", flush=True)
    accuracy = measure_accuracy(model.module, test)
    if torch.distributed.get_rank() == 0:
        print(f"accuracy {accuracy:.3f}", flush=True)


def main() -> None:
    """Train, and print the losses and the accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.zarr"
        write_pictures(path)
        trainer = ray.train.torch.TorchTrainer(
            work,
            train_loop_config={"path": str(path)},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
