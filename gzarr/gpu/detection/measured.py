"""The numbers behind the choices between host and device, from ``measured.json`` beside this file.

Each value belongs to a GPU by name. `benchmarks.gpu.questions` measures it there, and `benchmarks.gpu.values` writes it
to the file. For all other GPUs the values are only reasoned, and placements say so.

**The reasoned values.** A read on the device costs about 300 microseconds for tables and calls from Python, and some
tens each for the decoder's latency on short streams, for launches and for the wait; a host decodes a chunk in about 25
microseconds (docs/benchmarks.md) at 1 GB/s or better. That makes 500 microseconds for 8 chunks of 32 KiB on either
side. Writes are assumed to be alike. In doubt the device is preferred, as its costs per chunk are almost nothing.
Without GPUDirect Storage, KvikIO copies through host memory piece by piece and waits for each piece, while the host
reader makes one copy for a wave; hence the host reader.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from gzarr.gpu.detection import detect
from gzarr.gpu.device.protocol import Device

#: The parts of the file: limits of the reads and writes that the host does, and the faster reader by KvikIO's state.
SMALL_READS, SMALL_WRITES, READERS = "small_reads", "small_writes", "readers"
REASONED = "reasoned, not measured"


class Value(NamedTuple):
    """A part of the file for one GPU.

    Attributes
    ----------
    value : dict
        The entry of the file.
    basis : str
        The machine on which it was measured, or that it was not measured, as a phrase.
    """

    value: dict[str, Any]
    basis: str


def value_for(part: str, gpu: str) -> Value:
    """A part for a GPU, by the driver's name for it: measured, or else the reasoned one."""
    table = _table()
    entry = table["measured"].get(gpu, {})
    if part in entry:
        return Value(entry[part], f"measured on {entry['machine']}")
    return Value(table["reasoned"][part], REASONED)


def gpu_name(device: Device) -> str:
    """The name of a device's GPU; "" for an emulated device."""
    kind, _, number = device.name.partition(":")
    return detect.identify(int(number or 0)).name if kind == "cuda" else ""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.files(__package__).joinpath("measured.json").read_text())
    return table
