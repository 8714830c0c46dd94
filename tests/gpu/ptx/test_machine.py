"""The PTX interpreter itself: its arithmetic, and the faults that it must notice, each planted in a small kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.gpu.ptx.machine import Grid, run
from tests.gpu.ptx.memory import Fault, Global
from tests.gpu.ptx.program import Entry, entries

#: A thread's number, eight times it, and the two addresses that every program here takes.
HEAD = """
.visible .entry kernel(.param .u64 a, .param .u64 b)
{
    .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>;
    .shared .align 16 .b8 tile[512];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 8;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
"""


def program(body: str) -> Entry:
    return entries(HEAD + body + "\n    ret;\n}")["kernel"]


def launched(
    body: str, a: Sequence[int] | np.ndarray, n: int = 64, blocks: int = 1, *, races: bool = True
) -> np.ndarray:
    """What a program leaves in its second array of n numbers for each block."""
    first, second = np.array(a, np.uint64), np.zeros(n * blocks, np.uint64)
    known = sorted([x.ctypes.data, x.ctypes.data + x.nbytes] for x in (first, second))
    memory = Global(np.array(known))
    grid = Grid((blocks, 1, 1), (n, 1, 1))
    run(program(body), grid, (first.ctypes.data, second.ctypes.data), range(blocks * -(-n // 32)), memory)
    if races:
        memory.check_races()
    return second


COPY = "ld.global.u64 %rd6, [%rd4]; st.global.u64 [%rd5], %rd6;"


def test_copy() -> None:
    data = np.arange(128, dtype=np.uint64) * 3
    assert np.array_equal(launched(COPY, data, 64, 2), data)


def test_stores_are_undone() -> None:
    data, target = np.arange(64, dtype=np.uint64), np.full(64, 7, np.uint64)
    memory = Global()
    done = run(program(COPY), Grid((1, 1, 1), (64, 1, 1)), (data.ctypes.data, target.ctypes.data), [1], memory)
    assert target.tolist() == [7] * 32 + list(range(32, 64))
    addresses, values = memory.written()
    assert np.array_equal(addresses, target.ctypes.data + np.arange(256, 512))
    assert np.array_equal(values, data.view(np.uint8)[256:])
    memory.undo()
    assert target.tolist() == [7] * 64
    assert done.issues.sum() == len(program(COPY).instructions)


M64, M32 = (1 << 64) - 1, (1 << 32) - 1
X, Y = 0xFEDCBA9876543210, 0x8000000180000005
NEGATIVE = -7 & M64


@pytest.mark.parametrize(
    ("body", "x", "y", "wanted"),
    [
        ("add.s64 %rd8, %rd6, %rd7;", X, Y, (X + Y) & M64),
        ("sub.s64 %rd8, %rd6, %rd7;", Y, X, (Y - X) & M64),
        ("mul.lo.s64 %rd8, %rd6, %rd7;", X, Y, X * Y & M64),
        ("mul.hi.u64 %rd8, %rd6, %rd7;", X, Y, X * Y >> 64),
        ("mul.hi.u32 %r8, %r6, %r7; cvt.u64.u32 %rd8, %r8;", X, Y, (X & M32) * (Y & M32) >> 32),
        ("mul.wide.s32 %rd8, %r6, -3;", 5, 0, -15 & M64),
        ("mul.wide.u32 %rd8, %r6, %r7;", X, Y, (X & M32) * (Y & M32)),
        ("mad.wide.u32 %rd8, %r6, %r7, %rd7;", X, Y, ((X & M32) * (Y & M32) + Y) & M64),
        ("div.s64 %rd8, %rd6, %rd7;", NEGATIVE, 2, -3 & M64),
        ("rem.s64 %rd8, %rd6, %rd7;", NEGATIVE, 2, -1 & M64),
        ("div.u64 %rd8, %rd6, %rd7;", NEGATIVE, 2, NEGATIVE // 2),
        ("shl.b64 %rd8, %rd6, 4;", X, 0, X << 4 & M64),
        ("shl.b64 %rd8, %rd6, 64;", X, 0, 0),
        ("shr.u64 %rd8, %rd6, %r7;", X, 60, 15),
        ("shr.s64 %rd8, %rd6, 70;", X, 0, M64),
        ("shr.s32 %r8, %r6, 1; cvt.s64.s32 %rd8, %r8;", 0x80000000, 0, 0xFFFFFFFFC0000000),
        ("shf.l.wrap.b32 %r8, %r6, %r7, 8; cvt.u64.u32 %rd8, %r8;", 0x11223344, 0xAABBCCDD, 0xBBCCDD11),
        ("shf.r.wrap.b32 %r8, %r6, %r7, 40; cvt.u64.u32 %rd8, %r8;", 0x11223344, 0xAABBCCDD, 0xDD112233),
        ("shf.r.clamp.b32 %r8, %r6, %r7, 40; cvt.u64.u32 %rd8, %r8;", 0x11223344, 0xAABBCCDD, 0xAABBCCDD),
        ("and.b64 %rd8, %rd6, %rd7; not.b64 %rd8, %rd8;", X, Y, ~(X & Y) & M64),
        ("xor.b64 %rd8, %rd6, %rd7;", X, Y, X ^ Y),
        ("neg.s64 %rd8, %rd6;", 7, 0, NEGATIVE),
        ("min.s64 %rd8, %rd6, %rd7;", NEGATIVE, 3, NEGATIVE),
        ("max.u64 %rd8, %rd6, %rd7;", NEGATIVE, 3, NEGATIVE),
        ("setp.lt.s64 %p1, %rd6, %rd7; selp.b64 %rd8, 11, 22, %p1;", NEGATIVE, 3, 11),
        ("setp.lt.u64 %p1, %rd6, %rd7; selp.b64 %rd8, 11, 22, %p1;", NEGATIVE, 3, 22),
        ("setp.eq.s32 %p1, %r6, 5; setp.ne.and.s32 %p2, %r7, 6, %p1; selp.b64 %rd8, 1, 2, %p2;", 5, 6, 2),
        ("cvt.s64.s32 %rd8, %r6;", 0xFFFFFFF0, 0, 0xFFFFFFFFFFFFFFF0),
        ("cvt.u64.u16 %rd8, %rs6;", X, 0, X & 0xFFFF),
        ("bfi.b64 %rd8, %rd6, %rd7, 8, 16;", X, 0, (X & 0xFFFF) << 8),
        ("bfi.b32 %r8, %r6, %r7, 24, 8; cvt.u64.u32 %rd8, %r8;", 0xAB, 0x11223344, 0xAB223344),
        ("bfe.u64 %rd8, %rd6, 8, 16;", X, 0, X >> 8 & 0xFFFF),
        ("bfe.s32 %r8, %r6, 4, 4; cvt.s64.s32 %rd8, %r8;", 0x80, 0, -8 & M64),
        ("prmt.b32 %r8, %r6, %r7, 0x5140; cvt.u64.u32 %rd8, %r8;", 0x33221100, 0x77665544, 0x55114400),
        ("prmt.b32 %r8, %r6, 0, 0x0123; cvt.u64.u32 %rd8, %r8;", 0x33221100, 0, 0x00112233),
        ("lop3.b32 %r8, %r6, %r7, 255, 0x6a; cvt.u64.u32 %rd8, %r8;", 0xF0, 0xCC, 0xF0 & 0xCC ^ 0xFF),
        ("popc.b64 %r8, %rd6; cvt.u64.u32 %rd8, %r8;", X, 0, X.bit_count()),
        ("clz.b32 %r8, %r6; cvt.u64.u32 %rd8, %r8;", 0x00010000, 0, 15),
        ("brev.b32 %r8, %r6; cvt.u64.u32 %rd8, %r8;", 1, 0, 1 << 31),
        ("mov.b64 {%r8, %r9}, %rd6; mov.b64 %rd8, {%r9, %r8};", X, 0, (X << 32 | X >> 32) & M64),
    ],
)
def test_arithmetic(body: str, x: int, y: int, wanted: int) -> None:
    load = "ld.global.u64 %rd6, [%rd1]; ld.global.u64 %rd7, [%rd1+8]; cvt.u32.u64 %r6, %rd6; cvt.u32.u64 %r7, %rd7;"
    half = "cvt.u16.u64 %rs6, %rd6;"
    found = launched(f"{load} {half} {body} st.global.u64 [%rd5], %rd8;", [x, y], 1)
    assert found.tolist() == [wanted]


FLOATS = "ld.global.f64 %fd1, [%rd1]; ld.global.f64 %fd2, [%rd1+8]; cvt.rn.f32.f64 %f1, %fd1; cvt.rn.f32.f64 %f2, %fd2;"


@pytest.mark.parametrize("x", [0.1, -2.5, 1e-320, 3e38, np.inf])
@pytest.mark.parametrize("y", [0.2, 3.5, -1e-310])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_floats(name: str, x: float, y: float) -> None:
    of = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    body = f"{name}.rn.f64 %fd3, %fd1, %fd2; st.global.f64 [%rd2], %fd3; {name}.rn.f32 %f3, %f1, %f2;"
    raw = np.array([x, y]).view(np.uint64)
    found = launched(f"{FLOATS} {body} st.global.f32 [%rd2+8], %f3;", raw, 2, races=False)
    with np.errstate(all="ignore"):
        double, single = of(x, y), of(np.float32(x), np.float32(y))
    assert found[:1].view(np.float64)[0] == double
    assert found[1:].view(np.float32)[0] == single or np.isnan(single)


def test_rounding_and_nan_of_the_device() -> None:
    body = (
        "cvt.rni.f64.f64 %fd3, %fd1; st.global.f64 [%rd2], %fd3; sub.rn.f32 %f3, %f2, %f2; st.global.f32 [%rd2+8], %f3;"
    )
    found = launched(f"{FLOATS} {body}", np.array([2.5, np.inf]).view(np.uint64), 2, races=False)
    assert found[:1].view(np.float64)[0] == 2
    assert found[1] == 0x7FFFFFFF


def test_loads_and_stores_of_every_width() -> None:
    body = """
    ld.global.s8 %rs1, [%rd1]; cvt.s64.s16 %rd6, %rs1; st.global.u64 [%rd2], %rd6;
    ld.global.u8 %rs2, [%rd1+1]; st.global.u8 [%rd2+8], %rs2;
    ld.global.s32 %rd7, [%rd1+4]; st.global.u64 [%rd2+16], %rd7;
    ld.global.v2.u64 {%rd8, %rd9}, [%rd1+16]; st.global.v2.u64 [%rd2+32], {%rd9, %rd8};
    ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd1+16]; st.global.v2.u32 [%rd2+24], {%r9, %r6};
    """
    data = np.array([0xFFFFFFF0_000012F0, 0, 0x1111111122222222, 0x3333333344444444], np.uint64)
    storage = np.zeros(6, np.uint64)
    source = np.concatenate([storage, data])  # NumPy aligns to 16 bytes at least
    assert source.ctypes.data % 16 == 0
    found = np.zeros(6, np.uint64)
    memory = Global()
    args = (source.ctypes.data + 48, found.ctypes.data)
    run(program(body), Grid((1, 1, 1), (1, 1, 1)), args, [0], memory)
    assert found.tolist() == [NEGATIVE - 9, 0x12, 0xFFFFFFFFFFFFFFF0, 0x22222222_33333333, int(data[3]), int(data[2])]


LOOP = """
    mov.u64 %rd6, 0; mov.u32 %r5, 0;
