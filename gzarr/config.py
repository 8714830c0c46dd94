"""Settings: defaults, overridden by ``GZARR_*`` environment variables, overridden by `config.set`.

``GZARR_ARRAY__ORDER=F`` sets ``array.order``: double underscores are dots, values are read as JSON where they parse, or
as Python's True, False and None.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

DEFAULTS: Mapping[str, Any] = {
    "default_zarr_format": 3,
    "array.order": "C",
    "array.write_empty_chunks": False,
    "threading.max_workers": None,
    "async.concurrency": 64,
    "remote.concurrency": 128,
    "cpu.native": True,
    "device": "auto",
    "gpu.max_device_nbytes": None,
    "gpu.strict": False,
    "gpu.reader": "auto",
    "gpu.nvtx": False,
}

_PYTHON = {"True": True, "False": False, "None": None}
#: What may stand for a truth value in the environment.
_SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Config(Mapping[str, Any]):
    """The settings of this process, by dotted name."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Go back to the defaults and the environment."""
        self._values = dict(DEFAULTS)
        for name, text in os.environ.items():
            key = name.removeprefix("GZARR_").lower().replace("__", ".")
            if name.startswith("GZARR_") and key in DEFAULTS:
                switch = _SWITCHES.get(text.strip().lower()) if isinstance(DEFAULTS[key], bool) else None
                self._values[key] = _parsed(text) if switch is None else switch

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a setting, or ``default`` if there is no such setting."""
        return self._values.get(key, default)

    def set(self, values: Mapping[str, Any] | None = None, **kwargs: Any) -> _Restore:
        """Change settings; used in a ``with`` statement, they go back at its end.

        values: {"array.order": "F"}; as keywords, double underscores are dots: ``array__order="F"``.
        Raises: KeyError for a setting that does not exist, naming those that do.
        """
        changes = {**_flat(values or {}), **{k.replace("__", "."): v for k, v in kwargs.items()}}
        for key in changes:
            if key not in DEFAULTS:
                raise KeyError(f"no setting {key!r}; there are {', '.join(DEFAULTS)}")
        before = dict(self._values)
        self._values = {**before, **changes}
        return _Restore(self, before)

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


class _Restore:
    """Puts the earlier settings back when a ``with`` block ends."""

    def __init__(self, owner: Config, before: dict[str, Any]) -> None:
        self._owner = owner
        self._before = before

    def __enter__(self) -> Config:
        return self._owner

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner._values = self._before  # noqa: SLF001 - the two classes are one thing


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _parsed(text: str) -> Any:
    if text in _PYTHON:
        return _PYTHON[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


config = Config()
