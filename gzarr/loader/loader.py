"""`gzarr.Loader`: batches for training out of arrays."""

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from os import PathLike
from typing import Any, Literal, Self, TypeVar, cast

from gzarr.backend import Array as AnyArray
from gzarr.concurrency import Pool, new_lock
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.selection import Indices
from gzarr.loader.arguments import integer
from gzarr.loader.batches import BatchItem, BatchIterator, SharedTurn
from gzarr.loader.node import NodePool
from gzarr.loader.producing import produce
from gzarr.loader.ranks import parse_ranks
from gzarr.loader.samples import Samples
from gzarr.loader.setup import Setup
from gzarr.loader.state import Begun, LoaderProgress, read_state, write_state
from gzarr.loader.stats import LoaderStats, Meter
from gzarr.loader.summary import Summary, summary_of
from gzarr.loader.windows import Crops, Window

L = TypeVar("L", bound="Loader")
#: Of `LoaderStats`, what adds up; of the rest, the mean is told, but for the longest time elapsed.
_SUMS = ("batches", "samples", "nbytes", "skipped", "chunks", "stall_s")


class Loader:
    """Batches for training out of arrays: shuffled exactly, decoded once or nearly so, resumable.

    Iterating over a loader gives the batches of one epoch, and each iteration is another epoch. Threads read the chunks
    of coming batches meanwhile. The same seed gives the same batches on every device.

    Parameters
    ----------
    arrays : Array, dict, Group or list
        What to load: an array, or arrays by name, or all arrays of a group. Samples lie along the first axis, which is
        equally long in all of them. Arrays of NumPy are welcome, too. Batches are arrays, or dicts of arrays, nested as
        those that were given. Lists, also by name, hold arrays of unequal lengths and chunks, or paths of such, which
        are opened: samples are those of all arrays of a list, and ``crops`` are taken out of arrays of any shape.
    batch_size : int
        Samples of a batch. The last batch of an epoch may have fewer.
    shuffle : bool or {"exact", "blocks"}
        False is in order. "exact", or True, is a random order, any one equally likely. "blocks" reads chunks in random
        order and shuffles the samples of ``block_chunks`` chunks: fewer chunks are decoded, and samples of one chunk
        come close together (`summary` says how much that costs).
    seed : int
        What the random order depends on, besides the epoch.
    memory : int or str
        The most memory that samples take which wait for their batches: bytes, "512 MiB", or a share of the data such as
        "35 %". Three batches come on top, and a chunk for each thread while it is decoded.
    pool : Loader, optional
        Another loader, with which this one shares memory: only one of them has samples that wait at a time. If one
        gives a batch while an iteration of the other is under way, the samples of the other are dropped, and their
        chunks decoded again when it goes on; batches stay the same. True lets the parts of a `split` share memory.
    cache : path, optional
        A folder on a fast disk for the encoded bytes that are read, which all processes of the host share; see
        `gzarr.storage.DiskCache`. Arrays may also be opened with it (``gzarr.open_group(url, cache=...)``).
    cache_nbytes : int, optional
        Bytes that the folder may hold; None for no limit.
    device : str, optional
        Where batches are; see `gzarr.devices.backend_for`. By default where the arrays are open.
    devices : sequence of str, optional
        Several devices, which have the batches in turn, the first one the first batch: the batches that as many ranks
        would have. Each has the ``memory`` and decodes what its batches need.
    rank, world_size : int, optional
        Which part of each epoch this process takes. By default those of torch.distributed or JAX, or all.
        Every rank gets equally many batches of equal sizes: if samples do not suffice, some come twice, or, with
        ``drop_last``, the rest is left out.
    share : {"node", "none"} or NodePool, optional
        Whether the ranks of this host have one pool of samples, of ``memory`` together: each chunk is decoded by one of
        them for all. By default they do where torchrun or Open MPI tells that several are on this host, unless batches
        are on a GPU. Needs Linux.
    window : Window, optional
        Take several steps of the first axis as one sample.
    crops : Crops, optional
        Take boxes out of the arrays as samples.
    weights : sequence of float, optional
        How likely samples are: a number for each, or for each array of a list, whose samples then share it. An epoch
        has as many samples as there are, drawn with replacement; or the ``n`` random crops.
    sampler : callable, sequence or iterable, optional
        Another order: a function from positions (int64) and the epoch to samples, or a sequence of samples, or
        something to iterate over, with which no place can be resumed.
    block_chunks : int
        Chunks of a block of ``shuffle="blocks"``.
    drop_last : bool
        Whether a last batch with fewer samples is left out.
    dtype : dtype-like or dict, optional
        Data type of batches, or by name of array.
    transform : callable, optional
        A function of a batch, on its device, whose results are handed out instead. It runs on the loader's
        thread; on a device, on the caller's, as work of the caller's stream.
    prefetch : int
        Batches that may wait, complete, for the caller.
    on_error : {"raise", "skip"}
        Whether a damaged chunk raises its `ChunkError`, or its samples are left out and counted (`stats`).
    on_epoch : callable, optional
        A function of the statistics of each epoch (`stats`), called when it ends.

    Raises
    ------
    ValueError
        If an argument is malformed, the arrays differ in length, a window or crop is larger than they are, or there is
        not enough memory for a batch.
    TypeError
        If an argument is of the wrong kind.
    DeviceError
        If the device cannot be used, or the arrays are on several and none was named.

    Notes
    -----
    A loader has the rows that its arrays had when it was made. Iterating raises ValueError if others have made an array
    smaller or replaced it, and ArrayNotFoundError if they have deleted it.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> images = gzarr.array(np.arange(80).reshape(20, 2, 2), chunks=(4, 2, 2))
    >>> loader = gzarr.Loader({"image": images, "label": np.arange(20) % 3}, batch_size=8, shuffle=True)
    >>> for batch in loader:
    ...     print(batch["image"].shape, batch["label"].shape)
    (8, 2, 2) (8,)
    (8, 2, 2) (8,)
    (4, 2, 2) (4,)
    >>> len(loader)
    3
    """

    def __new__(cls, *_: Any, devices: Sequence[str] | None = None, **__: Any) -> Self:
        """Make a loader of one device, or of several."""
        if devices is None:
            return super().__new__(cls)
        return cast("Self", super().__new__(LoaderOnDevices))

    def __init__(
        self,
        arrays: Array | Group | Mapping[str, Any] | AnyArray | Sequence[Any],
        batch_size: int,
        *,
        shuffle: bool | Literal["exact", "blocks"] = False,
        seed: int = 0,
        memory: int | str = "1 GiB",
        pool: "Loader | Literal[True] | None" = None,
        cache: str | PathLike[str] | None = None,
        cache_nbytes: int | None = None,
        device: str | None = None,
        devices: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        share: Literal["node", "none"] | NodePool | None = None,
        window: Window | None = None,
        crops: Crops | None = None,
        weights: Any = None,
        sampler: Any = None,
        block_chunks: int = 16,
        drop_last: bool = False,
        dtype: Any = None,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 2,
        on_error: Literal["raise", "skip"] = "raise",
        on_epoch: Callable[[Any], object] | None = None,
    ) -> None:
        given = dict(locals()) | {"prefetch_to": None}
        del given["self"]
        self._take(given, None, LoaderProgress(0, integer("seed", seed), ()), resumed=False)

    def _take(self, given: Mapping[str, Any], part: Samples | None, begin: LoaderProgress, *, resumed: bool) -> None:
        """Become a loader. part: its samples, if it is a part of a split. begin: where the next iteration begins."""
        self._given, self._part = given, part
        self._setup = Setup(given, part)
        self._threads, self._lock = Pool(), new_lock()
        self._turn = shared_turn(given["pool"], given["devices"])
        self._first: int  # number of the first batch of the iteration
        self._begun: Begun | None  # the iteration under way, or the next one if somebody has asked for it
        self._iteration: weakref.ref[BatchIterator] | None
        self._go_to(begin, resumed=resumed)
        self._meter: Meter | None = None

    # -- iteration -----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        with self._ending("a later iteration of the loader has ended this one: a loader gives one at a time"):
            self._setup.watch.begin()
            setup = self._setup
            streams = setup.backend.current_stream(), setup.target.current_stream()
            begun = self._coming()._replace(stream=streams[0], to_stream=streams[1])
            self._meter = begun.meter
            items = partial(produce, setup, begun)  # refers to no loader
            batches = BatchIterator(
                items,
                setup.prefetch,
                begun.meter,
                self._threads,
                self._lock,
                self._taken,
                self._ended,
                self._turn,
                setup.reused,
                self._first,
            )
            self._iteration, self._resumed = weakref.ref(batches), False
            return batches

    def _begin(self) -> Begun:
        setup, begin = self._setup, self._from
        order = setup.order(begin.epoch)
        return Begun(begin.epoch, order, setup.share(order.n, begin.history), Meter(begin.epoch, setup.n_chunks))

    def _taken(self, item: BatchItem) -> Any:
        setup, backend, batch = self._setup, self._setup.backend, item.batch
        setup.target.wait(item.mark)
        stream = backend.current_stream()
        for lease in item.leases:
            lease.hand_to(stream)
        if setup.transform is not None and stream is not None:
            meter: Any = self._meter
            with meter.stage("transform"), backend.current():
                batch = setup.transform(batch)
        self._steps = item.step + 1
        return batch

    def _ended(self) -> None:
        epoch = self._from.epoch + 1
        with self._ending(""):
            self._go_to(LoaderProgress(epoch, self._setup.seed, ()), resumed=False)
        if self._setup.on_epoch is not None:
            self._setup.on_epoch(self.stats())

    @contextmanager
    def _ending(self, reason: str) -> Iterator[None]:
        """End the iteration under way, also one whose iterator was dropped, and forget its place."""
        running = self._running()
        if running is not None:
            running.stop(reason)  # the thread that waits for its next batch has the lock
        if self._threads.is_here():
            raise RuntimeError("transform runs on the thread of its loader, and cannot begin or end iterations of it")
        with self._lock:
            running = self._running()
            if running is not None:
                running.close(reason)
            if self._threads.n_threads:
                self._threads.call(lambda: None)  # the only thread does it after what it was doing
            if self._iteration is not None:  # nobody wants the batches that were handed out a second time
                epoch = self._from.epoch + (self._steps > 0)
                self._go_to(LoaderProgress(epoch, self._setup.seed, ()), resumed=False)
            yield

    def _go_to(self, begin: LoaderProgress, *, resumed: bool, first: int = 0) -> None:
        """Let the next iteration begin there. first: number of its first batch."""
        self._from, self._resumed, self._first = begin, resumed, first
        self._iteration, self._begun, self._steps = None, None, first

    def _running(self) -> BatchIterator | None:
        return None if self._iteration is None else self._iteration()

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        setup = self._setup
        return math.ceil(setup.share(setup.n_positions()).n / setup.batch_size)

    def close(self) -> None:
        """End the iteration under way, wait for its threads, and forget its place. The loader can be used again."""
        with self._ending("the loader was closed; iterate over it again"):
            self._setup.forget()

    def batch_ids(self, step: int) -> Indices:
        """Compute which samples a batch has, without reading anything.

        Parameters
        ----------
        step : int
            Number of the batch, from 0 where the current iteration of this rank began; the next one, if none has begun
            or the last one has ended.

        Returns
        -------
        numpy.ndarray
            Numbers of the samples, int64. The number of a row is its place in the arrays, or among the rows of all
            arrays of a list, also in a part of a split. Windows and crops are counted from 0 in this loader, so a part
            of a split has numbers of its own: `batch_starts` says where they lie.

        Raises
        ------
        IndexError
            If there is no such batch.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> loader = gzarr.Loader(gzarr.array(np.arange(10)), batch_size=4)
        >>> loader.batch_ids(1)
        array([4, 5, 6, 7])
        """
        return self._setup.samples.numbers(self._numbers(step))

    def batch_starts(self, step: int) -> Indices:
        """Compute where in the arrays the samples of a batch begin, without reading anything.

        Parameters
        ----------
        step : int
            Number of the batch, as for `batch_ids`.

        Returns
        -------
        numpy.ndarray
            The first element of each sample, int64: a row, the first row of a window, or the corner of a crop. The
            shape is (samples, axes), of as many axes as samples are cut along. For lists of arrays, the first column is
            the number of the array.

        Raises
        ------
        IndexError
            If there is no such batch.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> loader = gzarr.Loader(gzarr.zeros((4, 6)), batch_size=2, crops=gzarr.Crops((2, 3)))
        >>> loader.batch_starts(1)
        array([[2, 0],
               [2, 3]])
        """
        return self._setup.starts(self._numbers(step), self._coming().epoch)

    def _numbers(self, step: int) -> Indices:
        """The numbers that the samples of a batch have in this loader."""
        step, begun = integer("step", step), self._coming()
        size, n = self._setup.batch_size, begun.share.n
        n_batches = -(-n // size)
        if not 0 <= step < n_batches:
            raise IndexError(f"there is no batch {step}: this iteration has {n_batches}, from 0")
        return begun.order(begun.share.positions(step * size, min((step + 1) * size, n)))

    def _coming(self) -> Begun:
        """The iteration under way, or the next one."""
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    @property
    def world_size(self) -> int:
        """Number of ranks among which the samples are divided."""
        return self._setup.world_size

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Number of the epoch that is under way, or of the next one, from 0."""
        return self._from.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration, which is else the one after the last that gave a batch.

        A place that `load_state_dict` has given is kept if it is in this epoch.

        Parameters
        ----------
        epoch : int
            Its number, from 0. Every epoch has another order.
        """
        epoch = integer("epoch", epoch)
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        if self._resumed and epoch == self._from.epoch:
            return
        with self._ending("set_epoch has ended this iteration; iterate over the loader again"):
            self._go_to(LoaderProgress(epoch, self._setup.seed, ()), resumed=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader: the epoch, and how much of it was handed out.

        Returns
        -------
        dict
            Numbers, texts and lists, which JSON can store. A loader of any number of ranks can take it up
            (`load_state_dict`); the state of one rank is that of all.

        Raises
        ------
        ValueError
            If a sampler that is iterated over gives the order: nobody knows what it would give again.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> loader = gzarr.Loader(gzarr.array(np.arange(10)), batch_size=4)
        >>> batches = iter(loader)
        >>> next(batches)
        array([0, 1, 2, 3])
        >>> again = gzarr.Loader(gzarr.array(np.arange(10)), batch_size=4)
        >>> again.load_state_dict(loader.state_dict())
        >>> next(iter(again))
        array([4, 5, 6, 7])
        """
        progress = self._progress()
        self._setup.check_place(progress.history)
        return write_state(progress, self._setup.identity(anew=False))

    def _progress(self) -> LoaderProgress:
        begun = self._begun
        if begun is None or not self._steps:
            return self._from
        taken = min(self._steps * self._setup.batch_size, begun.share.n)
        return LoaderProgress(begun.epoch, self._setup.seed, begun.share.history(taken))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin where a state says. The seed becomes that of the state.

        Parameters
        ----------
        state : dict
            What `state_dict` gave, in this process or another one, of any number of ranks. After another number of
            ranks no sample comes twice and none is left out, but for those of the last incomplete step.

        Raises
        ------
        ValueError
            If it is the state of a loader of other data, samples or order, or of a place that no epoch has.
        """
        progress = self._place_in(state)
        with self._ending("load_state_dict has ended this iteration; iterate over the loader again"):
            if progress.seed != self._setup.seed:
                self._setup = Setup({**self._given, "seed": progress.seed}, self._part)
            self._go_to(progress, resumed=True)

    def _place_in(self, state: Mapping[str, Any]) -> LoaderProgress:
        """The place that a state tells. Raises: ValueError."""
        progress = read_state(state, self._setup.identity())
        self._setup.check_place(progress.history)
        return progress

    def prefetch_to(self, device: str) -> Self:
        """Return a loader whose batches are uploaded to a device ahead of the caller, after ``transform``.

        The chunks are read and decoded on the CPU. A stream of the loader's own uploads each batch while you compute
        on others, and your stream waits for it. Arrays of types that the device lacks, and masked ones, stay on the
        host.

        Parameters
        ----------
        device : str
            Where batches go; see `gzarr.devices.backend_for`.

        Returns
        -------
        Loader
            One with the arguments of this one, that begins at its place.

        Raises
        ------
        DeviceError
            If the device cannot be used, or batches are on a device already.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> loader = gzarr.Loader(gzarr.array(np.arange(6)), batch_size=3, transform=np.negative, device="cpu")
        >>> [batch.tolist() for batch in loader.prefetch_to("emulated")]
        [[0, -1, -2], [-3, -4, -5]]
        """
        progress, given = self._progress(), {**self._given, "seed": self._setup.seed, "prefetch_to": device}
        return _made(type(self), given, self._part, progress, bool(progress.history))

    def split(self, *fractions: float, shuffle: bool = True) -> tuple[Self, ...]:
        """Split the samples into loaders that share no chunk of the first axis, and no episode of windows.

        Parameters
        ----------
        *fractions : float
            How large each part is; they add up to 1 at most.
        shuffle : bool
            Whether each part is drawn from everywhere, by the loader's seed, or parts follow each other.

        Returns
        -------
        tuple of Loader
            A loader for each part, with the arguments of this one.

        Raises
        ------
        ValueError
            If the fractions are malformed, a part would be empty, or a sampler gives the order.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> loader = gzarr.Loader(gzarr.array(np.arange(1000), chunks=10), batch_size=50)
        >>> train, val = loader.split(0.9, 0.1)
        >>> len(train), len(val)
        (18, 2)
        """
        setup = self._setup
        if setup.sampler is not None:
            raise ValueError("split: sampler= gives numbers of all samples; make a loader with a sampler for each part")
        parts = setup.samples.split(fractions, setup.axis, seed=setup.seed, shuffle=shuffle)
        pool = self if self._given["pool"] is True else self._given["pool"]
        given, begin = {**self._given, "seed": setup.seed, "pool": pool}, LoaderProgress(0, setup.seed, ())
        return tuple([_made(type(self), given, part, begin) for part in parts])

    def __reduce__(self) -> tuple[Any, ...]:
        given = {**self._given, "seed": self._setup.seed}
        progress = self._progress()
        return _made, (type(self), given, self._part, progress, bool(progress.history))

    # -- what it does --------------------------------------------------------------------------------------------

    def summary(self, *, correlation: float = 0.5) -> Summary:
        """Say what an epoch costs and how good its shuffling is, before anything is read.

        Parameters
        ----------
        correlation : float
            That of two samples of one chunk, from 0 to 1: how much alike they are.

        Returns
        -------
        Summary
            Decodes of each chunk, bytes, memory, the variance of batches, and advice; it prints as a table.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((5000, 64, 64), chunks=(16, 64, 64), dtype="f4")
        >>> summary = gzarr.Loader(z, 64, shuffle="blocks", memory="35 %").summary()
        >>> round(summary.decodes[""], 1), round(summary.variance_factor, 1)
        (1.0, 2.8)
        """
        if not 0 <= correlation <= 1:
            raise ValueError(f"correlation must be between 0 and 1, got {correlation!r}")
        return summary_of(self._setup, self._coming(), correlation)

    def stats(self) -> LoaderStats:
        """Return what the iteration under way, or the last one, has cost so far.

        Returns
        -------
        Stats
            Counts and seconds, by stage; it prints as a table.
        """
        return (self._meter or Meter(self._from.epoch, self._setup.n_chunks)).stats()

    def __repr__(self) -> str:
        setup = self._setup
        names = "an array" if setup.names is None else ", ".join(setup.arrays)
        ranks = f", rank {setup.rank} of {setup.world_size}" if setup.world_size > 1 else ""
        return escaped(
            f"<Loader of {names}: {setup.samples.n} samples in batches of {setup.batch_size}, "
            f"shuffle={setup.shuffle!r}{ranks}, on {setup.target.device!r}>"
        )


def _made(
    kind: type[L], given: Mapping[str, Any], part: Samples | None, begin: LoaderProgress, resumed: bool = False
) -> L:
    """A loader of a class; see `Loader._take`."""
    loader = kind.__new__(kind)
    loader._take(given, part, begin, resumed=resumed)  # noqa: SLF001 - of this module
    return loader


def shared_turn(pool: Any, devices: Any) -> SharedTurn:
    """The turn of a loader, or of those that share memory. Raises: TypeError, ValueError."""
    if pool is not None and (devices is not None or isinstance(pool, LoaderOnDevices)):
        raise ValueError("pool: loaders of several devices share no memory; make a loader for each device")
    if pool is None or pool is True:
        return SharedTurn()
    if not isinstance(pool, Loader):
        raise TypeError(f"pool must be another gzarr.Loader, whose memory is shared, got {pool!r:.100}")
    pool._turn.is_shared = True  # noqa: SLF001 - of this module
    return pool._turn  # noqa: SLF001 - of this module


class LoaderOnDevices(Loader):
    """A `Loader` over several devices, which have its batches in turn: a loader for each, as if each were a rank.

    Each device has a producer, memory and streams of its own, and decodes what its batches need. Nothing is copied from
    one device to another.
    """

    def _take(self, given: Mapping[str, Any], part: Samples | None, begin: LoaderProgress, *, resumed: bool) -> None:
        devices = given["devices"]
        if given["device"] is not None or isinstance(devices, str) or not devices:
            raise ValueError(f"devices={devices!r}: give a list of devices, one at least, and leave device= away")
        rank, world_size = parse_ranks(given["rank"], given["world_size"])
        self._given, self._part = given, part
        self._loaders: list[Loader] = []
        for number, device in enumerate(devices):
            shared_turn(given["pool"], devices)
            own: dict[str, Any] = {"rank": rank * len(devices) + number, "world_size": world_size * len(devices)}
            own |= {"devices": None, "on_epoch": None, "share": "none"}
            self._loaders.append(_made(Loader, {**given, **own, "device": device}, part, begin, resumed))
        self._setup = self._loaders[0]._setup  # noqa: SLF001 - the samples and arrays of all

    def __iter__(self) -> Iterator[Any]:
        for loader in self._loaders:
            with loader._ending("a later iteration of the loader has ended this one"):  # noqa: SLF001 - a part
                pass
        self.set_epoch(max(loader.epoch for loader in self._loaders))  # some may have given no batch of the last one
        return self._in_turn([iter(loader) for loader in self._loaders], self._skipped)

    def _in_turn(self, iterators: list[Iterator[Any]], skipped: int) -> Iterator[Any]:
        on_epoch: Callable[[LoaderStats], object] | None = self._given["on_epoch"]
        ended = object()
        while iterators:
            for iterator in iterators[skipped:]:
                if (batch := next(iterator, ended)) is ended:
                    iterators.remove(iterator)
                else:
                    yield batch
            skipped = 0
        if on_epoch is not None:
            on_epoch(self.stats())

    @property
    def _skipped(self) -> int:
        """How many devices had had a batch of the first turn of the iteration before it began."""
        return sum(loader._first for loader in self._loaders)  # noqa: SLF001 - a part

    def __len__(self) -> int:
        return sum(map(len, self._loaders))

    def close(self) -> None:
        """End the iteration under way; see `Loader.close`."""
        for loader in self._loaders:
            loader.close()

    def _numbers(self, step: int) -> Indices:
        turn, device = divmod(step + self._skipped, len(self._loaders))
        return self._loaders[device]._numbers(turn)  # noqa: SLF001 - a part

    @property
    def epoch(self) -> int:
        """Number of the epoch that is under way, or of the next one, from 0."""
        return self._loaders[-1].epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; see `Loader.set_epoch`."""
        for loader in self._loaders:
            loader.set_epoch(epoch)

    def _progress(self) -> LoaderProgress:
        return self._loaders[-1]._progress()  # noqa: SLF001 - the one that has given the fewest batches

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader; see `Loader.state_dict`."""
        return super().state_dict() | {"in_turn": self._in_this_turn()}

    def _in_this_turn(self) -> list[int]:
        """Number of devices, and of those that have had a batch of the turn that is under way."""
        last = self._loaders[-1]._steps  # noqa: SLF001 - a part
        return [len(self._loaders), sum(loader._steps > last for loader in self._loaders)]  # noqa: SLF001 - a part

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin where a state says; see `Loader.load_state_dict`."""
        self._place_in(state)
        in_turn = state.get("in_turn", [1, 0])
        if not 0 <= integer("in_turn", in_turn[1]) < integer("in_turn", in_turn[0]):
            raise ValueError(f"the state tells of an impossible place: in_turn={in_turn}; use another one")
        for loader in self._loaders:
            loader.load_state_dict(state)
        self.__setstate__(in_turn)
        self._setup = self._loaders[0]._setup  # noqa: SLF001 - with the seed of the state

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), self._in_this_turn()

    def __setstate__(self, in_turn: Sequence[int]) -> None:
        n, ahead = in_turn
        for number, loader in enumerate(self._loaders):
            first = int(number < ahead and n == len(self._loaders))
            loader._go_to(loader._from, resumed=loader._resumed or ahead > 0, first=first)  # noqa: SLF001 - a part

    def stats(self) -> LoaderStats:
        """Return what the iteration has cost so far: counts of all devices, seconds of one on average."""
        rows = [asdict(loader.stats()) for loader in self._loaders]
        sums: dict[str, Any] = {name: sum(row[name] for row in rows) for name in rows[0]}
        means = {name: value / len(rows) for name, value in sums.items() if name not in _SUMS}
        return LoaderStats(**sums | means | {"epoch": rows[0]["epoch"], "elapsed_s": max(r["elapsed_s"] for r in rows)})

    def _coming(self) -> Any:
        return self._loaders[0]._coming()  # noqa: SLF001 - a part

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} and {len(self._loaders) - 1} others in turn>"
