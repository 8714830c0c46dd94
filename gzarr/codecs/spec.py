"""What a codec is: data. A spec names a codec and its configuration and says what it does to a chunk's shape and size.

Nothing here computes on chunks. Each backend keeps a table from a spec's ``name`` to a factory of batch functions
(`Codec`), so "lz4 on the GPU" is one entry of a table, and coverage is a comparison of two dicts. A chain of specs is
*prepared* once, when an array is opened (`gzarr.codecs.chain`), into steps with known dtypes, shapes and sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np

#: Which side of the array/bytes boundary a codec lives on. "any" takes either: its output is bytes.
Kind: TypeAlias = Literal["array_array", "array_bytes", "bytes_bytes", "any"]


@dataclass(frozen=True, slots=True)
class ArrayRepr:
    """A chunk as an array.

    Attributes:
        dtype: NumPy dtype, with its byte order.
        shape: chunk shape in elements.
        fill_value: value of missing elements, a scalar of `dtype` (None: undefined).
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill_value: Any = None

    @property
    def nelements(self) -> int:
        """Number of elements."""
        n = 1
        for length in self.shape:
            n *= length
        return n

    @property
    def nbytes(self) -> int | None:
        """Size in bytes; None for Python objects, whose size is not fixed."""
        return None if self.dtype.hasobject else self.nelements * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BytesRepr:
    """A chunk as a string of bytes.

    Attributes:
        nbytes: exact size where it is known beforehand, else None.
        itemsize: size in bytes of the elements that the bytes hold (a hint for shuffles), 1 if there are none.
    """

    nbytes: int | None = None
    itemsize: int = 1


Repr: TypeAlias = ArrayRepr | BytesRepr


def fill_of(chunk: ArrayRepr, fields: str | list[str] | None = None) -> Any:
    """The fill value of chunks, or of some of their fields; where it is undefined zero, and None among objects."""
    value = chunk.fill_value
    if value is None and not chunk.dtype.hasobject:
        value = np.zeros((), chunk.dtype)[()]
    return value if fields is None else value[fields]


class CodecSpec(ABC):
    """A codec's name and configuration: a frozen, slotted dataclass that is validated when it is made.

    ``name`` is the Zarr v3 name and the key of the backends' tables.
    """

    __slots__ = ()
    kind: ClassVar[Kind]

    @property
    @abstractmethod
    def name(self) -> str:
        """Zarr v3 name of the codec."""

    @classmethod
    @abstractmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse the ``configuration`` object of Zarr v3 metadata. Raises MetadataError naming the bad field."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """The ``configuration`` object of Zarr v3 metadata; empty if the codec has none."""

    @abstractmethod
    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Fill in what the spec left open, given what it will encode, and say what comes out.

        Returns: (the spec with nothing left open, the encoded representation).
        Raises: MetadataError if the codec cannot encode such chunks.
        """

    def to_json(self) -> dict[str, Any]:
        """The codec as Zarr v3 metadata; without ``configuration`` if that is empty."""
        configuration = self.configuration()
        return {"name": self.name, "configuration": configuration} if configuration else {"name": self.name}


class Step(NamedTuple):
    """One codec of a prepared chain: ``decoded`` goes in when encoding, ``encoded`` comes out."""

    spec: CodecSpec
    decoded: Repr
    encoded: Repr


#: A batch function: takes a list of chunks, returns a list of as many. Fails with CodecError(index=...).
Batch: TypeAlias = Callable[[Sequence[Any]], list[Any]]


class Codec(NamedTuple):
    """A step made ready to run on one backend."""

    decode: Batch
    encode: Batch


#: An entry of a backend's table: makes the batch functions for one step, once, when an array is opened.
Factory: TypeAlias = Callable[[Step], Codec]
