"""`ImageWriter`: takes the frames of a microscope as they come, and writes an image with all its levels behind.

Theory of operation. Frames are copied into *rows* (`gzarr.images.acquisition.growing`), which have a buffer each. A row
that is full goes to other threads, which write it in all levels. Buffers are used again.

Rules. A row is written once, so a row that lacks a frame waits, and the limit of memory says how many may wait. An
error of theirs is raised by every later call. A forked child leaves the writer to its parent.
"""

import atexit
import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self, Unpack

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.concurrency import Pool, after_fork, new_lock, reraise
from gzarr.errors import MetadataError, SelectionError
from gzarr.hierarchy.values import axis_names, check_aligned
from gzarr.images.acquisition.growing import FrameRow, GrowingImage, WriterPosition, place_of
from gzarr.images.create import NewImageKeywords, create_image
from gzarr.images.image import Image
from gzarr.images.new_levels import new_chunks, new_dtype
from gzarr.images.ome.axes import new_axes
from gzarr.images.ome.series import create_collection
from gzarr.images.pyramid.downsample import Method, check_method, resident
from gzarr.images.pyramid.levels import SMALLEST, Factors
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.tasks import limit_of
from gzarr.indexing.chunking import parse_shape

#: Seconds after which others see what is complete: showing it writes the document of every level.
_SHOW_S = 1.0
#: Rows that are written at once: one encodes while another one is stored.
_WRITERS = 3
#: How many rows the limit of memory has room for if the chunks are left to the writer.
_ROWS = 4

#: Writers that are not closed, for the end of the program.
_open: "dict[int, ImageWriter]" = {}


class _Ended(NamedTuple):
    """A row that is written, or not."""

    row: FrameRow
    mark: object
    error: BaseException | None


