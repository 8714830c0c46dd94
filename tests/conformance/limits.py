"""Things that a peer cannot do, found by trying: they are left out, and every test run gives the reason.

A limit holds for a peer if the peer alone cannot write its example and read it back, so that a newer version of the
peer, which can, is tested.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tests.conformance import codec_chains, layouts, samples
from tests.conformance.cases import Case
from tests.conformance.peers import Peer, exchange
from tests.conformance.samples import as_dtype

_LAYOUTS_V2 = {layout.name: layout for layout in layouts.LAYOUTS_V2}
_LAYOUTS_V3 = {layout.name: layout for layout in layouts.LAYOUTS_V3}
_V2 = {codecs.name: codecs for codecs in codec_chains.CODECS_V2}
_V3 = {codecs.name: codecs for codecs in codec_chains.CODECS_V3}


@dataclass(frozen=True, eq=False)
class Limit:
    """Something that a peer may be unable to do.

    Attributes:
        reason: what fails.
        example: a case of it.
        applies: whether a case is one of it.
    """

    reason: str
    example: Case
    applies: Callable[[Case], bool]


def _three(dtype: samples.Dtype, codecs: str, layout: str, seed: int = 0) -> Case:
    return Case(dtype, _V3[codecs], _LAYOUTS_V3[layout], 3, seed)


def _two(dtype: samples.Dtype, codecs: str, layout: str, seed: int = 0) -> Case:
    return Case(dtype, _V2[codecs], _LAYOUTS_V2[layout], 2, seed)


def _big(case: Case) -> bool:
    return as_dtype(case.dtype).byteorder == ">"


def _is_void(case: Case) -> bool:
    return as_dtype(case.dtype).kind == "V"


def _sharded(case: Case) -> bool:
    return "shard" in case.layout.name


def _transposed(case: Case) -> bool:
    return "F order" in case.layout.name or any(word in case.layout.name for word in ("transpose", "shards of cubes"))


def _nested(case: Case) -> bool:
    return case.dtype == samples.STRUCTS[1]


ZARR_PYTHON = (
    Limit(
        "raw bytes and structs in shards (fill value is not hashable)",
        _three("|V7", "default", "shards"),
        lambda c: c.zarr_format == 3 and _is_void(c) and _sharded(c),
    ),
    Limit(
        "variable lengths behind a transpose (elements come back in another order)",
        _three("string", "default", "F order"),
        lambda c: c.zarr_format == 3 and c.dtype in samples.VARIABLE and _transposed(c),
    ),
    Limit(
        "numcodecs filters behind a transpose (elements come back in another order)",
        _three("|i1", "numcodecs.delta, gzip", "F order"),
        lambda c: c.zarr_format == 3 and c.codecs in codec_chains.FILTERS_V3 and _transposed(c),
    ),
    Limit(
        "numcodecs filters that name a dtype before big-endian bytes (values come back swapped)",
        _three(">i4", "numcodecs.astype", "line"),
        lambda c: c.zarr_format == 3 and _big(c) and c.codecs in codec_chains.FILTERS_V3,
    ),
    *(
        Limit(
            f"{name} behind a transpose (raises: memory of order F)",
            _three("<f8", f"numcodecs.{name}", "F order"),
            lambda c, name=name: c.zarr_format == 3 and name in c.codecs.name and _transposed(c),
        )
        for name in ("zfpy", "pcodec")
        if name in codec_chains.INSTALLED
    ),
    *(
        Limit(
            f"{name} of order F in v2 (raises)",
            _two("<f8", name, "F order"),
            lambda c, name=name: c.zarr_format == 2 and c.codecs.name == name and _transposed(c),
        )
        for name in ("zfpy",)
        if name in codec_chains.INSTALLED
    ),
    *(
        Limit(
            f"{name} of big-endian numbers (raises)",
            _two(">f8", name, "line"),
            lambda c, name=name: name in c.codecs.name and _big(c),
        )
        for name in ("zfpy", "pcodec", "bitround")
        if name in _V2
    ),
    Limit(
        "structs in structs in v2 (data type not found)",
        _two(samples.STRUCTS[1], "raw", "line"),
        lambda c: c.zarr_format == 2 and _nested(c),
    ),
    Limit(
        "structs with dates through compressors in v2 (raises: dtype 'M' in a buffer)",
        _two(samples.STRUCTS[1], "zstd", "line"),
        lambda c: c.zarr_format == 2 and _nested(c) and c.codecs.name != "raw",
    ),
    Limit(
        "one variable-length string of bytes without dimensions (raises)",
        _three("bytes", "default", "no dimensions"),
        lambda c: c.dtype == "bytes" and not c.layout.shape,
    ),
)

TENSORSTORE = (
    Limit(
        "codecs around or before shards (refuses)",
        _three("<i4", "gzip", "shards in chunks"),
        lambda c: "serializer" in c.layout.options and c.codecs.options.get("compressors", "auto") is not None,
    ),
    Limit(
        "fill values of float8_e8m0fnu (reads and writes them wrong by a factor of 2**64, or negative)",
        _two("float8_e8m0fnu", "raw", "line", seed=1),
        lambda c: c.dtype == "float8_e8m0fnu" and bool(c.seed % 2),
    ),
)


@cache
def limits_of(peer: Peer) -> dict[Limit, str]:
    """The limits that hold for a peer, with what went wrong."""
    table = TENSORSTORE if peer.name == "tensorstore" else ZARR_PYTHON
    tried = {limit: exchange(peer, peer, limit.example) for limit in table}
    return {limit: problems[0] for limit, problems in tried.items() if problems}


def possible(peer: Peer, case: Case) -> bool:
    """Whether no limit of the peer applies to a case."""
    return not any(limit.applies(case) for limit in limits_of(peer))
