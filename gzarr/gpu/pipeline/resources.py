"""What a backend carries out reads and writes with, handed to whatever cuts them into pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gzarr.backend import Fields
from gzarr.gpu.detection.thresholds import Crossover
from gzarr.gpu.device.pipeline_slots import PipelineSlots
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.reading.host import Reader


class Resources(NamedTuple):
    """What a backend carries out reads and writes with.

    Attributes
    ----------
    device : Device
        The device.
    pipeline_slots : PipelineSlots
        The pipeline slots of its batches.
    reader : Reader
        The reader of files.
    small_reads : Crossover
        Limits of the reads that the host decodes.
    encodes : callable
        Whether the device encodes a write: takes the plan, the value, the number of chunks, and fields.
        Raises: DeviceError in strict mode, if it cannot.
    """

    device: Device
    pipeline_slots: PipelineSlots
    reader: Reader
    small_reads: Crossover
    encodes: Callable[[DevicePlan, Any, int, Fields], bool]