class ImageWriter:
    """Writes an OME-Zarr image whose frames come one after the other, as from a microscope.

    Frames go to the end of the first axis, which grows. Other threads encode and store them, and all levels of the
    pyramid, as soon as whole chunks (or shards) of frames are there; nothing is stored twice. Readers see
    complete frames at most a second later. If the program is killed, these are there and
    the image's metadata are valid. Chunks of later frames may be left over then, outside of the arrays: `gzarr.verify`
    names them, and `gzarr.repair` deletes them as leftover files.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where to create the image.
    shape : sequence of int
        Extents of a frame: of all axes but the first.
    dtype : dtype-like
        Data type of the elements.
    axes : str or sequence, optional
        Names of the axes, the first of which grows: "tyx", "tczyx", "zyx". By default the last of "tczyx".
    positions : sequence of str, optional
        Names of several images that are written at once, into one collection.
    levels, factors, method : optional
        See `build_pyramid`. Levels that join frames are named in the metadata when the writer is closed.
    frames : int
        How many frames are expected. It only matters for the levels of an image whose first axis is one of space.
    max_nbytes : int, optional
        Bytes of the frames that wait. If there is no room, `append` waits. The frames of a row of chunks, or shards,
        are held in any case. By default 256 MiB, or what such a row of every position takes if that is more.
    **kwargs
        ``scale``, ``units``, ``channels``, ``skip`` (a number), ``chunks``, ``shards``, ``version`` and the other
        keywords of `create_image`.

    Raises
    ------
    MetadataError
        If a keyword is malformed.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.

    Examples
    --------
    >>> import gzarr.images, numpy as np
    >>> with gzarr.images.ImageWriter("run.zarr", shape=(2, 600, 600), dtype="u2", axes="tcyx",
    ...     channels=["DAPI", "GFP"], scale=0.2, units="micrometer") as writer:
    ...     for number in range(3):
    ...         writer.append(np.full((600, 600), number), c="DAPI")
    ...         writer.append(np.full((600, 600), number + 100), c="GFP")
    >>> image = gzarr.images.open_image("run.zarr")
    >>> [level.shape for level in image], int(image[1][2, 1, 0, 0])
    ([(3, 2, 600, 600), (3, 2, 300, 300), (3, 2, 150, 150)], 102)
    """

    def __init__(
        self,
        store: Any,
        *,
        shape: Any,
        dtype: Any,
        axes: Any = None,
        positions: Sequence[str] | None = None,
        levels: int | None = None,
        factors: Factors = None,
        method: Method = "mean",
        frames: int = SMALLEST,
        max_nbytes: int | None = None,
        **kwargs: Unpack[NewImageKeywords],
    ) -> None:
        frame, kind = parse_shape(shape), new_dtype(dtype)
        if len(frame) < 2:
            raise MetadataError(f"shape: a frame has two axes or more, beside the one that grows, got {shape!r}")
        if method == "gaussian":
            raise MetadataError("method: 'gaussian' needs the frames that come later; use build_pyramid afterwards")
        check_method(method, kind, labels=False)
        found = new_axes(axes, len(frame) + 1, kwargs.get("units"))
        if kwargs.get("chunks") is None and kwargs.get("layout") is None:
            chunks = new_chunks(found, (SMALLEST, *frame), kind.itemsize)
            fitting = limit_of(max_nbytes) // _ROWS // max(math.prod(frame) * kind.itemsize, 1)
            kwargs["chunks"] = (max(min(chunks[0], 1 << max(fitting, 1).bit_length() - 1), 1), *chunks[1:])
        self._max_nbytes = max_nbytes
        self._ended: SimpleQueue[_Ended] = SimpleQueue()
        self._pool = Pool()
        self._lock = new_lock()
        self._nbytes = self._n_under_way = 0
        self._spare: list[FrameRow] = []
        self._error: BaseException | None = None
        given: dict[str, Any] = {**kwargs, "shape": (0, *frame), "dtype": kind, "axes": axes}
        recipe = Recipe(levels, factors, method, skip=kwargs.get("skip"))
        if given.get("overwrite"):  # what is wrong is said before anything is deleted
            GrowingImage(create_image(**{**given, "overwrite": False, "path": None}), recipe, frames)
        made: dict[str | None, Image] = {}
        if positions is None:
            made[None] = create_image(store, **given)
        else:
            root, given = create_collection(store, positions, given)
            made |= {name: create_image(root, path=name, **given) for name in positions}
        self._positions = {name: WriterPosition(GrowingImage(image, recipe, frames)) for name, image in made.items()}
        _open[id(self)] = self

    def append(self, frame: Any, *, position: str | None = None, **index: int | str) -> None:
        """Take a frame, or a plane of one. The memory may be changed afterwards.

        Parameters
        ----------
        frame : array-like
            Elements of the last axes of the image: of a whole frame, or of a part, down to a plane. With an axis more
            than a frame, several frames. On the host or on the writer's device.
        position : str, optional
            Which image, if there are several.
        **index
            Where it lies on the axes that it lacks, by their names: ``c="GFP"``, ``z=3``. By default, planes come in
            order, the last axis first. The number of the frame itself may be given too, by the name of the first axis;
            by default the next one of these planes.

        Raises
        ------
        SelectionError
            If there is no such position, channel or index, or the plane was given before.
        ValueError
            If the frame has another shape, or too many incomplete frames would have to be held.
        StoreError
            What writing has raised, every time from then on.

        Examples
        --------
        >>> import gzarr.images, numpy as np
        >>> writer = gzarr.images.ImageWriter("stack.zarr", shape=(64, 64), dtype="u1", positions=["left", "right"])
        >>> writer.append(np.ones((64, 64)), position="right")
        >>> writer.close()
        """
        with self._lock:
            self._check_open()
            self._collect()
            reraise(self._error)
            where = self._position(position)
            image = where.image
            names = image.image.axes
            check_aligned(axis_names(frame), names, names, image.image.group.store_path)
            value = image.backend.asarray(frame, image.dtype)
            if value.ndim == len(image.frame_shape) + 1:
                for item in value:
                    self._append(where, item, index)
            else:
                self._append(where, value, index)

    def flush(self) -> None:
        """Wait until the frames that are complete are stored and others see them. Raises: what writing has raised."""
        with self._lock:
            self._check_open()
            self._wait()
            reraise(self._error)
            for position in self._positions.values():
                position.image.show()

    def close(self) -> None:
        """Store all frames, complete or not, and all levels, and name these in the metadata. May be called again.

        Planes that never came hold the fill value. Raises: what writing has raised; frames that are stored then stay.
        """
        with self._lock:
            if id(self) not in _open:
                return
            self._wait()  # if this is interrupted, the writer is still open
            del _open[id(self)]
            try:
                reraise(self._error)
                for position in self._positions.values():
                    self._end(position)
            except BaseException:
                for position in self._positions.values():
                    with suppress(Exception):
                        position.image.show()
                raise

    def image(self, position: str | None = None) -> Image:
        """Return the image as others see it now.

        Parameters
        ----------
        position : str, optional
            Which image, if there are several.

        Returns
        -------
        Image
            The image, with the frames that are stored.
        """
        return self._position(position).image.image.reopened()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _append(self, where: WriterPosition, value: AnyArray, index: dict[str, int | str]) -> None:
        number, inner = place_of(where, value.shape, index)
        image = where.image
        row_number, offset = divmod(number, image.row)
        row = where.rows.get(row_number)
        if row_number in where.handed or (row is not None and row.present[(offset, *inner)].any()):
            axes = ", ".join(f"{name}={n}" for name, n in zip(image.image.axes, (number, *inner), strict=False))
            raise SelectionError(f"{image.image.group.store_path}: the plane at {axes} was given before")
        if row is None:
            self._make_room(image)
            row = where.rows[row_number] = self._new_row(image)
        row.buffer[(offset, *inner)] = resident(image.backend, value)
        row.marks.append(image.backend.record())
        row.present[(offset, *inner)] = True
        where.counts[inner] = np.maximum(where.counts[inner], number + 1)
        if row.present.all():
            self._hand_over(where, row_number)

    def _make_room(self, image: GrowingImage) -> None:
        """Wait until there is room for a row."""
        rows = image.row_nbytes * len(self._positions)
        while not self._spare:
            needed = self._nbytes + self._pending() + image.row_nbytes
            if needed <= limit_of(self._max_nbytes, rows + self._pending()):
                return
            if self._n_under_way:
                self._take(self._ended.get())
                reraise(self._error)
            elif self._nbytes:
                raise ValueError(
                    f"{image.image.group.store_path}: {self._nbytes} bytes of incomplete frames are held: give all "
                    f"planes of a frame, and frames in order, or max_nbytes of {needed} or more"
                )
            else:
                return

    def _new_row(self, image: GrowingImage) -> FrameRow:
        shape = (image.row, *image.frame_shape)
        if self._spare:  # the images of a writer have frames of one shape
            buffer = self._spare.pop().buffer
        else:
            buffer = image.backend.empty(shape, image.dtype)
            self._nbytes += image.row_nbytes
        return FrameRow(buffer, shape[:-2])

    def _hand_over(self, where: WriterPosition, number: int) -> None:
        """Give a row to the other threads."""
        row, image, ended = where.rows.pop(number), where.image, self._ended
        where.handed.add(number)

        def write() -> None:
            mark: object = None
            failure: BaseException | None = None
            try:
                with image.backend.own_stream():
                    for before in row.marks:
                        image.backend.wait(before)
                    image.write(number, row.buffer)
                    mark = image.backend.record()
                if time.monotonic() - where.shown_s > _SHOW_S:
                    image.show()
                    where.shown_s = time.monotonic()
            except BaseException as error:  # noqa: BLE001 - raised by the next call
                failure = error
            ended.put(_Ended(row, mark, failure))

        self._n_under_way += 1
        self._pool.submit(write, _WRITERS)

    def _collect(self) -> None:
        with suppress(Empty):
            while True:
                self._take(self._ended.get_nowait())

    def _wait(self) -> None:
        while self._n_under_way:
            self._take(self._ended.get())

    def _take(self, ended: _Ended) -> None:
        self._n_under_way -= 1
        next(iter(self._positions.values())).image.backend.wait(ended.mark)
        self._spare.append(ended.row)
        if ended.error is not None and self._error is None:
            self._error = ended.error

    def _pending(self) -> int:
        return sum(position.image.pending_nbytes for position in self._positions.values())

    def _check_open(self) -> None:
        if id(self) not in _open:
            raise ValueError("the writer is closed")

    def _position(self, name: str | None) -> WriterPosition:
        found = self._positions.get(name)
        if found is None:
            names = [known for known in self._positions if known is not None]
            raise SelectionError(
                f"position={name!r}: give one of {names}" if names else f"position={name!r}: there is a single image"
            )
        return found

    def _end(self, where: WriterPosition) -> None:
        """Write what is left of an image, with the fill value for planes that never came."""
        image = where.image
        count = int(where.counts.max(initial=0))
        last, rest = divmod(count, image.row)
        held = [number for number in where.rows if number != last or not rest]
        missing = [number for number in range(last) if number not in where.handed and number not in where.rows]
        for number in (*held, *missing):
            row = self._filled(where, number)
            image.write(number, row.buffer)
            self._spare.append(row)
        image.end(count, self._filled(where, last).buffer[:rest] if rest else ())

    def _filled(self, where: WriterPosition, number: int) -> FrameRow:
        row = where.rows.pop(number, None) or self._new_row(where.image)
        fill = where.image.image.levels[0].fill_value
        for plane in np.argwhere(~row.present):
            row.buffer[tuple(plane)] = 0 if fill is None else fill
        return row


after_fork(_open.clear)


@atexit.register
def _end() -> None:
    for writer in list(_open.values()):
        try:
            writer.close()
        except Exception as error:  # noqa: BLE001 - the others are to be closed, too
            sys.excepthook(type(error), error, error.__traceback__)
