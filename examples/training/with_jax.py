"""Training in JAX: ``python -m examples.training.with_jax``, on a GPU with ``--device cuda``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import gzarr
from examples.training.pictures import make_loaders, write_pictures
from gzarr.interop.jax import arrays

EPOCHS = 4
LEARNING_RATE = 0.2


def make_model(seed: int) -> list[Any]:
    """Return the weights and biases of a network with one hidden layer."""
    first, second = jax.random.split(jax.random.key(seed))
    weights = (jax.random.normal(first, (64, 128)) / 8, jax.random.normal(second, (128, 10)) / 12)
    return [(w, jnp.zeros(w.shape[1])) for w in weights]


def scores(model: list[Any], image: jax.Array) -> jax.Array:
    """Return the logarithms of the probabilities of each digit."""
    (w1, b1), (w2, b2) = model
    hidden = jax.nn.relu(image.reshape(len(image), -1) / 16 @ w1 + b1)
    return jax.nn.log_softmax(hidden @ w2 + b2)


@jax.jit
def step(model: list[Any], batch: dict[str, jax.Array]) -> tuple[list[Any], jax.Array]:
    """Take a step of gradient descent. Returns: the new model, and the loss of the old one."""

    def loss_of(model: list[Any]) -> jax.Array:
        right = jnp.take_along_axis(scores(model, batch["image"]), batch["label"][:, None], axis=1)
        return -right.mean()

    loss, gradients = jax.value_and_grad(loss_of)(model)
    return jax.tree.map(lambda value, gradient: value - LEARNING_RATE * gradient, model, gradients), loss


def train(model: list[Any], loader: gzarr.Loader) -> tuple[list[Any], list[float]]:
    """Train for some epochs. Returns: the model, and the mean loss of each epoch."""
    losses = []
    for epoch in range(EPOCHS):
        total = jnp.zeros(())
        for batch in loader:
            model, loss = step(model, arrays(batch))
            total += loss
        losses.append(float(total) / len(loader))
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")
    return model, losses


def measure_accuracy(model: list[Any], loader: gzarr.Loader) -> float:
    """Return the share of pictures that are recognized."""
    found = [scores(model, b["image"]).argmax(1) == b["label"] for b in map(arrays, loader)]
    return float(jnp.concatenate(found).mean())


def main(device: str = "cpu") -> None:
    """Train, and print the losses and the accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder) / "digits.zarr")
        training, test = make_loaders(Path(folder) / "digits.zarr", device)
        print(training.summary())
        model, _ = train(make_model(0), training)
        print(f"accuracy {measure_accuracy(model, test):.3f}")
        print(training.stats())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    main(parser.parse_args().device)
