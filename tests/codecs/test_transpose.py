"""Transpose resolves its order to a permutation."""

import numpy as np
import pytest

from gzarr.codecs import ArrayRepr, TransposeCodec
from gzarr.errors import MetadataError

I4 = ArrayRepr(np.dtype("<i4"), (4, 6))


@pytest.mark.parametrize(("order", "resolved"), [("C", (0, 1)), ("F", (1, 0)), ([1, 0], (1, 0))])
def test_transpose_resolves_to_a_permutation(order, resolved) -> None:
    spec, encoded = TransposeCodec(order).resolve(I4)
    assert spec.order == resolved
    assert encoded.shape == tuple(I4.shape[axis] for axis in resolved)
    with pytest.raises(MetadataError, match="dimensions"):
        TransposeCodec((0, 1, 2)).resolve(I4)
