"""What a codec is: data. A spec names a codec and its configuration and says what it does to a chunk's shape and size.

Nothing here computes on chunks. Each backend keeps a table from a spec's ``name`` to a factory of batch functions
(`Codec`), so "lz4 on the GPU" is one entry of a table, and coverage is a comparison of two dicts. A chain of specs is
*prepared* once, when an array is opened (`gzarr.codecs.chain`), into steps with known dtypes, shapes and sizes.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np

from gzarr.codecs.fields import check_fields
from gzarr.errors import MetadataError

#: Which side of the array/bytes boundary a codec lives on. "any" takes either: its output is bytes.
Kind: TypeAlias = Literal["array_array", "array_bytes", "bytes_bytes", "any"]


@dataclass(frozen=True, slots=True)
class ArrayRepr:
    """A chunk as an array.

    Parameters
    ----------
    dtype : numpy.dtype
        Type of the elements, with its byte order.
    shape : tuple of int
        Shape of the chunk in elements.
    fill_value : scalar of ``dtype``, optional
        Value of missing elements; None leaves it undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from gzarr.codecs import ArrayRepr
    >>> ArrayRepr(np.dtype("i4"), (100, 100)).nbytes
    40000
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill_value: Any = None

    @property
    def nelements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Size in bytes; None for Python objects, whose size is not fixed."""
        return None if self.dtype.hasobject else self.nelements * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BytesRepr:
    """A chunk as a string of bytes.

    Parameters
    ----------
    nbytes : int, optional
        Exact size in bytes; None if it is not known beforehand.
    itemsize : int, default 1
        Size in bytes of the elements that the bytes hold, a hint for shuffles; 1 if there are none.
    max_nbytes : int, optional
        Most bytes that there can be if ``nbytes`` is None; None if there is no bound. Equality ignores it.

    Examples
    --------
    >>> from gzarr.codecs import BytesRepr, Crc32cCodec
    >>> spec, encoded = Crc32cCodec().resolve(BytesRepr(100))
    >>> encoded.nbytes
    104
    """

    nbytes: int | None = None
    itemsize: int = 1
    max_nbytes: int | None = field(default=None, compare=False)


Repr: TypeAlias = ArrayRepr | BytesRepr


def need_array(codec: str, decoded: Repr) -> ArrayRepr:
    """What the codec is to encode, if it is an array."""
    if not isinstance(decoded, ArrayRepr):
        raise MetadataError(
            f"codec {codec!r} encodes arrays, but the codec before it makes bytes; move it before that codec"
        )
    return decoded


def need_bytes(codec: str, decoded: Repr) -> BytesRepr:
    """What the codec is to encode, if it is bytes."""
    if not isinstance(decoded, BytesRepr):
        raise MetadataError(f"codec {codec!r} encodes bytes, but it is given an array; put a 'bytes' codec before it")
    return decoded


def fill_of(chunk: ArrayRepr, fields: str | list[str] | None = None) -> Any:
    """The fill value of chunks, or of some of their fields; if it is undefined, zero, or None for objects."""
    value = chunk.fill_value
    if value is None and not chunk.dtype.hasobject:
        value = np.zeros((), chunk.dtype)[()]
    return value if fields is None else value[fields]


def equals_fill(values: np.ndarray[Any, Any], chunk: ArrayRepr) -> bool:
    """Whether all elements of an array have the bits of the fill value of chunks."""
    if values.size == 0:
        return True
    if values.dtype.hasobject:
        # Of one type too: False equals 0, and an element may be an array, which has no single answer to "==".
        fill_value = fill_of(chunk)
        kind = type(fill_value)
        return all(type(item) is kind and bool(item == fill_value) for item in values.flat)
    bits = _bits(np.asarray(values, order="C"))
    # Most chunks have another first element than last one, or than the fill value: no need to read the rest.
    first = bits[0].tobytes()
    if bits[-1].tobytes() != first:
        return False
    fill = _bits(np.asarray(fill_of(chunk), values.dtype).reshape(1))
    return fill.tobytes() == first and bool(np.all(bits == fill))


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements' bits, as one integer each or as rows of bytes: NaNs compare equal, -0.0 differs from 0.0."""
    flat = array.reshape(-1)
    size = flat.dtype.itemsize
    return flat.view(f"u{size}") if size in (1, 2, 4, 8) else flat.view("u1").reshape(flat.size, size)


