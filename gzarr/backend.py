"""The protocol that the CPU and the GPU implement: everything that the engine asks of a device.

Everything takes batches. The CPU works through a batch chunk by chunk, while each is in cache; a GPU decodes
it in one call per codec. Encoded bytes go in and arrays on the device come out. Shapes, dtypes and sizes were worked
out when the array was opened (`Step`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gzarr.codecs.spec import ArrayRepr, Codec, Step
from gzarr.concurrency import Pool, reraise
from gzarr.indexing.copies import Plan
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.layout.chunk_layout import Layout, Located
from gzarr.profiling.recorder import Marker
from gzarr.storage.base import Buffer, Store

#: An array on the backend's device: numpy.ndarray or cupy.ndarray.
Array: TypeAlias = Any
#: Names of the fields of a structured dtype that a selection is limited to.
Fields: TypeAlias = str | list[str] | None

#: Methods of `Backend.reduce_windows`.
WINDOW_METHODS = ("mean", "mode", "min", "max", "median")

T = TypeVar("T")


class Placement(NamedTuple):
    """Where one step of an array's codec chain runs, and why there.

    Attributes
    ----------
    step : str
        Codec name, or "scatter" for the copy into the result.
    where : str
        "host" or the device's name.
    why : str
        One phrase.
    """

    step: str
    where: str
    why: str


class Work(NamedTuple):
    """How much there is to do in all the batches of a read or write.

    Attributes
    ----------
    nchunks : int
        Number of chunks, at most.
    part_nbytes : int
        Decoded bytes taken from or put into a chunk, on average.
    batch_nchunks : int
        Chunks of one batch, if there are as many.
    unlocked : bool
        Whether a batch runs without the interpreter's lock, so that threads pay whatever a chunk takes.
    waits : bool
        Whether a batch waits for a server, so that more threads than processors pay.
    chunk_s : float
        Seconds that a chunk took one thread before; 0 if that is not known, so that a first batch is timed.
    at_once : int
        How many batches it takes to keep a server busy.
    """

    nchunks: int
    part_nbytes: int
    batch_nchunks: int
    unlocked: bool = False
    waits: bool = False
    chunk_s: float = 0.0
    at_once: int = 1


class Chain(NamedTuple):
    """A prepared chain of codecs for chunks of one shape, made ready to run on one backend.

    Attributes
    ----------
    chunk : ArrayRepr
        The decoded chunk.
    codecs : tuple[Codec, ...]
        In encoding order.
    placement : tuple[Placement, ...]
        Where each runs.
    prepared : object
        Whatever else the backend needs; opaque to the engine.
    """

    chunk: ArrayRepr
    codecs: tuple[Codec, ...]
    placement: tuple[Placement, ...]
    prepared: Any = None

    def decode(self, items: Sequence[Any]) -> list[Any]:
        """Decode a batch. Raises: CodecError."""
        for codec in reversed(self.codecs):
            items = codec.decode(items)
        return list(items)

    def encode(self, items: Sequence[Any]) -> list[Any]:
        """Encode a batch. Raises: CodecError."""
        for codec in self.codecs:
            items = codec.encode(items)
        return list(items)


class _Executor(Protocol):
    """A job that is done in batches."""

    @property
    def stage(self) -> str:
        """The stage of a profile that a batch begins with."""

    @property
    def work(self) -> Work:
        """How much there is to do."""

    @property
    def batches(self) -> Iterable[Any]:
        """The batches, once."""


class ReadExecutor(_Executor, Protocol):
    """A read that an executor does in batches, each of them one table."""

    def read(self, batch: Any) -> Groups:
        """Read a batch, except for what is returned, which the reference path reads. Raises: StoreError."""

    def retry(self) -> Iterable[tuple[Coords, list[Part]]] | None:
        """Once all batches are done, return what the reference path has to read besides; None for nothing."""


class WriteExecutor(_Executor, Protocol):
    """A write that an executor does in batches, each with stored objects of its own."""

    def objects(self, batch: Any) -> tuple[Sequence[str], Sequence[str]]:
        """Keys of the objects that are locked while a batch is written, and of those whose old bytes are asked for."""

    def write(self, batch: Any, keys: Sequence[str], merged: Sequence[str]) -> Groups:
        """Write a batch, except for what is returned, which the reference path writes. Raises: StoreError.

        keys, merged: what `objects` gives for the batch.
        """


class Compiled(Protocol):
    """Decides which reads and writes of one array compiled code does."""

    def take_read(self, plan: Plan, nparts: int, out: Array, fields: Fields) -> ReadExecutor | str:
        """Return what reads a plan, or the reason why the reference path has to.

        nparts: of the plan. out: as in `gzarr.chunk_io.reference.ReadJob`.
        """

    def take_write(
        self, plan: Plan, nparts: int, value: Array, fields: Fields, *, keep_empty: bool
    ) -> WriteExecutor | str:
        """Return what writes a plan, or the reason why the reference path has to.

        nparts: of the plan. keep_empty: as in `Backend.merge_and_encode`.
        """

    def reads_copies(self) -> bool:
        """Whether reads by a `CopyPlan` are for this code, as far as the array decides that."""

    def basic(self) -> Any:
        """What reads and writes basic selections without a plan (`cpu.compiled.basic`); None if nothing does."""

    def placement(self) -> tuple[Placement, ...]:
        """Say what reads and writes many chunks, and why."""


class Backend(Protocol):
    """A device that can decode, place, merge and encode chunks.

    Attributes
    ----------
    device : str
        Its name: "cpu", "cuda:0".
    xp : module
        The array module of its memory, for computing with what is read: numpy or cupy.
    """

    device: str
    xp: Any

    @property
    def options(self) -> Mapping[str, Any]:
        """Options with which `gzarr.devices.backend_for` makes the same backend in another process."""

    @property
    def marker(self) -> Marker | None:
        """Shows the stages of a profile on the device; None on the host."""

    @property
    def host(self) -> "Backend":
        """The backend of the host, which handles shard indexes and encoded bytes for every device."""

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises: UnknownCodecError, MissingExtraError."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: object | None = None) -> Array:
        """An uninitialized array on the device; Python objects are None.

        stream: in whose order its memory is free, and is freed one day; None for this thread's (`current_stream`).
        """

    def batch_nchunks(self, chain: Chain | None, nchunks: int, nbytes: int, *, writing: bool) -> int:
        """How many chunks one batch of a read or write should hold; a batch has at least one object, though.

        chain: of all chunks; None if they differ in shape. nchunks: of the read or write. nbytes: of a decoded chunk,
            at least 1.
        """

    def asarray(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """Return a value to be written as an array; other values are converted to the dtype."""

    def adopt_out(self, out: Any) -> Array:
        """Return an array to read into as one of the backend's that shares its memory.

        Raises: ValueError if the backend cannot write to its memory, TypeError if it is not an array.
        """

    def load(self, store: Store, wanted: Sequence[Located]) -> list[Buffer | None]:
        """Fetch located chunks into host memory.

        Raises: CodecError with the index of an item that is shorter than its request.
        """

    def place(
        self, chain: Chain, buffers: Sequence[Buffer | None], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        """Decode chunks and copy their parts into ``out``; a missing chunk gives its fill value.

        out: an array, or the `Slots` of a `CopyPlan`, which take all copies of a chunk at once.
        Raises: CodecError with the index of the failing chunk.
        """

    def compiled(self, store: Store, layout: Layout, chain: Chain | None, *, cached: bool) -> Compiled | None:
        """Return what decides on compiled code for an array; None if the backend has no such code.

        chain: of all chunks; None if they differ in shape. cached: whether decoded chunks are cached.
        """

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """Decode whole chunks into arrays that the caller may change; a missing chunk is filled. Raises: CodecError."""

    def merge_and_encode(
        self,
        chain: Chain,
        old: Sequence[Buffer | None],
        value: Array,
        parts: Sequence[Part],
        fields: Fields,
        *,
        keep_empty: bool,
    ) -> list[Buffer | None]:
        """Encode the new contents of chunks into host memory. Uncompressed chunks may be views of ``value``.

        old: the encoded old contents; None for a chunk that holds the fill value, or is covered whole.
        value: the new values; after the return, only such views read it.
        parts: what is new in each chunk, and where it is in ``value``; no chunk occurs twice.
        keep_empty: whether chunks that now equal the fill value are encoded too, instead of becoming None. Bits are
            compared: NaNs equal themselves, -0.0 differs from 0.0.
        Raises: CodecError with the index of a chunk that cannot be decoded or encoded.
        """

    def run(self, task: Callable[[T], None], batches: Iterable[T], work: Work) -> None:
        """Carry out a task for every batch, several at once where that pays."""

    def take(self, pool: Array, slots: NDArray[np.int64], out: Array) -> None:
        """Copy rows of an array into ``out``, which may have another dtype: numbers are cast as by NumPy, "same_kind".

        Both arrays are contiguous in C order but for their first axis. A device copies in the order of the current
        stream, and nobody waits for it.
        slots: int64 (n,), on the host, which row of ``pool`` every row of ``out`` is; checked by the caller.
        """

    def reduce_windows(self, block: Array, factors: Sequence[int], method: str, out: Array) -> None:
        """Reduce each window of a block to one element: see `gzarr.images.pyramid.downsample`.

        Windows begin at multiples of the factors; those at the end of an axis have the elements that exist. A device
        works in the order of the current stream, and nobody waits for it.
        block: bools or numbers, of any strides. factors: shape of a window, of at most 2^30 elements. method: one of
            `WINDOW_METHODS`; complex numbers have a mean only. out: one element for each window, of the block's dtype,
            in other memory.
        """

    def measured(self, call: Callable[[], T]) -> tuple[T, int | None]:
        """The result of a call, and the most memory that its arrays took at once, in bytes; None if that is not known.

        On a device, this is device memory.
        """

    def own_stream(self) -> AbstractContextManager[None]:
        """A context in which this thread's work goes to a stream of its own, not to the caller's.

        Reads, `take` and new arrays are ordered on it; `record` and `wait` order it with others. Nothing on the CPU.
        """

    def current(self) -> AbstractContextManager[None]:
        """A context in which the array module works on this device, on the stream of `current_stream`."""

    def current_stream(self) -> object | None:
        """The stream on which this thread's results are ready: of `own_stream`, or the caller's. None on the CPU."""

    def record(self, stream: object | None = None) -> object | None:
        """Return a mark of what has been submitted to a stream, for `wait`. May be called by finalizers.

        stream: of `current_stream`; None for this thread's. Returns: None on the CPU.
        """

    def wait(self, mark: object | None, stream: object | None = None) -> None:
        """Let later work of a stream wait for a mark; no thread waits. May be called by finalizers.

        mark: None for nothing. stream: of `current_stream`; None for this thread's.
        """

    def mapped(self, memory: NDArray[Any]) -> Array:
        """Return host memory as an array that a device reads where it is, pinned as long as any view of it lives.

        Raises: DeviceError if that is impossible.
        """

    def upload(self, array: NDArray[Any], stream: object | None) -> Array:
        """Copy a host array to the device in the order of this thread's stream; one that a device cannot have stays.

        stream: the caller's (`current_stream`), in whose order its memory is free.
        """

    def finish(self) -> None:
        """Wait for what this thread's stream does."""

    def owned_by(self, array: Array, owner: object) -> Array:
        """Return an array in the same memory; it and all views of it, of any library, keep an owner alive.

        array: contiguous in C order, from `empty`.
        """


def run_ahead(backend: Backend, pool: Pool, most: int, task: Callable[[], object]) -> Callable[[], None]:
    """Carry out a task on a thread of a pool, on a stream of its own, after what the current stream has to do.

    Parameters
    ----------
    backend : Backend
        Whose streams these are.
    pool : Pool
        Of at most ``most`` threads.
    most : int
        As of `Pool.submit`.
    task : callable
        Carried out in a copy of this context, which a profile needs.

    Returns
    -------
    callable
        To be called once: waits for the end, on the current stream too, and raises what the task raised.
    """
    answer: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()
    before, context = backend.record(), copy_context()
    tasks = [task]  # dropped before its end is told: the thread may keep what it ran for a while

    def run() -> None:
        end: object = None
        failure: BaseException | None = None
        try:
            with backend.own_stream():
                backend.wait(before)
                try:
                    tasks.pop()()
                finally:
                    end = backend.record()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failure = error
        answer.put((end, failure))

    def wait() -> None:
        end, error = answer.get()
        backend.wait(end)
        try:
            reraise(error)
        finally:
            del error  # no cycle of an error and this frame

    pool.submit(lambda: context.run(run), most)
    return wait
