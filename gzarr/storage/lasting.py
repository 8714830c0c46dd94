"""What tells versions of objects for longer than one process, and in all processes alike."""

from gzarr.storage.archive import ArchiveEntry
from gzarr.storage.local_files import FileVersion


def lasting(token: object) -> object | None:
    """What a token (`Versions.token`) says that other processes see, too; None if that is nothing."""
    if isinstance(token, FileVersion):
        return token.nbytes, token.modified_ns
    if isinstance(token, ArchiveEntry):
        return token.info.file_size, token.info.CRC
    return token if isinstance(token, (str, int, bytes)) else None
