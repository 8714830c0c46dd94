"""Refuses truncated NetCDF files of the classic formats: the library would read zeros for the missing part.

Source: NetCDF Users Guide, "File Format Specifications" (CDF-1, CDF-2, CDF-5).
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import IO

from gzarr.errors import CopyError

#: Bytes of an element, by the number of its type.
_ITEMSIZE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
#: Names, attribute values and each variable's part of a record are padded to this.
_ALIGNMENT = 4


def check_whole(path: str | os.PathLike[str]) -> None:
    """Refuse a file of a classic format that is shorter than its header says. Damage raises errors of many kinds."""
    with Path(path).open("rb") as file:
        magic = file.read(4)
        if magic[:3] != b"CDF" or magic[3:] not in (b"\x01", b"\x02", b"\x05"):
            return
        expected = _expected_nbytes(file, magic[3])
        nbytes = file.seek(0, os.SEEK_END)
    if nbytes < expected:
        raise CopyError(f"{os.fspath(path)!r} is cut off: it has {nbytes} of {expected} bytes; get the whole file")


def _expected_nbytes(file: IO[bytes], version: int) -> int:
    """Bytes of a file up to its last element, by the header after its first four bytes.

    Raises struct.error if the header ends too soon.
    """
    count_format = ">q" if version == 5 else ">i"

    def number(form: str = count_format) -> int:
        (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
        return int(value)

    def skip(nbytes: int) -> None:
        file.seek(_padded(nbytes), os.SEEK_CUR)

    def list_length() -> int:
        number(">i")  # the tag of the list; zero if it is empty
        return number()

    def skip_attributes() -> None:
        for _ in range(list_length()):
            skip(number())
            itemsize = _ITEMSIZE[number(">i")]
            skip(number() * itemsize)

    nrecords = max(number(), 0)  # -1 if unknown when the header was written
    lengths = []
    for _ in range(list_length()):
        skip(number())
        lengths.append(number())
    skip_attributes()
    ends, records = [0], []
    for _ in range(list_length()):
        skip(number())
        shape = [lengths[number()] for _ in range(number())]
        skip_attributes()
        itemsize = _ITEMSIZE[number(">i")]
        number()  # the size, which is wrong for large variables
        begin = number(">i" if version == 1 else ">q")
        in_records = bool(shape) and shape[0] == 0  # 0 stands for "unlimited"
        nbytes = math.prod(shape[1:] if in_records else shape) * itemsize
        if in_records:
            records.append((begin, nbytes))
        else:
            ends.append(begin + nbytes)
    # a single record variable is not padded
    step = records[0][1] if len(records) == 1 else sum(_padded(nbytes) for _, nbytes in records)
    ends += [begin + (nrecords - 1) * step + nbytes for begin, nbytes in records if nrecords]
    return max(ends)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
