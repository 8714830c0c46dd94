"""Batches of a `gzarr.Loader` as arrays of JAX: ``for batch in loader: step(state, arrays(batch))``.

Arrays of JAX share the memory of a batch on a GPU, and on the CPU where its address is a multiple of 64 bytes, as those
of batches are. The memory is used again once nothing refers to it, which JAX's arrays, and computations that are still
under way, prevent.
"""

from typing import Any

from gzarr.errors import MissingExtraError
from gzarr.tensors import Exported, map_arrays

try:
    import jax
    from jax.dlpack import from_dlpack
except ImportError as error:
    raise MissingExtraError("gzarr.interop.jax needs JAX: pip install 'gzarr[jax]'") from error


def arrays(batch: Any) -> Any:
    """Return the arrays of a batch as arrays of JAX, without a copy where JAX can do without.

    Parameters
    ----------
    batch : array, or dict, list or tuple of arrays
        What a loader gives, on the host or on a GPU. JAX turns numbers of 64 bits into numbers of 32 bits unless
        ``jax_enable_x64`` is set.

    Returns
    -------
    jax.Array, or dict, list or tuple of them
        On the device of the arrays. Anything that is no array is left as it is.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> from gzarr.interop.jax import arrays
    >>> loader = gzarr.Loader(gzarr.array(np.arange(6, dtype="f4"), chunks=2), batch_size=3)
    >>> for batch in loader:
    ...     print(arrays(batch).sum())
    3.0
    12.0
    """
    return map_arrays(lambda item: from_dlpack(Exported(item)) if _is_exported(item) else item, batch)


def _is_exported(item: Any) -> bool:
    """Return whether an item is an array of a type that DLPack has: numbers and booleans."""
    return hasattr(item, "__dlpack__") and not isinstance(item, jax.Array) and item.dtype.kind in "biufcV"
