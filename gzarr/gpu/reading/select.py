"""Chooses the reader: the requested one, or KvikIO where GPUDirect Storage is active.

The driver is queried with ctypes first, because without one, opening a file with KvikIO can hang (26.10, cuFile 1.19).
"""

from typing import Any, NamedTuple

from gzarr.errors import DeviceError
from gzarr.gpu.detection.driver import ask_driver
from gzarr.gpu.reading.host import HostReader
from gzarr.gpu.reading.kvikio import KvikioReader

#: Threads of KvikIO's pool: its default of one reads piece by piece. 16 saturated local NVMe drives for its authors
#: (KvikIO documentation, "Runtime settings").
_N_THREADS = 16


class ReaderChoice(NamedTuple):
    """The reader of a backend, and why it was chosen.

    Attributes
    ----------
    name : str
        "host" or "kvikio".
    why : str
        One phrase.
    """

    name: str
    why: str


def choose_reader(asked: str | HostReader) -> tuple[HostReader, ReaderChoice]:
    """The reader for a name: "host", "kvikio" or "auto". A reader is returned as it is.

    "auto" is KvikIO with GPUDirect Storage. Without it, KvikIO copies through host memory piece by piece and waits for
    each piece, while the host reader makes one copy for a batch.

    Raises: DeviceError for another name, or if KvikIO is asked for and cannot be used.
    """
    if not isinstance(asked, str):
        return asked, ReaderChoice(asked.name, "it was passed in")
    if asked == "host":
        return HostReader(), ReaderChoice("host", "it was requested")
    if asked not in ("auto", "kvikio"):
        raise DeviceError(f"no reader {asked!r}; use 'auto', 'host' or 'kvikio'")
    missing = find_missing_kvikio()
    if asked == "kvikio":
        if missing is not None:
            raise DeviceError(f"reader 'kvikio' cannot be used: {missing}; use reader='host' or 'auto'")
        return KvikioReader(_opener()), ReaderChoice("kvikio", "it was requested")
    if missing is not None:
        return HostReader(), ReaderChoice("host", missing)
    if not gds_is_active():
        return HostReader(), ReaderChoice("host", "GPUDirect Storage is not active")
    return KvikioReader(_opener()), ReaderChoice("kvikio", "GPUDirect Storage is active")


def find_missing_kvikio() -> str | None:
    """Why KvikIO cannot be used; None if it can."""
    if problem := ask_driver().problem:
        return problem
    try:
        import kvikio  # noqa: F401
    except Exception as error:  # noqa: BLE001 - it raises errors of its own if cuFile is missing
        return f"KvikIO cannot be imported ({type(error).__name__}: {error}): docs/gpu.md says how to install it"
    return None


def gds_is_active() -> bool:
    """Whether KvikIO reads by GPUDirect Storage instead of its compatibility mode."""
    import kvikio.cufile_driver
    import kvikio.defaults

    if kvikio.defaults.get("compat_mode") == kvikio.CompatMode.ON:
        return False
    try:
        return bool(kvikio.cufile_driver.get("is_gds_available"))
    except RuntimeError:
        return False


def _opener() -> Any:
    import kvikio
    import kvikio.defaults

    if kvikio.defaults.get("num_threads") < _N_THREADS:
        kvikio.defaults.set("num_threads", _N_THREADS)

    return lambda path: kvikio.CuFile(path, "r")
