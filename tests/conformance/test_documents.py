"""Fill values, attributes, names, unknown fields and hierarchies in documents of peers, and the reverse."""

import json
import math

import numpy as np
import pytest

import gzarr
from gzarr.dtypes import default_fill, parse_dtype
from tests.conformance.cases import Case, sample
from tests.conformance.codec_chains import CODECS_V2, CODECS_V3
from tests.conformance.layouts import Layout
from tests.conformance.limits import possible
from tests.conformance.peers import Gzarr, TensorStore, ZarrPython, bits, exchange, fill_bits
from tests.conformance.samples import DTYPES_V2, DTYPES_V3, ML, as_dtype, fill_of, fills

RAW = {3: next(c for c in CODECS_V3 if c.name == "raw"), 2: next(c for c in CODECS_V2 if c.name == "raw")}
LINE = Layout("line", (5,), {"chunks": (2,)})
ATTRIBUTES = {"units": "µm", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}, "big": 2**60, "": "empty name"}


# -- fill values -----------------------------------------------------------------------------------------------------


def bits_of_five(case: Case):
    """What five elements are that were never written."""
    values = np.empty(5, as_dtype(case.dtype))
    for i in range(5):
        values[i] = case.extra["fill_value"]
    return bits(values)


def fill_cases(zarr_format: int, dtypes) -> list[Case]:
    return [
        Case(dtype, RAW[zarr_format], LINE, zarr_format, 0, {"fill_value": fill})
        for dtype in dtypes
        for fill in fills(dtype)
    ]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_pass_both_ways_with_zarr_python(zarr_python: ZarrPython, zarr_format: int) -> None:
    ours, problems, left_out = Gzarr(), [], []
    for case in fill_cases(zarr_format, DTYPES_V2 if zarr_format == 2 else DTYPES_V3):
        if not possible(zarr_python, case):
            continue
        fill = fill_bits(case.extra["fill_value"], as_dtype(case.dtype))
        for writer, reader in ((ours, zarr_python), (zarr_python, ours)):
            try:
                stored = {k: v for k, v in writer.create(case).items() if not k.startswith("c/") and "." in k}
            except (ValueError, TypeError, OverflowError) as error:
                found = left_out if writer is zarr_python else problems
                found.append(f"{case} {case.extra}: {writer.name}: {error!r}")
                continue
            seen = reader.read(stored)
            if seen.facts["fill_value"] != fill or bits(seen.values) != bits_of_five(case):
                problems.append(f"{case} {case.extra}: {writer.name} -> {reader.name}: {seen.facts['fill_value']}")
    assert not problems, "\n".join(problems)
    assert len(left_out) < 3, "\n".join(left_out)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_pass_both_ways_with_tensorstore(tensorstore: TensorStore, zarr_format: int) -> None:
    numbers = [d for d in DTYPES_V3 if as_dtype(d).kind in "biufc"]
    ml = [d for d in ML if d != "float8_e8m0fnu"]  # it gets those wrong itself
    cases = fill_cases(zarr_format, numbers)
    cases += [
        Case(d, RAW[zarr_format], LINE, zarr_format, 0, {"fill_value": f}) for d in ml for f in (0, 1, fill_of(d))
    ]
    ours = Gzarr()
    problems = [p for c in cases for pair in ((ours, tensorstore), (tensorstore, ours)) for p in exchange(*pair, c)]
    for dtype, payload in (("<f4", 0x7FC00001), ("<f8", 0xFFF8000000000001), ("bfloat16", 0x7FC1)):
        size = as_dtype(dtype).itemsize
        fill = np.frombuffer(payload.to_bytes(size, "little"), as_dtype(dtype))[0]  # it writes no payloads itself
        problems += exchange(ours, tensorstore, Case(dtype, RAW[3], LINE, 3, 0, {"fill_value": fill}))
    assert not problems, "\n".join(problems[:20])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["?", ">i4", "f8", "c8", "S6", "U4", "M8[D]", "m8[10s]", "M8", "V5", "str"])
def test_default_fill_values_are_those_of_zarr_python(zarr_python: ZarrPython, dtype: str, zarr_format: int) -> None:
    ours = parse_dtype(dtype)
    how = {"dtype": str if ours.variable else ours.dtype, "zarr_format": zarr_format}
    theirs = zarr_python.zarr.create_array({}, shape=(2,), **how)
    assert fill_bits(default_fill(ours), ours.dtype) == fill_bits(theirs.fill_value, ours.dtype)


