"""Keeps users, passwords and tokens of URLs out of what other libraries print: their logs, and errors that cause ours.

What stands before an @ in a URL of HTTP becomes a header, so that no library has it in a URL. Parameters of a URL, such
as the signatures of Azure and S3, must stay in it: they are removed from the records of fsspec's loggers, and errors
with them do not become causes.
"""

import base64
import logging
import re
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from gzarr.errors.escaping import escaped_lines
from gzarr.storage.rules import without_secrets

_USER = re.compile(r"(https?://)([^/?#\s]*)@", re.IGNORECASE)
#: fsspec's loggers that write URLs.
_LOGGERS = ("fsspec", "fsspec.http", "fsspec.cached", "fsspec.reference", "fsspec.generic", "fsspec.mapping")


def without_user(url: str) -> tuple[str, dict[str, str]]:
    """A URL of HTTP without user and password, and the header that says them. Source: RFC 7617, section 2."""
    found = _USER.match(url)
    if found is None:
        return url, {}
    user, _, password = found[2].partition(":")
    token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return found[1] + url[found.end() :], {"Authorization": f"Basic {token}"}


def without_users(url: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The same for every part of a chain of fsspec, with its options and the headers among them."""
    parts, given = url.split("::"), dict(options)
    for number, part in enumerate(parts):
        parts[number], header = without_user(part)
        if header:
            scheme = part.partition(":")[0].lower()
            own = given if len(parts) == 1 else given.setdefault(scheme, {})
            with_header = {**own, "headers": {**header, **own.get("headers", {})}}
            given = with_header if len(parts) == 1 else {**given, scheme: with_header}
    return "::".join(parts), given


def shown_cause(error: BaseException) -> BaseException | None:
    """An error, to be the cause of one of ours; None if it, or what caused it, shows secrets of a URL or controls."""
    cause: BaseException | None = error
    while cause is not None:
        text = f"{cause} {cause!r}"
        if escaped_lines(without_secrets(text)) != text:
            return None
        cause = cause.__cause__ or cause.__context__
    return error


class _WithoutSecrets(logging.Filter):
    """Removes secrets of URLs from records, and from the errors that they tell of."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        if without_secrets(text) != text:
            record.msg, record.args, record.exc_info = without_secrets(text), None, None
        return True


_filter = _WithoutSecrets()


def guard_logs() -> None:
    """Remove secrets of URLs from what fsspec logs from now on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)
