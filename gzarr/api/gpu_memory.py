"""Objects in the memory of a GPU: zarr-python's `GpuMemoryStore`."""

from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from typing import Any, Self

import numpy as np

from gzarr.devices import backend_for
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import as_bytes
from gzarr.tensors import is_on_device, to_host


class _OnDevice(MutableMapping[str, Any]):
    """Values in device memory, which are given as bytes."""

    def __init__(self, data: MutableMapping[str, Any], device: str) -> None:
        self.data, self.device = data, device
        self._xp = backend_for(device).xp

    def __getitem__(self, key: str) -> bytes:
        return as_bytes(key, to_host(self.data[key]))

    def __setitem__(self, key: str, value: Any) -> None:
        on_device = is_on_device(value)
        self.data[key] = value if on_device else self._xp.asarray(np.frombuffer(as_bytes(key, value), np.uint8))

    def __delitem__(self, key: str) -> None:
        del self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.data))

    def __len__(self) -> int:
        return len(self.data)


class GpuMemoryStore(MemoryStore):
    """A store whose objects are in the memory of a GPU, as encoded bytes.

    Parameters
    ----------
    store_dict : mutable mapping, optional
        Where to keep the objects, as arrays of uint8 on the device. By default a new dict.
    read_only : bool
        Whether to refuse changes.
    device : str
        "cuda", "cuda:1", or "emulated" for tests.

    Raises
    ------
    DeviceError
        If the device cannot be used.

    Notes
    -----
    Reads and writes copy the encoded bytes to the host and back. To read arrays into GPU memory, open them with
    ``device="cuda"`` from any store: only that decodes on the GPU, and a `MemoryStore` is the faster source.

    Examples
    --------
    >>> import gzarr
    >>> store = gzarr.storage.GpuMemoryStore(device="emulated")
    >>> z = gzarr.array([1, 2, 3], store=store, device="cpu")
    >>> z[...]
    array([1, 2, 3])
    """

    def __init__(
        self, store_dict: MutableMapping[str, Any] | None = None, *, read_only: bool = False, device: str = "cuda"
    ) -> None:
        self._objects = _OnDevice({} if store_dict is None else store_dict, device)
        super().__init__(self._objects, read_only)

    @classmethod
    def from_dict(cls, store_dict: Mapping[str, Any], *, device: str = "cuda") -> Self:
        """Return a store in a new dict, with some objects.

        Parameters
        ----------
        store_dict : mapping
            Objects by key: bytes, or arrays on the host, which are copied; arrays on a device, which are shared.
        device : str
            As above.

        Returns
        -------
        GpuMemoryStore
            The store.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.storage.GpuMemoryStore.from_dict({"a": b"xyz"}, device="emulated")["a"]
        b'xyz'
        """
        store = cls(device=device)
        store._objects.update(store_dict)
        return store

    def lock_name(self, key: str) -> Hashable:
        """The identity of the mapping that holds the objects, with the key."""
        return id(self._objects.data), key

    def __str__(self) -> str:
        return f"gpumemory://{id(self._objects.data)}"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a GpuMemoryStore cannot be pickled: its objects are in the memory of this process's GPU")