# -- attributes, names, unknown fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_and_names_pass_both_ways(zarr_python: ZarrPython, zarr_format: int) -> None:
    extra = {"attributes": ATTRIBUTES}
    if zarr_format == 3:
        extra["dimension_names"] = ["x"]
    case = Case("<i4", RAW[zarr_format], LINE, zarr_format, 1, extra)
    ours = Gzarr()
    problems = exchange(ours, zarr_python, case) + exchange(zarr_python, ours, case)
    assert not problems, "\n".join(problems)
    assert gzarr.open_array(zarr_python.create(case)).attrs.asdict() == ATTRIBUTES


def test_attributes_that_are_no_strict_json_are_read_as_written(zarr_python: ZarrPython) -> None:
    case = Case("<i4", RAW[3], LINE, 3, 0, {"attributes": {"a": math.nan, "b": [math.inf, -math.inf]}})
    ours = Gzarr()
    for stored in (ours.create(case), zarr_python.create(case)):
        for peer in (ours, zarr_python):
            found = peer.read(stored).facts["attributes"]
            assert math.isnan(found["a"])
            assert found["b"] == [math.inf, -math.inf]


def test_fields_that_need_not_be_understood_survive_new_attributes(zarr_python: ZarrPython, tensorstore) -> None:
    case = Case("<i4", RAW[3], LINE, 3)
    for writer in (zarr_python, tensorstore):
        stored = writer.create(case)
        document = json.loads(stored["zarr.json"])
        document["future"] = {"must_understand": False, "anything": [1, {"x": None}]}
        stored["zarr.json"] = json.dumps(document).encode()
        array = gzarr.open_array(stored, "r+")
        array.attrs.update(ATTRIBUTES)
        array.resize(7)
        written = json.loads(stored["zarr.json"])
        assert written["future"] == document["future"]
        assert written["attributes"] == ATTRIBUTES
        # nothing that was there is gone or changed, but for what was asked for, and empty fields
        changed = {k for k, v in document.items() if v and written.get(k) != v} - {"attributes", "shape"}
        assert not changed - same_meaning(document, written, changed), f"{writer.name}: {changed}"
        assert tensorstore.read(stored).facts["shape"] == (7,)


@pytest.mark.parametrize("name", ["zarr-python", "tensorstore"])
def test_documents_of_peers_survive_a_change_of_attributes(zarr_python, tensorstore, name: str) -> None:
    peer = zarr_python if name == "zarr-python" else tensorstore
    ours, problems = Gzarr(), []
    for zarr_format in (2, 3):
        for case in sample(zarr_format, name, 30):
            if not possible(peer, case):
                continue
            stored = peer.create(case)
            before, key = dict(stored), "zarr.json" if zarr_format == 3 else ".zarray"
            gzarr.open_array(stored, "r+").attrs["added"] = 1
            old, new = json.loads(before[key]), json.loads(stored[key])
            changed = {k for k in old if k != "attributes" and old[k] and old[k] != new.get(k)}
            changed -= same_meaning(old, new, changed)
            problems += [f"{case}: {k}: {old[k]} became {new.get(k)}" for k in sorted(changed)]
            if bits(peer.read(stored).values) != bits(peer.read(before).values):
                problems.append(f"{case}: {peer.name} reads other values")
            if ours.read(stored).facts["attributes"] != {"added": 1}:
                problems.append(f"{case}: the attribute is not there")
    assert not problems, f"{len(problems)}\n" + "\n".join(problems[:20])


def same_meaning(old: dict, new: dict, changed: set[str]) -> set[str]:
    """Fields of a v3 document that were only put in other words: gzarr parses the old ones to the same."""
    same = set()
    for field in changed & {"codecs", "data_type", "fill_value", "chunk_key_encoding"}:
        # the form of a fill value depends on the data type's
        together = ("data_type", "fill_value") if field in ("data_type", "fill_value") else (field,)
        documents = (new | {name: old[name] for name in together}, new)
        a, b = (gzarr.open_array({"zarr.json": json.dumps(d).encode()}).metadata for d in documents)
        facts = [(m.codecs, m.data_type, m.keys, fill_bits(m.fill_value, m.data_type.dtype)) for m in (a, b)]
        if facts[0] == facts[1]:
            same.add(field)
    return same
