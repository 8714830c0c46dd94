"""What servers mean by their errors, and what to do about them."""

from __future__ import annotations


def lacks_container(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, says that there is no such bucket or container, not only no object."""
    while error is not None:  # its context may be an error of another store
        if any(word in str(error) for word in ("NoSuchBucket", "ContainerNotFound")):
            return True
        error = error.__cause__
    return False


def remedy(error: Exception, text: str, *, is_refused: bool, is_unreachable: bool) -> str:
    """What to do about an error of a server, on a line of its own; nothing if that is not known.

    text: its message. is_refused, is_unreachable: whether its class says that the server requires other credentials, or
    did not answer.
    """
    if _is_expired(text):
        return "\nThe credentials have expired: open the store with new ones (storage_options=, environment)"
    if is_refused or any(word in text for word in _CREDENTIALS):
        return (
            "\nThe server requires credentials, or rejects those given: pass them in storage_options=, set them in the"
            " environment (AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS), or pass"
            " storage_options={'anon': True} for public data"
        )
    if isinstance(error, FileNotFoundError) or lacks_container(error):
        return "\nIs the bucket or container named rightly, and does it exist?"
    if is_unreachable:
        return (
            "\nIs the server reachable, are URL and endpoint right, and does it take so many requests at once (setting"
            " remote.concurrency)?"
        )
    return ""


#: Words of servers, and of those who look for credentials.
_CREDENTIALS = ("redential", "169.254.169.254", "InvalidAccessKeyId", "AccessDenied", "Forbidden")


def _is_expired(text: str) -> bool:
    """Whether a server says that credentials were valid once: Amazon's and Google's, and what s3fs makes of it."""
    return any(words in text for words in ("ExpiredToken", "oken has expired", "Request has expired"))
