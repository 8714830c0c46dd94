"""Memory to decode into is lent, and little of it is kept."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from gzarr.cpu.scratch import _spare, lent_scratch


def test_threads_leave_scratch_memory_for_as_many_as_decode_at_once() -> None:
    """Threads that wait for servers are many more than cores, and do not end."""
    _spare.clear()  # what other tests have left may be referred to from elsewhere
    n_threads = 3 * (os.cpu_count() or 1)
    meeting = threading.Barrier(n_threads + 1, timeout=60)
    lent: list[weakref.ref[Any]] = []

    def decode() -> None:
        with lent_scratch() as scratch:
            lent.append(weakref.ref(scratch.room(1 << 20).base))
            meeting.wait()
        del scratch
        meeting.wait()
        meeting.wait()

    threads = [threading.Thread(target=decode) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    meeting.wait()
    meeting.wait()
    n_kept = sum(memory() is not None for memory in lent)
    meeting.wait()
    for thread in threads:
        thread.join()
    assert len(lent) == n_threads
    assert n_kept == n_threads // 3
