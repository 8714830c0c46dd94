"""weighted_sums gives the Adler-32 of zlib and the Fletcher-32 of numcodecs."""

import zlib

import numcodecs
import numpy as np
import pytest
from hypothesis import example, given

from tests.gpu.kernels.launching import STREAMS, checksums_of, streams_of


def fletcher32(data: bytes) -> int:
    return int.from_bytes(bytes(numcodecs.Fletcher32().encode(data))[-4:], "little")


REFERENCES = {"adler32": zlib.adler32, "fletcher32": fletcher32}


@pytest.mark.parametrize("kind", REFERENCES)
@given(STREAMS)
@example([(1 << 20, 3, "ff"), (65535 * 2, 0, "ff"), (65521, 1, "zero")])
def test_streams_of_any_length_and_alignment(kind: str, drawn: list[tuple[int, int, str]]) -> None:
    data = streams_of(drawn)
    assert checksums_of(kind, data) == [REFERENCES[kind](d.tobytes()) for d in data]


def test_no_bytes() -> None:
    streams = [np.zeros(0, np.uint8), np.full(1, 7, np.uint8), np.zeros(0, np.uint8)]
    assert checksums_of("adler32", streams) == [1, zlib.adler32(b"\7"), 1]
