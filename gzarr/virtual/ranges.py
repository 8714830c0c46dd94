"""Chunks, or parts of them, as ranges of the objects that hold them."""

from typing import NamedTuple

import numpy as np

from gzarr.errors import StoreError
from gzarr.storage.base import Buffer, Request, host_view
from gzarr.storage.rules import byte_range, cut


class Range(NamedTuple):
    """A chunk to read, or a part of it.

    Attributes
    ----------
    position, request
        Which request it answers.
    number : int
        Of the object.
    offset, nbytes : int
        Where the chunk is; -1 bytes for the whole object.
    padded : int
        What the chunk is filled up to with zeros; 0 for nothing.
    """

    position: int
    request: Request
    number: int
    offset: int
    nbytes: int
    padded: int

    @property
    def in_part(self) -> bool:
        """Whether no more is read than is wanted of the chunk."""
        return self.request.start is not None and self.nbytes >= 0 and not self.padded

    def request_of(self, key: str) -> Request:
        """What to fetch of the object."""
        if self.nbytes < 0:
            return Request(key, *self.request[1:])
        if not self.in_part:
            return Request(key, self.offset, self.nbytes)
        begin, end = byte_range(*self.request[1:], self.nbytes)
        return Request(key, self.offset + begin, end - begin)

    def cut(self, answer: Buffer, name: str, key: str) -> Buffer:
        """The answer to the request. Raises: StoreError if the object ends too soon."""
        if self.nbytes < 0:
            return answer
        expected = self.request_of(key).length
        nbytes = host_view(answer).nbytes
        if nbytes != expected:
            raise StoreError(
                f"{name}: {key!r} is cut off: {self.request.key!r} should have {expected} bytes at {self.offset}, and"
                f" {nbytes} are there; get the whole file"
            )
        if not self.padded or self.in_part:
            return answer
        if nbytes < self.padded:
            whole = np.zeros(self.padded, np.uint8)
            whole[:nbytes] = np.frombuffer(answer, np.uint8)
            answer = whole
        return cut(host_view(answer), self.request.start, self.request.length)
