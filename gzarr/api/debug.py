"""The state of an installation, for reports of bugs."""

import platform
import re
from collections.abc import Iterator
from importlib import metadata

from gzarr.config import config
from gzarr.cpu.compiled.library import status
from gzarr.devices import describe_gpu


def print_debug_info() -> None:
    """Print the versions and the state of this installation, to be pasted into a report of a bug.

    The GPU backend is looked for, but nothing is started on a GPU.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.print_debug_info()  # doctest: +ELLIPSIS
    gzarr: ...
    python: ...
    platform: ...
    compiled loop: ...
    GPU backend: ...
    device: ...
    numpy: ...
    """
    facts = {
        "gzarr": _version("gzarr"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "compiled loop": status(),
        "GPU backend": describe_gpu(),
        "device": f"{config['device']!r} unless given",
    }
    facts |= {name: _version(name) for name in ("numpy", "numcodecs", "google-crc32c", "zarr", *_optional())}
    print("\n".join(f"{name}: {fact}" for name, fact in facts.items()))  # noqa: T201 - what it is for


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _optional() -> Iterator[str]:
    """Packages of the extras that users install, as the metadata of the installation lists them."""
    try:
        lines = metadata.requires("gzarr") or []
    except metadata.PackageNotFoundError:  # the sources are on the path
        return
    for line in sorted(lines, key=str.lower):
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](\w+)", line)
        if name and extra and extra[1] not in ("test", "dev") and name[0] != "gzarr":
            yield name[0]
