"""Work that several threads do at once, in threads that no code under test had a hand in."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

PATIENCE_S = 120.0


def side_by_side(task: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """What a function returns for each item, called in a thread for each. An error is raised when all have ended."""
    found: dict[int, Any] = {}
    errors: list[BaseException] = []

    def run(number: int, item: Any) -> None:
        try:
            found[number] = task(item)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=numbered, daemon=True) for numbered in enumerate(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(threads))]
