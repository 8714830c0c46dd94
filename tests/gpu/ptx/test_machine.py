"""The faults that the PTX interpreter must notice, each planted in a small kernel."""

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


M64, M32 = (1 << 64) - 1, (1 << 32) - 1
X, Y = 0xFEDCBA9876543210, 0x8000000180000005


FLOATS = "ld.global.f64 %fd1, [%rd1]; ld.global.f64 %fd2, [%rd1+8]; cvt.rn.f32.f64 %f1, %fd1; cvt.rn.f32.f64 %f2, %fd2;"


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
        ("ld.global.u64 %rd8, [%rd5]; sub.s64 %rd9, %rd2, %rd3; st.global.u64 [%rd9+504], %rd8;", "and loaded by"),
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
