"""Completes a job of several processes that know nothing of each other: the last one to end closes it.

Theory of operation. Each process does its part, then stores an object beside the result that says so. Whoever then
finds those of all others closes the job. Two may find that at once, so closing twice must be as good as once.
"""

from gzarr.errors import StoreError
from gzarr.indexing.keys import join_path
from gzarr.metadata.occupied import PART
from gzarr.scale.blocks import JobPart
from gzarr.storage.base import Request, Store
from gzarr.storage.foreign import is_transactional


def check_parts(store: Store) -> None:
    """Refuse a store that has no place for the notes of parts. Raises: StoreError."""
    if is_transactional(store):
        raise StoreError(
            f"{store} is one transaction, which processes cannot share: write with part= to a folder or a bucket, or "
            "leave part= out"
        )


def note_part(store: Store, path: str, part: JobPart, told: bytes = b"done") -> bool:
    """Note that a part is done, by what it shares with the others of its run. Returns: whether all are."""
    store.set(key_of(path, part), told)
    found = store.get_many([Request(key_of(path, part._replace(number=number))) for number in range(part.of)])
    return all(data is not None and bytes(data) == told for data in found)


def remove_parts(store: Store, path: str) -> None:
    """Remove the notes of all parts, and last who brings their results together: others shall find none then."""
    names = sorted(name for name in store.list_dir(path)[0] if name.startswith(PART))
    store.delete_many([join_path(path, name) for name in names])


def key_of(path: str, part: JobPart) -> str:
    """The key of the note of a part."""
    return join_path(path, f"{PART}{part.number}-of-{part.of}")
