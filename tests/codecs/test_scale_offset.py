"""Scalars of scale_offset."""

import numpy as np

from gzarr.codecs import ScaleOffsetCodec


def test_hexadecimal_scalars_are_bit_patterns() -> None:
    spec = ScaleOffsetCodec("0x3fc00000", "2")
    assert spec.scalars(np.dtype("<f4")) == (np.float32(1.5), np.float32(2))
