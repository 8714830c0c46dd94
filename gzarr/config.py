"""Settings: defaults, overridden by ``GZARR_*`` environment variables, overridden by `config.set`.

``GZARR_ARRAY__ORDER=F`` sets ``array.order``: a double underscore stands for a dot. Values are read as JSON if they can
be, or as Python's True, False and None.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from operator import index
from typing import Any, NamedTuple, SupportsIndex, TextIO

DEFAULTS: Mapping[str, Any] = {
    "default_zarr_format": 3,  # of new arrays and groups
    "array.order": "C",  # memory order of elements within a chunk: "C" or "F"
    "array.read_missing_chunks": True,  # whether chunks that are not stored are read as the fill value
    "array.write_empty_chunks": False,  # whether chunks equal to the fill value are stored
    "threading.max_workers": None,  # threads of the CPU backend; None for one per core, or two if they wait
    "async.concurrency": 64,  # calls of coroutines that run at once
    "remote.concurrency": 64,  # requests to a remote store that run at once
    "cpu.native": True,  # whether the compiled loop is used where it can be
    "locks": "flock",  # of local files, between processes: "flock", "fcntl", "node" (this machine alone) or "none"
    "device": "auto",  # where reads put their results
    "gpu.max_device_nbytes": None,  # device memory that reads may use; None for a share of what is free
    "gpu.strict": False,  # whether a step that the device lacks is an error, instead of running on the host
    "gpu.reader": "auto",  # how files reach the device: "host", "kvikio" or "auto"
    "emulated.arrays": "device",  # of device="emulated": "device", which behave as CuPy's, or "numpy"
    "virtual.containers": (),  # paths and URLs that references to chunks may lead to, besides what lies beside them
    "gpu.nvtx": False,  # whether stages are marked for NVIDIA's profilers
}

#: Settings of zarr-python that can be set, and change nothing: how its pipelines work, and what gzarr always allows.
_OF_ZARR = (
    *("codec_pipeline.", "codecs.", "buffer", "ndbuffer", "json_indent", "async.timeout"),
    *("array.target_shard_size_bytes", "array.rectilinear_chunks", "array.sharding_coalesce_max"),
)

#: Values of settings that have few, and the settings that are numbers. `gzarr.devices` checks the others, with what
#: they are combined with.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "default_zarr_format": (2, 3),
    "array.order": ("C", "F"),
    **dict.fromkeys(("array.read_missing_chunks", "array.write_empty_chunks", "cpu.native", "gpu.nvtx"), (True, False)),
    "emulated.arrays": ("device", "numpy"),
    "locks": ("flock", "fcntl", "node", "none"),
}
_NUMBERS = ("threading.max_workers", "async.concurrency", "remote.concurrency")

#: Python's names of values, and JSON's.
_PYTHON = {"True": "true", "False": "false", "None": "null"}
#: Texts that mean a truth value in the environment.
_SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Config(Mapping[str, Any]):
    """The settings of this process, by dotted name.

    There is one, `gzarr.config`. It is a mapping; `set` and item assignment change it.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.config["array.order"]
    'C'
    >>> with gzarr.config.set({"array.order": "F"}):
    ...     gzarr.zeros((2, 3)).order
    'F'
    """

    _values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Read the environment when a setting is first asked for: pytest imports gzarr before it runs a conftest.py."""
        if name != "_values":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.reset()
        return self._values

    def reset(self) -> None:
        """Go back to the defaults and the environment."""
        self._values = dict(DEFAULTS)
        for name, text in os.environ.items():
            if not name.startswith("GZARR_"):
                continue
            key = name.removeprefix("GZARR_").lower().replace("__", ".")
            if key not in DEFAULTS:
                _warn_of_misspelled(name, key)
            else:
                switch = _SWITCHES.get(text.strip().lower()) if isinstance(DEFAULTS[key], bool) else None
                self._values[key] = _checked(key, _parsed(text) if switch is None else switch, f" (environment {name})")

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a setting.

        Parameters
        ----------
        key : str
            Dotted name.
        default : object, optional
            What to return if there is no such setting.

        Returns
        -------
        object
            The value.
        """
        return self._values.get(key, default)

    def set(self, values: Mapping[str, Any] | None = None, **kwargs: Any) -> "_Restore":
        """Change settings: for good, or in a ``with`` statement until its end.

        Parameters
        ----------
        values : mapping, optional
            Values by dotted name (``{"array.order": "F"}``), or nested mappings. Settings of zarr-python's pipelines
            and buffers are accepted, and change nothing.
        **kwargs
            Values by name, in which a double underscore stands for a dot: ``array__order="F"``.

        Returns
        -------
        context manager
            Puts the earlier settings back when its block ends.

        Raises
        ------
        KeyError
            If there is no such setting; the message names those there are.
        ValueError
            If a setting has no such value.

        Examples
        --------
        >>> import gzarr
        >>> with gzarr.config.set(default_zarr_format=2):
        ...     gzarr.zeros(3).zarr_format
        2
        """
        changes = {**_flat(values or {}), **{k.replace("__", "."): v for k, v in kwargs.items()}}
        for key, value in changes.items():
            if key in DEFAULTS:
                _checked(key, value)
            elif not key.startswith(_OF_ZARR):
                raise KeyError(f"no setting {key!r}; the settings are {', '.join(DEFAULTS)}")
        before = dict(self._values)
        self._values = {**before, **changes}
        return _Restore(self, before)

    def enable_gpu(self) -> "_Restore":
        """Read into GPU memory by default: zarr-python's name for ``set(device="cuda")``.

        Returns
        -------
        context manager
            As of `set`.

        Examples
        --------
        >>> import gzarr
        >>> with gzarr.config.enable_gpu():
        ...     gzarr.config["device"]
        'cuda'
        """
        return self.set(device="cuda")

    def pprint(self, stream: TextIO | None = None, **kwargs: Any) -> None:
        """Print the settings.

        Parameters
        ----------
        stream : file, optional
            Where to print. By default the standard output.
        **kwargs
            Of `pprint.pprint`: ``width``, for example.
        """
        import pprint

        pprint.pprint(self._values, stream, **kwargs)  # noqa: T203 - what it is for

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.set({key: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Config({self._values})"


class _Restore(NamedTuple):
    """Puts the earlier settings back when a ``with`` block ends."""

    owner: Config
    before: dict[str, Any]

    def __enter__(self) -> Config:
        return self.owner

    def __exit__(self, *error: object) -> None:
        self.owner._values = self.before  # noqa: SLF001 - the two classes belong together


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _checked(key: str, value: Any, where: str = "") -> Any:
    """Return a setting's value. Raises ValueError if it has no such value."""
    choices = _CHOICES.get(key)
    if choices is not None and value not in choices:
        raise ValueError(f"the setting {key}{where} must be {' or '.join(map(repr, choices))}, got {value!r}")
    is_number = isinstance(value, SupportsIndex) and index(value) > 0
    if key in _NUMBERS and not is_number and (value is not None or DEFAULTS[key] is not None):
        or_none = "" if DEFAULTS[key] else " or None"
        raise ValueError(f"the setting {key}{where} must be a number >= 1{or_none}, got {value!r}")
    return value


def _warn_of_misspelled(name: str, key: str) -> None:
    """Warn of an environment variable that is close to that of a setting, or has the form of one with a section."""
    from difflib import get_close_matches

    names = {f"GZARR_{setting.upper().replace('.', '__')}": setting for setting in DEFAULTS}
    near = get_close_matches(name, names, 1, 0.85)
    if near or "." in key:
        remedy = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(DEFAULTS)}"
        text = f"there is no setting for the environment variable {name}, which is ignored; {remedy}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _parsed(text: str) -> Any:
    try:
        return json.loads(_PYTHON.get(text, text))
    except json.JSONDecodeError:
        return text


config = Config()
