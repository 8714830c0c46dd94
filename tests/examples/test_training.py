"""The examples of training learn: their loss falls, and they recognize pictures that they have not seen."""

import os
import re
import sys
from importlib.util import find_spec

import pytest

from tests.support.processes import ROOT, output_of


@pytest.mark.parametrize("library", ["jax", "torch", "accelerate", "ray"])
def test_a_network_learns(library: str) -> None:
    for module in (library, "sklearn"):
        if find_spec(module) is None:
            pytest.skip(f"could not import {module!r}")
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes=2", "-m"] if library == "accelerate" else []
    command = [sys.executable, "-m", *launch, f"examples.training.with_{library}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    said = output_of(command, cwd=ROOT, env=environment)
    once = dict.fromkeys(re.findall(r"(epoch \d): loss (\S+)", said))  # Ray may say it twice
    losses = [float(loss) for _, loss in once]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 * losses[0]
    accuracy = re.search(r"accuracy (\S+)", said)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.8
