"""Batches of a `gzarr.Loader` as tensors of PyTorch: ``DataLoader(dataset(loader), batch_size=None)``.

Tensors share the memory of a batch, on the CPU and on a GPU. That memory is used again once nothing refers to it, which
PyTorch's tensors prevent as long as they live. Pinned tensors are copies in memory of PyTorch's own: it alone knows
until when a transfer that ``tensor.to("cuda", non_blocking=True)`` began still reads them.

On a GPU, PyTorch's current stream waits for a batch. The memory of a batch is used again in the order of CuPy's current
stream. Both are the device's default stream unless they are set: where PyTorch's is another one, set CuPy's to the same
(``with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):``).
"""

from collections.abc import Iterator
from traceback import walk_stack
from typing import Any

from gzarr.errors import MissingExtraError
from gzarr.loader.loader import Loader
from gzarr.tensors import Exported, map_arrays

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise MissingExtraError("gzarr.interop.torch needs PyTorch: pip install 'gzarr[torch]'") from error


def tensors(batch: Any) -> Any:
    """Return the arrays of a batch as tensors in the same memory.

    Parameters
    ----------
    batch : array, or dict, list or tuple of arrays
        What a loader gives, on the host or on a GPU; bfloat16 and float8 stay what they are.

    Returns
    -------
    torch.Tensor, or dict, list or tuple of them
        On the device of the arrays. Matrices in CSR form become those of PyTorch. Anything else is left as it is.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> from gzarr.interop.torch import tensors
    >>> tensors({"image": np.ones((2, 3), "f4"), "label": np.array([4, 7])})["label"]
    tensor([4, 7])
    """
    return map_arrays(_tensor, batch)


def _tensor(item: Any) -> Any:
    if all(hasattr(item, name) for name in ("indptr", "indices", "data")):  # a CSR matrix of SciPy or CuPy
        # Compressed rows are checked, as indices that are out of range would be read all the same.
        rows, columns, values = map(_tensor, (item.indptr, item.indices, item.data))
        return torch.sparse_csr_tensor(rows, columns, values, item.shape, check_invariants=True)
    return torch.from_dlpack(Exported(item)) if _is_exported(item) else item


def dataset(loader: Loader, *, pin_memory: bool | None = None) -> "LoaderDataset":
    """Return a loader as a data set of PyTorch, whose items are batches of tensors.

    Give it to ``DataLoader(dataset(loader), batch_size=None)``, or iterate over it. With ``StatefulDataLoader`` of
    torchdata, the loader's place is saved and loaded.

    Parameters
    ----------
    loader : Loader
        The loader. Its ``rank`` and ``world_size`` are by default those of torch.distributed, if that is initialized
        before the loader is made.
    pin_memory : bool, optional
        Whether tensors on the host are copied into pinned memory, from which they are transferred to a GPU while it
        computes. By default they are if CUDA is available to PyTorch.

    Returns
    -------
    LoaderDataset
        The data set.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> from gzarr.interop.torch import dataset
    >>> from torch.utils.data import DataLoader
    >>> loader = gzarr.Loader(gzarr.array(np.arange(6), chunks=2), batch_size=3)
    >>> for batch in DataLoader(dataset(loader), batch_size=None):
    ...     print(batch)
    tensor([0, 1, 2])
    tensor([3, 4, 5])
    """
    return LoaderDataset(loader, torch.cuda.is_available() if pin_memory is None else pin_memory)


class LoaderDataset(IterableDataset):
    """A loader as a data set of PyTorch; made by `dataset`.

    Attributes
    ----------
    loader : Loader
        The loader.
    """

    def __init__(self, loader: Loader, pin_memory: bool) -> None:
        self.loader = loader
        self._pin_memory = pin_memory

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "a gzarr.Loader reads and decodes on threads of its own, which share one pool of samples: each worker "
                "process would decode all chunks again, and copy batches; use DataLoader(..., num_workers=0)"
            )
        if self.loader.world_size > 1 and _is_sharded_by_accelerate():
            raise RuntimeError(
                "a gzarr.Loader has the batches of its own rank, and Accelerate would divide those among ranks again: "
                "most samples would never come; leave it out of accelerator.prepare(), and iterate over "
                "dataset(loader); or make the loader with rank=0, world_size=1, whose batches Accelerate divides"
            )
        return map(self._to_tensors, self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's place.

        Returns
        -------
        dict
            What `load_state_dict` takes.
        """
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a place.

        Parameters
        ----------
        state_dict : dict
            What `state_dict` returned, of a loader of the same data.
        """
        self.loader.load_state_dict(state_dict)

    def _to_tensors(self, batch: Any) -> Any:
        return map_arrays(_pinned, tensors(batch)) if self._pin_memory else tensors(batch)


def _is_sharded_by_accelerate() -> bool:
    """Return whether a data loader that Accelerate has prepared asks for an iterator."""
    return any(frame.f_globals.get("__name__") == "accelerate.data_loader" for frame, _ in walk_stack(None))


def _is_exported(item: Any) -> bool:
    """Return whether an item is an array of a type that DLPack has: numbers and booleans."""
    return hasattr(item, "__dlpack__") and not isinstance(item, torch.Tensor) and item.dtype.kind in "biufcV"


def _pinned(item: Any) -> Any:
    """Copy a tensor that is on the host into pinned memory."""
    is_on_host = isinstance(item, torch.Tensor) and item.device.type == "cpu"
    return item.pin_memory() if is_on_host else item