$L_again:
    setp.ge.u32 %p1, %r5, %r3;
    @%p1 bra $L_done;
    add.s64 %rd6, %rd6, 2;
    add.s32 %r5, %r5, 1;
    bra.uni $L_again;
$L_done:
    and.b32 %r6, %r3, 1; setp.eq.s32 %p2, %r6, 0;
    @%p2 bra $L_even;
    add.s64 %rd6, %rd6, 100;
    bra $L_join;
$L_even:
    @!%p2 add.s64 %rd6, %rd6, 100000;
$L_join:
    st.global.u64 [%rd5], %rd6;
"""


def test_threads_part_and_meet_again() -> None:
    """Every thread has its own number of turns; the store after them is issued once for each warp."""
    assert launched(LOOP, [0]).tolist() == [2 * k + 100 * (k % 2) for k in range(64)]
    data, target = np.zeros(1, np.uint64), np.zeros(64, np.uint64)
    entry = program(LOOP)
    done = run(entry, Grid((1, 1, 1), (64, 1, 1)), (data.ctypes.data, target.ctypes.data), [0, 1], Global())
    store = next(i for i, one in enumerate(entry.instructions) if one.parts[0] == "st")
    assert done.issues[store].tolist() == [1, 1]
    assert done.issues[entry.labels["$L_again"]].tolist() == [32, 64]


REVERSE = """
    shl.b32 %r5, %r3, 3; mov.u32 %r6, tile; add.s32 %r7, %r6, %r5;
    ld.global.u64 %rd6, [%rd4];
    st.shared.u64 [%r7], %rd6;
    {barrier}
    sub.s32 %r8, 504, %r5; add.s32 %r9, %r6, %r8;
    ld.shared.u64 %rd7, [%r9];
    st.global.u64 [%rd5], %rd7;
