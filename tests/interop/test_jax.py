"""Batches of a loader as arrays of JAX, and arrays of JAX where gzarr takes arrays.

JAX runs in one process of its own, as it warns of every later fork.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import free_port


def test_jax(tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("could not import 'jax'")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("jax_checks.py"))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_processes_of_jax_are_ranks():
    if importlib.util.find_spec("jax") is None:
        pytest.skip("could not import 'jax'")
    port = str(free_port())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    script = str(Path(__file__).with_name("jax_ranks.py"))
    ranks = [
        subprocess.Popen(
            [sys.executable, script, port, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        out, error = process.communicate(timeout=300)
        assert f"rank {rank} of 2".encode() in out, error.decode()
