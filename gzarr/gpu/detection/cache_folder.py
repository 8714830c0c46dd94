"""The folder of files that the GPU backend caches between processes: compiled kernels, results of the self-check."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """A folder in the user's cache, created if necessary; None if there is none that only the user can write."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # A relative path must be ignored (XDG Base Directory Specification).
        folder = (base if base.is_absolute() else Path.home() / ".cache") / "gzarr" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if os.access(folder, os.W_OK) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        pass
    return None
