"""What zarr-python and TensorStore write is read here bit for bit, and the reverse: a sample of all combinations.

``GZARR_EXCHANGE_ALL=1`` tries them all, for hours.
"""

import os
import warnings
from functools import cache

import pytest

from tests.conformance import cases, codec_chains, samples
from tests.conformance.limits import TENSORSTORE, ZARR_PYTHON, limits_of, possible
from tests.conformance.peers import Gzarr, Peer, TensorStore, ZarrPython, exchange

#: One in so many of the data types that a codec fits is tried.
EVERY = dict.fromkeys([("zarr-python", 3), ("zarr-python", 2), ("tensorstore", 3), ("tensorstore", 2)], 16)
PEERS = {"zarr-python": ZarrPython, "tensorstore": TensorStore}


@cache
def peer_named(name: str) -> Peer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PEERS[name]()


@cache
def sample(name: str, zarr_format: int) -> tuple[cases.Case, ...]:
    if os.environ.get("GZARR_EXCHANGE_ALL"):
        return tuple(cases.product(zarr_format, name))
    return tuple(cases.sample(zarr_format, name, EVERY[name, zarr_format]))


def groups() -> list[tuple[str, int, samples.Dtype]]:
    found = ((name, zarr_format, case.dtype) for name, zarr_format in EVERY for case in sample(name, zarr_format))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("name", "zarr_format", "dtype"), groups(), ids=str)
def test_arrays_pass_both_ways(name: str, zarr_format: int, dtype: samples.Dtype) -> None:
    pytest.importorskip(name.replace("-python", ""))
    peer, ours = peer_named(name), Gzarr()
    chosen = [c for c in sample(name, zarr_format) if c.dtype == dtype and possible(peer, c)]
    problems = [p for case in chosen for pair in ((ours, peer), (peer, ours)) for p in exchange(*pair, case)]
    assert not problems, "\n".join([f"{len(problems)} problems in {len(chosen)} cases", *problems[:20]])


@pytest.mark.parametrize(("name", "zarr_format"), EVERY, ids=str)
def test_the_sample_has_every_data_type_codec_and_layout(name: str, zarr_format: int) -> None:
    everything = cases.product(zarr_format, name)
    for what in ("dtype", "codecs", "layout"):
        all_names, names = (
            {str(getattr(getattr(c, what), "name", c.dtype)) for c in some}
            for some in (everything, sample(name, zarr_format))
        )
        assert names == all_names, f"{what} {all_names - names} is not in the sample: change EVERY"


@pytest.mark.parametrize("limit", [*ZARR_PYTHON, *TENSORSTORE], ids=lambda limit: limit.reason)
def test_what_is_left_out_because_a_peer_cannot_do_it(limit) -> None:
    name = "tensorstore" if limit in TENSORSTORE else "zarr-python"
    pytest.importorskip(name.replace("-python", ""))
    peer = peer_named(name)
    assert limit.applies(limit.example), "a limit must apply to its own example"
    problem = limits_of(peer).get(limit)
    if problem is not None:
        pytest.skip(f"{peer.name} cannot: {limit.reason}")
    ours = Gzarr()
    assert not exchange(ours, peer, limit.example) + exchange(peer, ours, limit.example)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_no_peer_can_do_still_round_trips_here(zarr_format: int) -> None:
    ours = Gzarr()
    examples = [limit.example for limit in (*ZARR_PYTHON, *TENSORSTORE) if limit.example.zarr_format == zarr_format]
    problems = [p for case in examples for p in exchange(ours, ours, case)]
    assert not problems, "\n".join(problems)


def test_every_codec_of_numcodecs_is_installed() -> None:
    missing = set(codec_chains.OPTIONAL) - set(codec_chains.INSTALLED)
    if missing:
        pytest.skip(f"numcodecs has no {', '.join(sorted(missing))} here: install the extras zfp, pcodec, msgpack")
