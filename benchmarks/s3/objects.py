"""What an S3 server answers: objects in memory, with ranges, conditions, multipart uploads and listings.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

MAX_KEYS = 1000
#: Every object is of the time when the server started: Icechunk refuses a server whose clock is wrong.
MODIFIED = int(time.time())
_LISTED = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(MODIFIED))


@dataclass(frozen=True, slots=True)
class Request:
    """A request. key: of an object, empty for a bucket; query and headers: the last value of each name."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | bytearray = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes
    ----------
    delay_s : float
        How much later than others it is sent.
    cut : int or None
        After so many bytes of the body the connection is reset; below 0: before the head is sent.
    """

    status: int
    body: bytes | bytearray | memoryview = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """An object with its entity tag, which no other version of it has."""

    data: bytes | bytearray
    tag: str


@dataclass(slots=True)
class Objects:
    """Buckets and their objects.

    Attributes
    ----------
    folder : Path or None
        A folder whose sub-folders can be read as the first parts of keys in every bucket. They are read once.
    refusal : str or None
        What conditions are answered with, with status 501; None if they are known.
    ranges : bool
        Whether ranges are known. If not, the whole object is sent with status 200.
    """

    buckets: dict[str, dict[str, Stored]] = field(default_factory=dict)
    folder: Path | None = None
    refusal: str | None = None
    ranges: bool = True
    _uploads: dict[str, dict[int, Stored]] = field(default_factory=dict)
    _loaded: set[tuple[str, str]] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def answer(self, request: Request) -> Answer:
        """Carry a request out."""
        if request.method == "PUT" and not request.key:
            self.buckets.setdefault(request.bucket, {})
            return Answer(200)
        if request.bucket not in self.buckets:
            return error(404, "NoSuchBucket")
        self._load(request.bucket, (request.key or request.query.get("prefix", "")).partition("/")[0])
        call = getattr(self, f"_{request.method.lower()}_{'object' if request.key else 'bucket'}", None)
        answer: Answer = call(request) if call else error(405, "MethodNotAllowed")
        return answer

    def put(self, bucket: str, key: str, data: bytes | bytearray) -> Stored:
        """Store an object. Returns: it, with its new entity tag."""
        stored = self._stored(data)
        self.buckets[bucket][key] = stored
        return stored

    def _stored(self, data: bytes | bytearray) -> Stored:
        return Stored(data, f'"{next(self._numbers):032x}"')

    def _load(self, bucket: str, name: str) -> None:
        if self.folder is None or not name or (bucket, name) in self._loaded:
            return
        self._loaded.add((bucket, name))
        for path in (self.folder / name).rglob("*"):
            if path.is_file():
                self.put(bucket, path.relative_to(self.folder).as_posix(), path.read_bytes())

    # -- objects -------------------------------------------------------------------------------------------------

    def _get_object(self, request: Request) -> Answer:
        stored = self.buckets[request.bucket].get(request.key)
        if stored is None:
            return error(404, "NoSuchKey")
        headers = {"ETag": stored.tag, "Last-Modified": formatdate(MODIFIED, usegmt=True), "Accept-Ranges": "bytes"}
        if not _matches(request.headers.get("if-match"), stored.tag, default=True):
            return error(412, "PreconditionFailed")
        if _matches(request.headers.get("if-none-match"), stored.tag, default=False):
            return Answer(304, headers=headers)
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", "")) if self.ranges else None
        if asked is None or asked[0] == "bytes=-" or (asked[1] and asked[2] and int(asked[1]) > int(asked[2])):
            return Answer(200, stored.data, headers)  # what is no range is ignored
        size = len(stored.data)
        start = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
        stop = min(int(asked[2]) + 1, size) if asked[1] and asked[2] else size
        if start >= stop:
            return error(416, "InvalidRange", {"Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return Answer(206, memoryview(stored.data)[start:stop], headers)

    _head_object = _get_object

    def _put_object(self, request: Request) -> Answer:
        if "uploadId" in request.query:
            return self._put_part(request)
        data = request.body
        if source := request.headers.get("x-amz-copy-source"):
            bucket, _, key = unquote(source).lstrip("/").partition("/")
            copied = self.buckets.get(bucket, {}).get(key)
            if copied is None:
                return error(404, "NoSuchKey")
            data = copied.data
        if refused := self._refused(request):
            return refused
        tag = self.put(request.bucket, request.key, data).tag
        if not source:
            return Answer(200, headers={"ETag": tag})
        modified = f"<LastModified>{_LISTED}</LastModified>"
        return xml("CopyObjectResult", f"{modified}<ETag>{escape(tag)}</ETag>")

    def _refused(self, request: Request) -> Answer | None:
        """The answer to a change whose condition is not met."""
        wanted, absent = request.headers.get("if-match"), request.headers.get("if-none-match")
        if wanted is None and absent is None:
            return None
        if self.refusal is not None:
            return Answer(501, self.refusal.encode())
        stored = self.buckets[request.bucket].get(request.key)
        if wanted is not None and stored is None:
            return error(404, "NoSuchKey")
        if stored is None or (absent is None and _matches(wanted, stored.tag, default=True)):
            return None
        return error(412, "PreconditionFailed")

    def _delete_object(self, request: Request) -> Answer:
        if upload := request.query.get("uploadId"):
            self._uploads.pop(upload, None)
        else:
            self.buckets[request.bucket].pop(request.key, None)
        return Answer(204)

    # -- multipart uploads ---------------------------------------------------------------------------------------

    def _post_object(self, request: Request) -> Answer:
        names = f"<Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>"
        if "uploads" in request.query:
            upload = f"upload-{next(self._numbers)}"
            self._uploads[upload] = {}
            return xml("InitiateMultipartUploadResult", f"{names}<UploadId>{upload}</UploadId>")
        parts = self._uploads.get(request.query.get("uploadId", ""))
        if parts is None:
            return error(404, "NoSuchUpload")
        if refused := self._refused(request):
            return refused
        chosen = [int(n) for n in re.findall(r"<PartNumber>(\d+)</PartNumber>", request.body.decode())]
        if not chosen or any(number not in parts for number in chosen):
            return error(400, "InvalidPart")
        tag = self.put(request.bucket, request.key, b"".join(parts[number].data for number in chosen)).tag
        del self._uploads[request.query["uploadId"]]
        return xml("CompleteMultipartUploadResult", f"{names}<ETag>{escape(tag)}</ETag>")

    def _put_part(self, request: Request) -> Answer:
        parts = self._uploads.get(request.query["uploadId"])
        if parts is None:
            return error(404, "NoSuchUpload")
        parts[int(request.query["partNumber"])] = part = self._stored(request.body)
        return Answer(200, headers={"ETag": part.tag})

    # -- buckets -------------------------------------------------------------------------------------------------

    def _head_bucket(self, _: Request) -> Answer:
        return Answer(200, headers={"x-amz-bucket-region": "us-east-1"})

    def _get_bucket(self, request: Request) -> Answer:
        if "location" in request.query:
            return xml("LocationConstraint", "us-east-1")
        if request.query.get("list-type") != "2":
            return error(501, "NotImplemented")
        return xml("ListBucketResult", self._listing(request))

    def _listing(self, request: Request) -> str:
        query, objects = request.query, self.buckets[request.bucket]
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = unquote(query.get("continuation-token", "")) or query.get("start-after", "")
        most = min(int(query.get("max-keys", MAX_KEYS)), MAX_KEYS)
        shown = quote if query.get("encoding-type") == "url" else escape
        entries: dict[str, str] = {}
        for key in sorted(key for key in objects if key.startswith(prefix)):
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            name = prefix + head + delimiter if found else key
            if name in entries or name <= after:
                continue
            if len(entries) == most:
                token = f"<NextContinuationToken>{quote(next(reversed(entries)))}</NextContinuationToken>"
                return f"{''.join(entries.values())}<IsTruncated>true</IsTruncated>{token}"
            entries[name] = _common(shown(name)) if found else _contents(shown(name), objects[key])
        return f"{''.join(entries.values())}<IsTruncated>false</IsTruncated><KeyCount>{len(entries)}</KeyCount>"

    def _post_bucket(self, request: Request) -> Answer:
        if "delete" not in request.query:
            return error(501, "NotImplemented")
        names = [unescape(name) for name in re.findall("<Key>(.*?)</Key>", request.body.decode())]
        for name in names:
            self.buckets[request.bucket].pop(name, None)
        return xml("DeleteResult", "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names))


def parsed(method: str, target: str, headers: Mapping[str, str], body: bytes | bytearray) -> Request:
    """A request for a target such as ``/bucket/key?list-type=2``."""
    url = urlsplit(target)
    bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
    return Request(method, bucket, key, dict(parse_qsl(url.query, keep_blank_values=True)), headers, body)


def error(status: int, code: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer that says what is wrong."""
    return Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), headers or {})


def xml(name: str, text: str) -> Answer:
    """A document."""
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    document = f'{head}<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{text}</{name}>'
    return Answer(200, document.encode(), {"Content-Type": "application/xml"})


def _matches(condition: str | None, tag: str, *, default: bool) -> bool:
    """Whether a condition names a tag: in quotes, or without, which S3 takes, too."""
    named = [each.strip().strip('"') for each in (condition or "").split(",")]
    return default if condition is None else condition == "*" or tag.strip('"') in named


def _contents(name: str, stored: Stored) -> str:
    about = f"<ETag>{escape(stored.tag)}</ETag><Size>{len(stored.data)}</Size><StorageClass>STANDARD</StorageClass>"
    return f"<Contents><Key>{name}</Key><LastModified>{_LISTED}</LastModified>{about}</Contents>"


def _common(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
