"""What a computation may take of memory: what a function needs, and the parts of a device's memory."""

from collections.abc import Callable

from gzarr.backend import Array, Backend
from gzarr.devices import backend_for
from gzarr.images.pyramid.cascade import Cascade
from gzarr.indexing.regions import Region

#: Elements of the block of a trial, at most: so many that fixed costs do not show.
N_ELEMENTS = 1 << 18
#: Times the block that a function is taken to need where its memory cannot be measured, as something else traces it.
ASSUMED = 4
#: Of the device memory, one of so many parts is for decoding and encoding: the pipeline slots of the backend
#: (`gzarr.gpu`).
_CODING_SHARE = 2


def sharing(where: str | Backend, max_device_nbytes: int | None) -> Backend:
    """The backend of a device, or a similar one, that leaves a part of a memory to what is computed.

    max_device_nbytes: the memory; None for any. The CPU has none. Raises: DeviceError, ValueError.
    """
    if max_device_nbytes is not None and max_device_nbytes < _CODING_SHARE:
        raise ValueError(f"max_device_nbytes must be some bytes, got {max_device_nbytes}")
    backend = backend_for(where)
    if max_device_nbytes is None or backend is backend.host:
        return backend
    return backend_for(
        backend.device, **{**backend.options, "max_device_nbytes": int(max_device_nbytes) // _CODING_SHARE}
    )


def left_nbytes(backend: Backend, max_nbytes: int | None, max_device_nbytes: int | None) -> int | None:
    """Bytes that are left to what is computed on a backend of `sharing`; None for the default."""
    if max_device_nbytes is None or backend is backend.host:
        return max_nbytes
    return max_device_nbytes - max_device_nbytes // _CODING_SHARE


def measured_share(cascade: Cascade, produce: Callable[[Region], Array]) -> float:
    """Bytes that a method takes for each byte of a block, by a dry run on the first one.

    produce: gives the elements of regions of level 0.
    """
    shape = cascade.levels[0].shape
    side = round(N_ELEMENTS ** (1 / max(len(shape), 1)))
    block = produce(tuple(slice(0, min(n, side)) for n in shape))
    _, nbytes = cascade.backend.measured(lambda: cascade.downsampled(0, (0,) * len(shape), block))
    return float(ASSUMED if nbytes is None else nbytes / block.nbytes)
