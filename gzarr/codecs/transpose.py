"""The ``transpose`` codec: permutes the dimensions of a chunk."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_integers
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Kind, Repr, need_array
from gzarr.errors import MetadataError


@dataclass(frozen=True, slots=True)
class TransposeCodec(CodecSpec):
    """Permute the dimensions of a chunk.

    Parameters
    ----------
    order : sequence of int, or {"C", "F"}
        Dimension ``i`` of the encoded chunk is dimension ``order[i]`` of the decoded one. "C" (unchanged) and "F"
        (reversed) come from drafts of the specification and resolve to a permutation.

    Raises
    ------
    MetadataError
        If ``order`` is not a permutation.

    Notes
    -----
    The name is ``transpose`` in Zarr v3. Zarr v2 has ``order="F"`` instead. Runs on the CPU and on a GPU.

    Source: Zarr v3 specification, "transpose codec".

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=(4, 6), dtype="i4", filters=gzarr.codecs.TransposeCodec((1, 0)))
    >>> array.filters
    (TransposeCodec(order=(1, 0)),)
    """

    order: tuple[int, ...] | str

    name = "transpose"
    kind: ClassVar[Kind] = "array_array"

    def __post_init__(self) -> None:
        if self.order in ("C", "F"):
            return
        order = check_integers(self.name, "order", self.order, 0)
        if sorted(order) != list(range(len(order))):
            raise MetadataError(f"codec 'transpose': order must be a permutation of 0..n-1, got {list(order)}")
        object.__setattr__(self, "order", order)

    def configuration(self) -> dict[str, Any]:
        """Give the order. See `CodecSpec.configuration`."""
        return {"order": self.order if isinstance(self.order, str) else list(self.order)}

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """Give ``order`` as a permutation.

        Parameters
        ----------
        ndim : int
            Number of dimensions of a chunk.

        Returns
        -------
        tuple of int
            The permutation.

        Raises
        ------
        MetadataError
            If ``order`` is for another number of dimensions.
        """
        order = self.order
        if isinstance(order, str):
            order = tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
        if len(order) != ndim:
            raise MetadataError(f"codec 'transpose': order {list(order)} is for {len(order)} dimensions, got {ndim}")
        return order

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Permute the shape; "C" and "F" become permutations. See `CodecSpec.resolve`."""
        array = need_array(self.name, decoded)
        order = self.permutation(len(array.shape))
        shape = tuple(array.shape[axis] for axis in order)
        return replace(self, order=order), ArrayRepr(array.dtype, shape, array.fill_value)
