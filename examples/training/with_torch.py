"""Training in PyTorch: ``python -m examples.training.with_torch``, on a GPU with ``--device cuda``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import gzarr
import gzarr.interop.torch
from examples.training.pictures import make_loaders, write_pictures

EPOCHS = 4


def make_model() -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(model: nn.Module, loader: gzarr.Loader, device: str) -> list[float]:
    """Train for some epochs. Returns: the mean loss of each."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches = DataLoader(gzarr.interop.torch.dataset(loader), batch_size=None)
    losses = []
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=device)
        for batch in batches:
            loss = nn.functional.cross_entropy(model(batch["image"] / 16), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        losses.append(float(total) / len(loader))
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")
    return losses


def measure_accuracy(model: nn.Module, loader: gzarr.Loader) -> float:
    """Return the share of pictures that are recognized."""
    right = seen = 0
    with torch.no_grad():
        for batch in gzarr.interop.torch.dataset(loader):
            found = model(batch["image"] / 16).argmax(1)
            right += int((found == batch["label"]).sum())
            seen += len(found)
    return right / seen


def main(device: str = "cpu") -> None:
    """Train, and print the losses and the accuracy."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder) / "digits.zarr")
        training, test = make_loaders(Path(folder) / "digits.zarr", device)
        print(training.summary())
        model = make_model().to(device)
        train(model, training, device)
        print(f"accuracy {measure_accuracy(model, test):.3f}")
        print(training.stats())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    main(parser.parse_args().device)