class CodecSpec(ABC):
    """A codec's name and configuration: the base class of every codec, also of those that users register.

    A subclass is a frozen, slotted dataclass whose fields are those of the codec's configuration. It sets ``name`` and
    ``kind`` and implements `resolve`. `gzarr.register_codec` makes it known to gzarr.

    Attributes
    ----------
    name : str
        Zarr v3 name of the codec, and its key in the tables of the backends.
    kind : {"array_array", "array_bytes", "bytes_bytes", "any"}
        What the codec takes and gives when it encodes.
    v2_id : str, optional
        Id of the codec in Zarr v2, whose configuration has the same fields; None if Zarr v2 has no such codec.
    v2_fields : mapping
        Fields of the configuration in Zarr v2 with their defaults there, if either differs from Zarr v3.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from gzarr.codecs import BytesRepr, CodecSpec
    >>> @dataclass(frozen=True, slots=True)
    ... class Xor(CodecSpec):
    ...     key: int = 255
    ...     name = "example.xor"
    ...     kind = "bytes_bytes"
    ...
    ...     def resolve(self, decoded):
    ...         return self, BytesRepr(decoded.nbytes)
    >>> Xor(7).to_json()
    {'name': 'example.xor', 'configuration': {'key': 7}}
    >>> Xor.from_json({"key": 7})
    Xor(key=7)
    """

    __slots__ = ()
    kind: ClassVar[Kind]
    v2_id: ClassVar[str | None] = None
    v2_fields: ClassVar[Mapping[str, Any]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """Zarr v3 name of the codec."""

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Make a spec from the ``configuration`` object of Zarr v3 metadata.

        Parameters
        ----------
        configuration : mapping
            Values by name of the field; fields with a default may be missing.

        Returns
        -------
        CodecSpec
            The codec with this configuration.

        Raises
        ------
        MetadataError
            If a field is unknown, missing or has a bad value; the message names the field.
        """
        fields = dataclasses.fields(cast("Any", cls))
        required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
        check_fields(cast("Any", cls).name, configuration, [field.name for field in fields], required)
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """Give the ``configuration`` object of Zarr v3 metadata.

        Returns
        -------
        dict
            JSON values by name of the field; empty if the codec has no fields.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(cast("Any", self))}

    @abstractmethod
    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Fill in what the spec left open, given what it will encode, and say what comes out.

        Parameters
        ----------
        decoded : ArrayRepr or BytesRepr
            What the codec will encode.

        Returns
        -------
        spec : CodecSpec
            The spec with nothing left open.
        encoded : ArrayRepr or BytesRepr
            What the codec makes of such chunks.

        Raises
        ------
        MetadataError
            If the codec cannot encode such chunks.
        """

    def to_json(self) -> dict[str, Any]:
        """Give the codec as Zarr v3 metadata.

        Returns
        -------
        dict
            The ``name``, and the ``configuration`` unless it is empty.
        """
        configuration = self.configuration()
        return {"name": self.name, "configuration": configuration} if configuration else {"name": self.name}

    def to_dict(self) -> dict[str, Any]:
        """Give what `to_json` gives: zarr-python's name for it."""
        return self.to_json()

    def to_v2(self) -> dict[str, Any]:
        """Give the codec as Zarr v2 metadata.

        Returns
        -------
        dict
            The ``id``, and the fields of the configuration.

        Raises
        ------
        MetadataError
            If Zarr v2 has no such codec.
        """
        if self.v2_id is None:
            raise MetadataError(f"codec {self.name!r} cannot be stored in Zarr v2; use zarr_format=3")
        return {"id": self.v2_id, **self.configuration()}


class CompressorSpec(CodecSpec):
    """A codec that turns bytes into bytes of another, unknown size."""

    __slots__ = ()
    kind: ClassVar[Kind] = "bytes_bytes"

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Check that bytes go in; bytes of unknown size come out. See `CodecSpec.resolve`."""
        need_bytes(self.name, decoded)
        return self, BytesRepr()


class Step(NamedTuple):
    """One codec of a prepared chain.

    Attributes
    ----------
    spec : CodecSpec
        The codec, with nothing left open.
    decoded : ArrayRepr or BytesRepr
        What it encodes.
    encoded : ArrayRepr or BytesRepr
        What comes out of it.

    See `gzarr.register_codec` for a function that takes a step.
    """

    spec: CodecSpec
    decoded: Repr
    encoded: Repr


#: A batch function: takes a list of chunks, returns a list of as many. Fails with CodecError(index=...).
Batch: TypeAlias = Callable[[Sequence[Any]], list[Any]]


class Codec(NamedTuple):
    """A step made ready to run on one backend: two functions that take a list of chunks and return as many.

    Attributes
    ----------
    decode, encode : callable
        Functions of a list of chunks. A chunk that cannot be decoded or encoded raises CodecError with its index.

    See `gzarr.register_codec` for a function that makes one.
    """

    decode: Batch
    encode: Batch


#: An entry of a backend's table: makes the batch functions for one step, once, when an array is opened.
Factory: TypeAlias = Callable[[Step], Codec]
