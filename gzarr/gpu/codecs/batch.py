"""What goes from step to step while a wave is decoded on the device: encoded streams, or decoded chunks of one size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.errors import CodecError
from gzarr.gpu.device.protocol import Device, Outcome, Table

#: How the bytes of a chunk are shuffled, in the words of the placement kernels.
PLAIN, BYTE_SHUFFLE, BIT_SHUFFLE = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle:
    """How the bytes of each chunk are still shuffled, Blosc block by Blosc block.

    Attributes:
        mode: uint8, one of PLAIN, BYTE_SHUFFLE, BIT_SHUFFLE for each chunk.
        typesize: int32, bytes of an element as the shuffle saw it.
        blocksize: int64, bytes of a block.
    """

    mode: NDArray[np.uint8]
    typesize: NDArray[np.int32]
    blocksize: NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Streams:
    """Encoded chunks in one slab on the device.

    Attributes:
        copy: uint8, the slab on the host too; None if it was read straight to the device.
        slab: uint8, on the device.
        offsets: int64, where each chunk begins.
        sizes: int64, bytes of each chunk.
        device: where the slab is; needed if there is no copy.
    """

    copy: NDArray[np.uint8] | None
    slab: Array
    offsets: Table
    sizes: Table
    device: Device | None = None

    def __len__(self) -> int:
        return self.offsets.size

    @property
    def host(self) -> NDArray[np.uint8]:
        """The whole slab on the host; if it is on the device only it is copied once, which waits."""
        if self.copy is None:
            if self.device is None:
                raise TypeError("streams without a copy on the host need their device")
            self.copy = self.device.download(self.slab)
        return self.copy

    def window(self, starts: Table, nbytes: int) -> NDArray[np.uint8]:
        """The same few bytes of every chunk, on the host: uint8 (n, nbytes). They must lie in the slab.

        They are copied from the device, which waits, if the slab is only there.
        """
        positions = starts[:, None] + np.arange(nbytes)
        if self.copy is not None or self.device is None:
            found: NDArray[np.uint8] = self.host[positions]
            return found
        return self.device.download(self.slab[self.device.upload(positions)])

    def sparse(self, nbytes: int) -> NDArray[np.uint8]:
        """The slab on the host as far as headers go: at least the first ``nbytes`` bytes of every chunk are right.

        Chunks that are shorter are right as far as they go.
        """
        if self.copy is not None:
            return self.copy
        slab = np.zeros(self.slab.size, np.uint8)  # memory that is never touched costs nothing
        starts = np.minimum(self.offsets, max(slab.size - nbytes, 0))
        nbytes = min(nbytes, slab.size)
        slab[starts[:, None] + np.arange(nbytes)] = self.window(starts, nbytes)
        return slab


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Decoded chunks of one size.

    Attributes:
        owner: the device array that holds them; kept alive by this.
        addresses: int64, address of each chunk.
        nbytes: bytes of each chunk.
        rows: the chunks as a uint8 device array (n, nbytes), if they lie one behind the other; else None.
        shuffle: how they are still shuffled; None if they are not.
    """

    owner: Array
    addresses: Table
    nbytes: int
    rows: Array | None = None
    shuffle: Shuffle | None = None

    def __len__(self) -> int:
        return self.addresses.size


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Encoded chunks on the device.

    Attributes:
        owner: device memory that holds them; kept alive by this.
        addresses: int64, on the host: where each begins.
        sizes: int64, on the host: bytes of each.
        room: bytes behind every chunk that may be written, for checksums to come.
    """

    owner: Array
    addresses: Table
    sizes: Table
    room: int = 0

    def __len__(self) -> int:
        return self.addresses.size


@dataclass(slots=True)
class Wave:
    """One wave under way.

    Attributes:
        device: where it runs.
        checks: what must still be looked at when the wave is done: results of decoders, and what to make of them.
        held: device and staging memory that must live until the wave is done.
    """

    device: Device
    checks: list[tuple[Array, Callable[[NDArray[Any]], None]]] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)

    def expect(self, codec: str, outcome: Outcome, items: Table, sizes: Table) -> None:
        """Demand that a batched decoder succeeded and wrote the right number of bytes.

        items: which chunk of the wave each stream belongs to. sizes: bytes that each stream must give.
        """

        def statuses(found: NDArray[Any]) -> None:
            bad = np.flatnonzero(found != 0)
            if bad.size:
                raise CodecError(
                    f"{codec}: the stream is damaged (decoder status {int(found[bad[0]])})",
                    index=int(items[bad[0]]),
                    codec=codec,
                )

        def written(found: NDArray[Any]) -> None:
            bad = np.flatnonzero(found.astype(np.int64) != sizes)
            if bad.size:
                raise CodecError(
                    f"{codec}: expected {int(sizes[bad[0]])} decoded bytes, got {int(found[bad[0]])}",
                    index=int(items[bad[0]]),
                    codec=codec,
                )

        self.checks += [(outcome.statuses, statuses), (outcome.sizes, written)]

    def finish(self) -> None:
        """Wait for the wave and look at all results. Raises: CodecError for the first chunk that failed."""
        errors: list[CodecError] = []
        if not self.checks:
            self.drop()
            return
        # Waits for all that was submitted, so that nothing uses the memory any more.
        found = self.device.download_all([array for array, _ in self.checks])
        for data, (_, check) in zip(found, self.checks, strict=True):
            try:
                check(data)
            except CodecError as error:
                errors.append(error)
        self.checks.clear()
        self.held.clear()
        if errors:
            raise min(errors, key=lambda error: error.index)

    def drop(self) -> None:
        """Wait for the device and let go of all memory: also where the wave was given up in the middle."""
        if self.checks or self.held:
            self.device.synchronize()
        self.checks.clear()
        self.held.clear()
