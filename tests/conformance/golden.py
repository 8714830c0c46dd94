"""The form of the golden files: arrays that other implementations stored, and what they read back from them.

A file is a zip with ``arrays.json``: for every array the stored objects, the values and what else the writer says of
it. Values are in a form that is equal exactly where all bits are. Nothing here imports gzarr or a peer, because the
scripts that make the files run with old versions of those.
"""

import base64
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype in little-endian byte order, without padding."""
    if dtype.subdtype is not None:
        return np.dtype((native(dtype.subdtype[0]), dtype.subdtype[1]))
    if dtype.names is None:
        return dtype if dtype.kind == "T" else dtype.newbyteorder("<")
    return np.dtype([(name, native(dtype[name])) for name in dtype.names])


def values_to_json(values: Any) -> Any:
    """An array as JSON: its shape and its bytes in little-endian order, or its objects with their types."""
    array = np.asarray(values)
    if array.dtype.kind in "OT":
        return {"shape": list(array.shape), "objects": [object_to_json(item) for item in array.reshape(-1).tolist()]}
    raw = np.ascontiguousarray(array).astype(native(array.dtype)).tobytes()
    return {"shape": list(array.shape), "base64": base64.b64encode(raw).decode()}


def object_to_json(item: Any) -> Any:
    """A Python object as JSON that tells types apart."""
    if isinstance(item, np.ndarray):
        return {"array": values_to_json(item), "dtype": item.dtype.str}
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, bytes):
        return {"bytes": base64.b64encode(item).decode()}
    if isinstance(item, float) and not math.isfinite(item):
        return {"float": repr(item)}
    if isinstance(item, list | tuple):
        return [object_to_json(part) for part in item]
    if isinstance(item, dict):
        return {"dict": [[object_to_json(k), object_to_json(v)] for k, v in item.items()]}
    return item


def fill_to_json(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value as JSON."""
    if value is None:
        return None
    if dtype.kind in "OT":
        return object_to_json(value)
    return values_to_json(np.asarray(value).astype(dtype))["base64"]


def entry(objects: dict[str, bytes], values: Any, **facts: Any) -> dict[str, Any]:
    """One array of a golden file; values are None where they are undefined or cannot be read."""
    stored = {key: _text_or_base64(value) for key, value in sorted(objects.items())}
    return {"objects": stored, "values": None if values is None else values_to_json(values), "facts": facts}


def _text_or_base64(value: bytes) -> dict[str, str]:
    """Documents stay text, which compresses better."""
    if value[:1] == b"{" and value[-1:] == b"}" and value.isascii():
        return {"text": value.decode()}
    return {"base64": base64.b64encode(value).decode()}


def stored_objects(array: dict[str, Any]) -> dict[str, bytes]:
    """The stored objects of an array or group of a golden file."""
    return {
        key: value["text"].encode() if "text" in value else base64.b64decode(value["base64"])
        for key, value in array["objects"].items()
    }


def write(name: str, writer: str, arrays: dict[str, Any], groups: dict[str, Any]) -> None:
    """Write a golden file, the same bytes from the same content."""
    content = {"writer": writer, "arrays": arrays, "groups": groups}
    info = zipfile.ZipInfo("arrays.json", (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_LZMA
    path = DATA / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, json.dumps(content, sort_keys=True, separators=(",", ":")))
    print(f"{path.name}: {len(arrays)} arrays of {writer}, {path.stat().st_size} bytes")


def read(name: str) -> dict[str, Any]:
    """Read a golden file."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        content: dict[str, Any] = json.loads(archive.read("arrays.json"))
    return content
