"""Every error that gzarr raises on purpose: one class per reaction that a caller can have.

Each class also derives from the built-in error that a NumPy, h5py or zarr user would catch. The message says what was
found, where, and what to do; attributes carry the same facts for programs.
"""

from typing import Any

from gzarr.errors.escaping import escaped_lines


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if isinstance(value, type) and issubclass(value, Exception))


#: Keywords that messages recommend, as Python spells them; commands spell them as options.
RESUME, REPLACE, SKIP, OVERWRITE = "resume=True", "if_exists='replace'", "if_exists='skip'", "overwrite=True"


class GzarrError(Exception):
    """Base of all errors raised by gzarr."""

    def __str__(self) -> str:
        return escaped_lines(super().__str__())  # names in it may hold what a terminal obeys


class MetadataError(GzarrError, ValueError):
    """A metadata document, or a request to create one, is malformed. Remedy: correct the named field."""


class UnknownCodecError(MetadataError):
    """No codec of that name is registered. Remedy: install or register it (``gzarr.register_codec``)."""


class UnknownDataTypeError(MetadataError):
    """gzarr does not know a data type of that name. Remedy: register it or install the extra that has it."""


class NodeNotFoundError(GzarrError, FileNotFoundError, ValueError):
    """There is no array or group at the path. Remedy: check the path, or open with a mode that creates."""


class ArrayNotFoundError(NodeNotFoundError):
    """There is no array at the path."""


class GroupNotFoundError(NodeNotFoundError):
    """There is no group at the path."""


class MemberNotFoundError(NodeNotFoundError, KeyError):
    """A group has no member of that name."""


class ContainsNodeError(GzarrError, FileExistsError, ValueError):
    """Something is already stored at the path. Remedy: choose another path or pass ``overwrite=True``."""


class ContainsArrayError(ContainsNodeError):
    """An array is already stored at the path."""


class ContainsGroupError(ContainsNodeError):
    """A group is already stored at the path."""


class ReadOnlyError(GzarrError, PermissionError):
    """Something that was opened for reading cannot be written. Remedy: open it with ``mode="r+"`` or ``"a"``."""


class StoreError(GzarrError, OSError):
    """A store cannot do what was asked: it is closed or damaged, or no store of its kind can."""


class ReplacedError(StoreError):
    """An object was replaced while parts of it were being read. Remedy: start again with its new version."""


class SelectionError(GzarrError, IndexError):
    """A selection does not fit the array: out of bounds, too many indices, or of an unsupported kind."""


class CodecError(GzarrError, ValueError):
    """A codec failed on one item of a batch. The engine turns it into a `ChunkError` that says which chunk.

    Parameters
    ----------
    message : str
        What went wrong.
    index : int
        Position of the failing item in the batch.
    codec : str
        Name of the codec.

    Attributes
    ----------
    index, codec
        The same.
    """

    def __init__(self, message: str, *, index: int = 0, codec: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.codec = codec


class ChunkError(GzarrError, ValueError):
    """A stored chunk or shard is damaged or cannot be encoded. Remedy: restore or rewrite the named object.

    Parameters
    ----------
    reason : str
        What is wrong.
    path : str
        Path of the array, with its store.
    key : str
        Key of the stored object in the store.
    chunk_coords : tuple of int, optional
        Coordinates of the chunk in the chunk grid; None if the whole object is meant.
    codec : str
        Name of the codec that failed, or "".

    Attributes
    ----------
    reason, path, key, chunk_coords, codec
        The same.

    Examples
    --------
    >>> import gzarr
    >>> store = gzarr.MemoryStore()
    >>> z = gzarr.array([1, 2, 3], store=store, compressors=gzarr.codecs.ZstdCodec())
    >>> store["c/0"] = b"damaged"
    >>> try:
    ...     z[...]
    ... except gzarr.ChunkError as error:
    ...     print(error.key, error.chunk_coords, error.codec)
    c/0 (0,) zstd
    """

    def __init__(
        self, reason: str, *, path: str, key: str, chunk_coords: tuple[int, ...] | None = None, codec: str = ""
    ) -> None:
        where = f"array {path!r}, key {key!r}"
        if chunk_coords is not None:
            where += f", chunk {chunk_coords}"
        if codec:
            where += f", codec {codec!r}"
        super().__init__(f"{where}: {reason}")
        self.reason = reason
        self.path = path
        self.key = key
        self.chunk_coords = chunk_coords
        self.codec = codec

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are unpickled by position: without this, a pool of processes hangs on the error of a worker.
        return _unpickled, (type(self), str(self), vars(self))


class ChunkNotFoundError(ChunkError):
    """A chunk is not stored, and the array was opened not to read such chunks as the fill value."""


def _unpickled(kind: type[ChunkError], message: str, fields: dict[str, Any]) -> ChunkError:
    error = kind.__new__(kind, message)
    vars(error).update(fields)
    return error


class DeviceError(GzarrError, RuntimeError):
    """The device asked for cannot be used. The message says what is missing and which extra installs it."""


class OutOfMemoryError(DeviceError, MemoryError):
    """Device memory ran out, also after what gzarr and CuPy keep for later was freed. The message says what to do."""


class MissingExtraError(GzarrError, ImportError):
    """An optional dependency is missing. The message names the extra that installs it."""


class CopyError(GzarrError, RuntimeError):
    """A copy stopped because something already exists at the destination."""


class PartsMissingError(GzarrError, RuntimeError):
    """A part of a job has done its blocks; the result is returned by the part that ends last, when no other is left."""


class ContainsArrayAndGroupError(ContainsNodeError):
    """zarr-python's error for a path with both; gzarr raises `ContainsArrayError` or `ContainsGroupError`."""


class ZarrUserWarning(UserWarning):
    """What was asked for is done, and may not be what was meant. zarr-python's name, as are those of the next ones."""


class ZarrRuntimeWarning(RuntimeWarning):
    """An argument has no effect."""


class ZarrFutureWarning(FutureWarning):
    """A call will mean something else."""


class ZarrDeprecationWarning(DeprecationWarning):
    """A name will be removed."""


class UnstableSpecificationWarning(ZarrFutureWarning):
    """Something is stored in a way that no specification has settled yet."""


#: zarr-python's names of errors.
BaseZarrError = GzarrError
MetadataValidationError = NodeTypeValidationError = DataTypeValidationError = MetadataError
BoundsCheckError = VindexInvalidSelectionError = NegativeStepError = ArrayIndexError = SelectionError
