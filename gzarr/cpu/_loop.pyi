# The compiled loop (loop/module.c). The tables are those of gzarr.cpu.compiled; loop/loop.h documents them.

from typing import Final

from typing_extensions import Buffer

VERSION: Final[int]

# Take the addresses of the functions of codecs, in the order of `struct Library`; 0 for a missing one.
def bind(addresses: bytes, /) -> None: ...

# Read parts of a plan. Returns: parts left, bytes read, bytes placed. Raises: ValueError if the tables disagree.
def read(
    job: Buffer,
    window: Buffer,
    table0: Buffer,
    table1: Buffer,
    table2: Buffer,
    table3: Buffer,
    path: bytes,
    index: Buffer | None,
    fill: Buffer,
    first: int,
    scratch: Buffer,
    status: bytearray,
    /,
) -> tuple[int, int, int]: ...

# Write parts of a plan. Returns: parts left, bytes gathered, bytes made, end of the shard, its next entry.
def write(
    job: Buffer,
    encoder: Buffer,
    window: Buffer,
    spans: Buffer,
    lists: Buffer,
    path: bytes,
    temporary: bytes,
    fill: Buffer,
    first: int,
    scratch: Buffer,
    status: bytearray,
    written: Buffer | None,
    shard: Buffer | None,
    index: Buffer | None,
    position: int,
    number: int,
    old_bytes: Buffer | None,
    old_index: Buffer | None,
    next_entry: int,
    until: int,
    /,
) -> tuple[int, int, int, int, int]: ...
