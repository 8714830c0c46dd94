"""Finds the module whose functions take an array, so that code is written once for NumPy and CuPy."""

import sys
from typing import Any

import numpy as np

from gzarr.devices import gpu_extra
from gzarr.storage.extras import require
from gzarr.tensors import DeviceArray, namespace_of

#: Python's scalars go with arrays of every library.
_SCALARS = (bool, int, float, complex, type(None))


def array_namespace(*arrays: Any) -> Any:
    """Return the module with the functions for arrays: numpy, cupy, or that of another library.

    Parameters
    ----------
    *arrays : array
        Arrays of one library. Scalars of Python do not matter. A `gzarr.Array` stands for what it reads.

    Returns
    -------
    module
        The module. For arrays that ``device="emulated"`` has read, one that behaves as cupy.

    Raises
    ------
    TypeError
        If there is no array, or arrays of several libraries; these would not work together.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> def normalize(block):
    ...     xp = gzarr.array_namespace(block)
    ...     return (block - block.mean()) / xp.maximum(block.std(), 1e-6)
    >>> normalize(np.array([1.0, 3.0]))
    array([-1.,  1.])
    """
    found = [_namespace(array) for array in arrays if not isinstance(array, _SCALARS)]
    if not found:
        raise TypeError("array_namespace needs an array")
    if any(other is not found[0] for other in found):
        names = ", ".join(sorted({_name(module) for module in found}))
        raise TypeError(
            f"arrays of several libraries do not work together: {names}; copy them to one device, such as by "
            "xp.asarray(host) or array.get()"
        )
    return found[0]


def scipy_namespace(*arrays: Any) -> Any:
    """Return SciPy's modules for arrays: those of scipy, or those of cupyx.scipy for arrays in GPU memory.

    Parameters
    ----------
    *arrays : array
        Arrays of NumPy or CuPy, or arrays that ``device="emulated"`` has read.

    Returns
    -------
    object
        Has the modules as attributes, such as ``ndimage`` and ``signal``. They are imported when they are used.

    Raises
    ------
    TypeError
        If there is no array, or arrays of several libraries, or of one without SciPy's functions.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> block = np.array([0.0, 9.0, 0.0])
    >>> gzarr.scipy_namespace(block).ndimage.uniform_filter(block, 3)
    array([3., 3., 3.])
    """
    xp = array_namespace(*arrays)
    if xp is not np and xp.__name__ != "cupy" and not hasattr(xp, "scipy"):
        raise TypeError(f"SciPy has no functions for arrays of {_name(xp)}; convert them to NumPy arrays first")
    return _ScipyModules(xp)


def scipy_module(xp: Any, name: str, what: str) -> Any:
    """Return a module of SciPy for the arrays of an array module.

    name: of the module, without the package. what: what needs it, for an error. Raises MissingExtraError.
    """
    if xp is np:
        return require(f"scipy.{name}", "ome", what)
    return getattr(xp.scipy, name) if hasattr(xp, "scipy") else require(f"cupyx.scipy.{name}", gpu_extra(), what)


class _ScipyModules:
    """The modules of SciPy for the arrays of an array module, imported when they are first asked for."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return scipy_module(self._xp, name, f"scipy_namespace(...).{name}")


def _namespace(array: Any) -> Any:
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    if isinstance(array, DeviceArray):
        return namespace_of(array)
    if hasattr(array, "backend") and hasattr(array, "xp"):
        return array.xp
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    library = type(array).__module__.partition(".")[0]
    if not hasattr(array, "dtype") or library == "builtins":
        raise TypeError(f"expected an array, got {type(array).__name__}")
    return sys.modules[library]


def _name(module: Any) -> str:
    """Return the name of a module for a message; the one of the emulated device is not what a caller knows."""
    return "the emulated device" if hasattr(module, "EmulatedArray") else module.__name__
