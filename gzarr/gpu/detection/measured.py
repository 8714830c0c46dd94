"""The values behind choices between host and device, and where they come from: ``measured.json`` beside this file.

Each value belongs to a GPU by name, and was measured on it by `benchmarks.gpu.questions`; `benchmarks.gpu.values` puts
answers into the file. For all other GPUs there are values that were only reasoned, and whoever uses one says so.

**How the reasoned ones came about.** A read on the device costs about 300 microseconds for tables and calls from
Python, and some tens each for the decoder's latency on short streams, launches and the wait; a host decodes a chunk in
about 25 microseconds (docs/benchmarks.md) at 1 GB/s or better. That makes 500 microseconds for 8 chunks of 32 KiB on
either side. Writes are taken to be alike. Where in doubt the device is chosen, as its costs per chunk are nearly
nothing. KvikIO without GPUDirect Storage copies through host memory piece by piece, with a wait for each, where the
host reader makes one copy for a wave: the host reader, then.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from gzarr.gpu.detection import detect
from gzarr.gpu.device.protocol import Device

#: The parts of the file: limits of reads and writes that the host does, and the faster reader by state of KvikIO.
SMALL_READS, SMALL_WRITES, READERS = "small_reads", "small_writes", "readers"
REASONED = "reasoned, not measured"


class Value(NamedTuple):
    """A part of the file for one GPU.

    Attributes:
        value: as it stands in the file.
        basis: one phrase: the machine that it was measured on, or that it was not.
    """

    value: dict[str, Any]
    basis: str


def value_for(part: str, gpu: str) -> Value:
    """A part for a GPU, named as its driver names it: its own, or what was reasoned for all."""
    table = _table()
    entry = table["measured"].get(gpu, {})
    if part in entry:
        return Value(entry[part], f"measured on {entry['machine']}")
    return Value(table["reasoned"][part], REASONED)


def gpu_name(device: Device) -> str:
    """The name of the GPU that a device is; "" for one that is none."""
    kind, _, number = device.name.partition(":")
    return detect.identify(int(number or 0)).name if kind == "cuda" else ""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.files(__package__).joinpath("measured.json").read_text())
    return table
