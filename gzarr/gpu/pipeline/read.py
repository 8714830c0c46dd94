"""Decodes the chunks of a batch: first the host's steps, if any, then those of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.codecs.transfers import upload_rows, upload_streams
from gzarr.gpu.pipeline.placement import DevicePlan


def decoded(context: BatchContext, plan: DevicePlan, buffers: Sequence[Any]) -> Chunks:
    """Decode chunks that exist. buffers: for each, its bytes on the host.

    Raises: CodecError with the index of a damaged chunk; `BatchContext.finish` raises it for what decoders report.
    """
    there = _decoded_on_host(context, plan, buffers) if plan.host else upload_streams(context, buffers, plan.phase)
    return decode_streams(context, plan, there)


def decode_streams(context: BatchContext, plan: DevicePlan, batch: Any) -> Chunks:
    """Do the device's part of a chain. batch: `Streams` or, if the host has a part, perhaps `Chunks`.

    Raises: as `decoded`.
    """
    for decode in plan.device:
        batch = decode(context, batch)
    if not isinstance(batch, Chunks):
        raise DeviceError("a chain of codecs on the device did not end in chunks")
    return batch


def _decoded_on_host(context: BatchContext, plan: DevicePlan, buffers: Sequence[Any]) -> Any:
    """Do the host's part of a chain, and upload its result."""
    items = buffers
    for codec in reversed(plan.host):
        items = codec.decode(items)
    if isinstance(items[0], np.ndarray) and (not plan.device or items[0].ndim != 1 or items[0].dtype != np.uint8):
        return upload_rows(context, items, plan.encoded)
    return upload_streams(context, items)
