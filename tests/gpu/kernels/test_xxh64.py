"""xxh64 gives the content checksum that libzstd writes."""

import numcodecs
import numpy as np
from hypothesis import example, given

from tests.gpu.kernels.launching import STREAMS, checksums_of, streams_of


def content_checksum(data: bytes) -> int:
    return int.from_bytes(bytes(numcodecs.Zstd(1, checksum=True).encode(data))[-4:], "little")


@given(STREAMS)
@example([(n, n % 9, "random") for n in range(1, 130)])
def test_streams_of_any_length_and_alignment(drawn: list[tuple[int, int, str]]) -> None:
    data = streams_of(drawn)
    assert checksums_of("xxh64", data) == [content_checksum(d.tobytes()) for d in data]


def test_no_bytes() -> None:
    """Source: XXH64 of nothing with seed 0 is 0xef46db3751d8e999."""
    assert checksums_of("xxh64", [np.zeros(0, np.uint8)]) == [0x51D8E999]
