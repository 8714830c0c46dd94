"""The ``transpose`` codec: permutes the dimensions of a chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_fields, check_integers, need_array
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError


@dataclass(frozen=True, slots=True)
class TransposeCodec(CodecSpec):
    """Permutation of dimensions.

    Attributes:
        order: dimension ``i`` of the encoded chunk is dimension ``order[i]`` of the decoded one. ``"C"`` (as it is)
            and ``"F"`` (reversed), which drafts of the specification had, are resolved to a permutation.

    Source: Zarr v3 specification, "transpose codec".
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

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse."""
        check_fields(cls.name, configuration, ("order",), ("order",))
        return cls(configuration["order"])

    def configuration(self) -> dict[str, Any]:
        """``{"order": [...]}``."""
        return {"order": self.order if isinstance(self.order, str) else list(self.order)}

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """``order`` for a number of dimensions. Raises: MetadataError if it is for another."""
        order = self.order
        if isinstance(order, str):
            order = tuple(range(ndim)) if order == "C" else tuple(reversed(range(ndim)))
        if len(order) != ndim:
            raise MetadataError(f"codec 'transpose': order {list(order)} is for {len(order)} dimensions, got {ndim}")
        return order

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Permute the shape; "C" and "F" become permutations."""
        array = need_array(self.name, decoded)
        order = self.permutation(len(array.shape))
        shape = tuple(array.shape[axis] for axis in order)
        return replace(self, order=order), ArrayRepr(array.dtype, shape, array.fill_value)