"""
BARRIER = "bar.sync 0;"


def test_shared_memory_and_barriers() -> None:
    data = np.arange(128, dtype=np.uint64)
    found = launched(REVERSE.format(barrier=BARRIER), data, 64, 2)
    assert np.array_equal(found, data.reshape(2, 64)[:, ::-1].reshape(-1))


def test_lanes_exchange_and_vote() -> None:
    body = """
    shfl.sync.down.b32 %r5, %r3, 1, 31, -1;
    shfl.sync.bfly.b32 %r6|%p1, %r5, 3, 31, -1;
    shfl.sync.idx.b32 %r7, %r3, 2, 0x1c1f, -1;
    setp.gt.u32 %p2, %r3, 40; vote.sync.ballot.b32 %r8, %p2, -1;
    add.s32 %r9, %r6, %r7; mov.b64 %rd6, {%r9, %r8}; st.global.u64 [%rd5], %rd6;
    """
    down = [min(k + 1, k | 31) for k in range(64)]
    wanted = [down[k ^ 3] + (k // 4 * 4 + 2) for k in range(64)]
    found = launched(body, [0])
    assert (found & M32).tolist() == wanted
    assert set((found >> 32).tolist()[:32]) == {0}
    assert set((found >> 32).tolist()[32:]) == {(1 << 32) - (1 << 9)}


def test_atomics_are_no_race() -> None:
    found = launched("cvt.u64.u32 %rd6, %r3; atom.global.add.u64 %rd7, [%rd2], %rd6;", [0])
    assert found[0] == 64 * 63 // 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "shr.u64 %rd8, %rd3, 4; shl.b64 %rd8, %rd8, 3; add.s64 %rd8, %rd2, %rd8; st.global.u64 [%rd8], %rd3;",
            "stored by",
        ),
        ("ld.global.u64 %rd8, [%rd4+8]; st.global.u64 [%rd5], %rd8;", "load of 8 bytes at 0x.*, outside every"),
        ("ld.global.u64 %rd8, [%rd4+-8]; st.global.u64 [%rd5], %rd8;", "load of 8 bytes at 0x.*, outside every"),
        ("st.global.u64 [%rd5+8], %rd3;", "store of 8 bytes at 0x.*, outside every"),
        ("ld.global.v2.u64 {%rd8, %rd9}, [%rd4]; st.global.u64 [%rd5], %rd8;", "misaligned load of 16 bytes"),
        ("ld.global.u64 %rd8, [%rd1+4];", "misaligned load of 8 bytes"),
        ("ld.global.u32 %r8, [%rd1+2];", "misaligned load of 4 bytes"),
        ("st.global.u16 [%rd5+1], %rs1;", "misaligned store of 2 bytes"),
        ("ld.global.u64 %rd8, [%rd1]; div.u64 %rd8, %rd3, %rd8;", "division by zero"),
        (
            "ld.global.u64 %rd8, [%rd5]; sub.s64 %rd9, %rd2, %rd3; st.global.u64 [%rd9+504], %rd8;",
            "and loaded by",
        ),
        (REVERSE.format(barrier=""), "no barrier between"),
        (REVERSE.replace("[%r7]", "[%r6]").format(barrier=BARRIER), "no barrier between thread .* stored"),
        (REVERSE.replace("504,", "512,").format(barrier=BARRIER), "outside load of 8 shared bytes at 512"),
        (
            "setp.lt.u32 %p1, %r3, 7; @%p1 bra $L_out; bar.sync 0; bra $L_end;\n$L_out: bar.sync 0;\n$L_end:",
            "wait at different",
        ),
        ("$L_self: bra $L_self;", "does not end"),
        ("setp.lt.u32 %p1, %r3, 7; @%p1 shfl.sync.down.b32 %r5, %r3, 1, 31, -1;", "a lane of the mask is elsewhere"),
    ],
)
def test_planted_faults_are_found(body: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.ptx.machine._MAX_STEPS", 1000)
    with pytest.raises(Fault, match=message):
        launched(body, np.zeros(64, np.uint64))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("add.ftz.f32 %f1, %f2, %f3;", NotImplementedError),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", NotImplementedError),
        ("ld.local.u32 %r5, [%rd1];", NotImplementedError),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];", NotImplementedError),
        (".local .align 4 .b8 depot[8];", SyntaxError),
    ],
)
def test_what_is_not_known_is_refused(body: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        launched(body, [0])
