"""What codecs on the device refuse: steps when arrays are opened, and chunks when batches are decoded and encoded."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gzarr.codecs.spec import CodecSpec, Step
from gzarr.errors import CodecError
from gzarr.gpu.device.protocol import Table

#: Largest stream that every decoder takes (nvCOMP counts some sizes in 31 bits).
MAX_STREAM_NBYTES = 2**31 - 1
#: The reason for the host to run a step if there is no better one.
UNFIT = "the device cannot run it for this data type, size or configuration"


def headers_on_host(spec: CodecSpec) -> str | None:
    """The `DeviceCodec.host_round_trip` of codecs whose headers are read on the host."""
    return f"headers of {spec.name} are read on the host"


def decoded_nbytes(step: Step) -> int | None:
    """Decoded size of a step's chunks, if the device can hold such a stream."""
    nbytes = step.decoded.nbytes
    return nbytes if nbytes is not None and 0 < nbytes <= MAX_STREAM_NBYTES else None


def refuse(codec: str, bad: NDArray[np.bool_], describe: Callable[[int], str], items: Table | None = None) -> None:
    """Raise CodecError for the first chunk with a bad item, if any.

    describe: gives the message for an item. items: the chunk of the batch that each belongs to; None if it is its own.
    """
    if bad.any():
        which = np.flatnonzero(bad)
        i = int(which[0] if items is None else which[items[which].argmin()])
        raise CodecError(f"{codec}: {describe(i)}", index=i if items is None else int(items[i]), codec=codec)
