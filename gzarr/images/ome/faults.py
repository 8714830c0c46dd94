"""What is wrong with an image, and two ways to take it: opening raises the first fault, validation lists all.

The same functions read metadata for both, so that nothing is refused by the one and overlooked by the other. After a
fault that validation has noted, they go on with a value that does no harm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gzarr.errors import MetadataError
from gzarr.errors.escaping import escaped

#: "fatal" keeps an image from being opened, "error" breaks the specification, "warning" a recommendation of it.
Severity = Literal["fatal", "error", "warning"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an image.

    Attributes
    ----------
    severity : {"fatal", "error", "warning"}
        "fatal" keeps the image from being opened, "error" breaks the specification, or the data are damaged; "warning"
        breaks a recommendation.
    path : str
        Store and path of the group or array.
    field : str
        The field of its metadata, or the key of a stored object.
    what : str
        What is wrong with it.
    remedy : str
        What to do.
    """

    severity: Severity
    path: str
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.path}: {self.field}" if self.field else self.path
        return escaped(f"{place}: {self.what}" + (f"; {self.remedy}" if self.remedy else ""))


#: Takes a fault: raises an error, or remembers it.
Taker: TypeAlias = Callable[[Fault], None]


def raise_fatal(fault: Fault) -> None:
    """Raise MetadataError for a fault that keeps an image from being opened; pass over all others."""
    if fault.severity == "fatal":
        raise MetadataError(str(fault))


def raise_any(fault: Fault) -> None:
    """Raise MetadataError for a fault of an image that is being made."""
    raise MetadataError(str(fault))


@dataclass(frozen=True, slots=True)
class Notes:
    """Where faults of one group or array go.

    Attributes
    ----------
    path : str
        Store and path of the group or array.
    take : callable
        Takes a `Fault`.
    """

    path: str
    take: Taker = raise_fatal

    def fatal(self, field: str, what: str, remedy: str = "") -> None:
        """Note what keeps the image from being opened."""
        self.take(Fault("fatal", self.path, field, what, remedy))

    def error(self, field: str, what: str, remedy: str = "") -> None:
        """Note what breaks the specification."""
        self.take(Fault("error", self.path, field, what, remedy))

    def warning(self, field: str, what: str, remedy: str = "") -> None:
        """Note what breaks a recommendation."""
        self.take(Fault("warning", self.path, field, what, remedy))


def short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
