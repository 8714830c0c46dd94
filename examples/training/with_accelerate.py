"""Training in several processes by Accelerate: ``accelerate launch -m examples.training.with_accelerate``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

import gzarr.interop.torch
from examples.training.pictures import make_loaders, write_pictures
from examples.training.with_torch import EPOCHS, make_model, measure_accuracy


def main() -> None:
    """Train, and print the losses and the accuracy."""
    accelerator = Accelerator()  # first: it tells the loader which rank this process is
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        (path,) = broadcast_object_list([folder])
        if accelerator.is_main_process:
            write_pictures(Path(path) / "digits.zarr")
        accelerator.wait_for_everyone()
        training, test = make_loaders(Path(path) / "digits.zarr", "cpu")
        model = make_model()
        # The loader is not prepared: its batches are those of this process already.
        wrapped, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=3e-3))
        for epoch in range(EPOCHS):
            total = torch.zeros((), device=accelerator.device)
            for batch in gzarr.interop.torch.dataset(training):
                image, label = (batch[name].to(accelerator.device) for name in ("image", "label"))
                loss = nn.functional.cross_entropy(wrapped(image / 16), label)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                total += loss.detach()
            mean = accelerator.reduce(total / len(training), "mean")
            accelerator.print(f"epoch {epoch}: loss {float(mean):.3f}")
        accelerator.print(f"accuracy {measure_accuracy(model.cpu(), test):.3f}")
        accelerator.wait_for_everyone()  # the first process deletes the pictures
        accelerator.end_training()


if __name__ == "__main__":
    main()
