"""Chunk coordinates to store keys and back, and the paths of arrays and groups.

Source: Zarr v3 core, "chunk key encoding" (default, v2); Zarr v2, "chunks".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gzarr.errors import MetadataError

Coords: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyEncoding:
    """How chunk coordinates become keys.

    Attributes
    ----------
    name : {"default", "v2"}
        "default" (``c/0/1``) or "v2" (``0.1``).
    separator : {"/", "."}
        What stands between coordinates.
    """

    name: Literal["default", "v2"] = "default"
    separator: Literal["/", "."] = "/"

    @property
    def prefix(self) -> str:
        """The beginning of the key of a chunk that has coordinates."""
        return f"c{self.separator}" if self.name == "default" else ""

    def encode(self, coords: Coords) -> str:
        """Key of a chunk, relative to its array."""
        return self.under("", len(coords))(coords)

    def under(self, path: str, ndim: int) -> Callable[[Coords], str]:
        """A function that makes the keys of the chunks of the array at a path, which has so many axes."""
        path, names = path.replace("%", "%%"), ["%d"] * ndim
        if self.name == "default":
            return self.separator.join([join_path(path, "c"), *names]).__mod__
        return join_path(path, self.separator.join(names) or "0").__mod__

    def decode(self, key: str, ndim: int) -> Coords | None:
        """Coordinates of the chunk with a key, or None if the key is not a chunk's."""
        parts = key.split(self.separator)
        if self.name == "default":
            if parts[0] != "c":
                return None
            parts = parts[1:]
        elif ndim == 0:
            return () if key == "0" else None
        if len(parts) != ndim or not all(map(_is_coordinate, parts)):
            return None
        return tuple(map(int, parts))


def _is_coordinate(text: str) -> bool:
    """Whether a part of a key is a number as chunk keys have it: "01" is a foreign file's."""
    return text.isascii() and text.isdigit() and (text[0] != "0" or len(text) == 1)


def normalize_path(path: str) -> str:
    """Path of a node in its store: no leading, trailing or double slashes; "" is the root.

    Raises: MetadataError for segments made of periods, which the Zarr specifications forbid, and for NUL and lone
    surrogates.
    """
    path = str(path)
    try:
        path.isascii() or path.encode("utf-8", "surrogateescape")  # as file names are decoded
    except UnicodeEncodeError as error:
        raise MetadataError(f"path {path!r} holds half of a surrogate pair, which no store can keep") from error
    if "\0" in path:
        raise MetadataError(f"path {path!r} holds NUL, which no store can keep")
    segments = [s for s in path.replace("\\", "/").split("/") if s]
    for segment in segments:
        if set(segment) == {"."}:
            raise MetadataError(f"path {path!r}: a name must not consist of periods only")
    return "/".join(segments)


def join_path(base: str, name: str) -> str:
    """Path or key of something below a node; either may be empty."""
    return f"{base}/{name}" if base and name else base or name
