"""Objects of S3 through `s3fs`, with what the headers of an answer say, for which its own methods send a HEAD each."""

from typing import Any

from gzarr.storage.extras import require
from gzarr.storage.remote import Answer, strong

#: How often an object is asked for whose connection breaks while it comes; s3fs itself repeats other requests.
_ATTEMPTS = 3


def is_s3(fs: Any) -> bool:
    """Whether a file system is one of s3fs."""
    # Not of the instance: caches of fsspec (``simplecache::s3://``) pass on what is asked of them.
    return callable(getattr(type(fs), "call_s3", None))


def get_object(fs: Any, path: str, start: int | None, length: int | None, tag: object | None) -> Answer:
    """Fetch an object, a suffix or a range of it, from the version that has a tag if one is given.

    path: of the object. Raises: what s3fs raises.
    """
    options: dict[str, Any] = {} if tag is None else {"IfMatch": tag}
    if start is not None and start < 0:
        options["Range"] = f"bytes={start}"
    elif start is not None:
        options["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
    return require("fsspec.asyn", "s3", "s3fs").sync(fs.loop, _get_object, fs, path, options)


async def _get_object(fs: Any, path: str, options: dict[str, Any]) -> Answer:
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
    return Answer(data, strong(answer.get("ETag")), "Range" in options and "ContentRange" not in answer)


def is_refused(error: BaseException) -> bool:
    """Whether a server refused a request because the object has another tag (412)."""
    answer = getattr(error.__cause__, "response", None) or {}
    return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412)
