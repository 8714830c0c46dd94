"""Imports the optional packages that stores are made of, with an error that names the extra which installs them."""

from importlib import import_module
from typing import Any

from gzarr.errors import MissingExtraError


def require(module: str, extra: str, what: str) -> Any:
    """Import an optional package.

    Parameters
    ----------
    module : str
        Dotted name.
    extra : str
        The extra of gzarr that installs it; "" for a package that gzarr itself requires.
    what : str
        What needs it, to begin the error with.

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        install = f"'gzarr[{extra}]'" if extra else package.replace("_", "-")
        raise MissingExtraError(
            f"{what} needs the package {package!r}, which cannot be imported ({error}): pip install {install}"
        ) from error


def have(module: str) -> bool:
    """Whether an optional package can be imported."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True
