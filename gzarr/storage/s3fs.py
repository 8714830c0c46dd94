"""Objects of S3 through `s3fs`, with what the headers of an answer say, for which its own methods send a HEAD each."""

from __future__ import annotations

from typing import Any, NamedTuple

from gzarr.storage.capabilities import Request
from gzarr.storage.extras import require
from gzarr.storage.remote import strong

#: How often an object is asked for whose connection breaks while it comes; s3fs itself repeats other requests.
_ATTEMPTS = 3


class S3Answer(NamedTuple):
    """The bytes of an answer.

    Attributes
    ----------
    data : bytes
        The bytes.
    tag : str or None
        The entity tag of the object, if it is a strong one.
    is_whole : bool
        Whether they are the whole object, as none or all of it was asked for, or because the server knows no ranges.
    """

    data: bytes
    tag: str | None
    is_whole: bool


def is_s3(fs: Any) -> bool:
    """Whether a file system is one of s3fs."""
    # Not of the instance: caches of fsspec (``simplecache::s3://``) pass on what is asked of them.
    return callable(getattr(type(fs), "call_s3", None))


def get_object(fs: Any, path: str, request: Request, tag: object | None = None) -> S3Answer:
    """Fetch an object, or a range of it, from the version that has a tag if one is given.

    path: of the object. Raises: what s3fs raises.
    """
    _, start, length = request
    options: dict[str, Any] = {} if tag is None else {"IfMatch": tag}
    if start is not None and start < 0:
        options["Range"] = f"bytes={start}"
    elif start is not None:
        options["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
    answer: S3Answer = require("fsspec.asyn", "s3", "s3fs").sync(fs.loop, _get_object, fs, path, options)
    return answer


async def _get_object(fs: Any, path: str, options: dict[str, Any]) -> S3Answer:
    bucket, key, version = fs.split_path(path)
    if version:
        options = {**options, "VersionId": version}
    for left in reversed(range(_ATTEMPTS)):
        answer = await fs._call_s3("get_object", Bucket=bucket, Key=key, **options)  # noqa: SLF001 - gives headers
        try:
            async with answer["Body"] as body:
                data = await body.read()
        except Exception:
            if not left:
                raise
        else:
            break
    return S3Answer(data, strong(answer.get("ETag")), "ContentRange" not in answer)


def is_refused(error: BaseException) -> bool:
    """Whether a server refused a request because the object has another tag (412)."""
    answer = getattr(error.__cause__, "response", None) or {}
    return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412)
