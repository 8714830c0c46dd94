"""Observers of what crosses between host and device."""

from __future__ import annotations

import contextlib
import threading

import pytest

from gzarr.profiling import crossings


class Noted(list):
    def crossed(self, what, nbytes, *, inside):
        self.append((what, nbytes, inside))


def test_observers_are_told_while_they_observe() -> None:
    first, second = Noted(), Noted()
    crossings.notify("to_host", 1)
    with crossings.observed_by(first):
        crossings.notify("to_host", 2)
        with crossings.observed_by(second):
            assert crossings.is_observed()
            crossings.notify("to_device", 3, inside=True)
        crossings.notify("synchronize")
    crossings.notify("to_host", 4)
    assert first == [("to_host", 2, False), ("to_device", 3, True), ("synchronize", 0, False)]
    assert second == [("to_device", 3, True)]
    assert not crossings.is_observed()


def test_a_thread_is_inside_by_itself() -> None:
    noted = Noted()
    with crossings.observed_by(noted):
        with crossings.inside():
            with crossings.inside():
                pass
            crossings.notify("to_host", 1)
            other = threading.Thread(target=crossings.notify, args=("to_host", 2))
            other.start()
            other.join()
        crossings.notify("to_host", 3)
    assert noted == [("to_host", 1, True), ("to_host", 2, False), ("to_host", 3, False)]


def test_an_observer_may_refuse() -> None:
    class Full:
        def crossed(self, what, nbytes, *, inside):
            raise MemoryError

    with pytest.raises(MemoryError), crossings.observed_by(Full()):
        crossings.notify("allocate", 1)
    crossings.notify("allocate", 1)


def test_libraries_are_watched_while_someone_observes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossings, "_watchers", {})
    steps = []

    @contextlib.contextmanager
    def watch():
        steps.append("begin")
        yield
        steps.append("end")

    crossings.watched_by("library", lambda: pytest.fail("replaced"))
    crossings.watched_by("library", watch)
    assert steps == []
    with crossings.observed_by(Noted()), crossings.observed_by(Noted()):
        assert steps == ["begin", "begin"]
    assert steps == ["begin", "begin", "end", "end"]


def test_the_end_of_memory_is_told_to_who_knows_its_beginning() -> None:
    first, second, third = Noted(), Noted(), Noted()
    with crossings.observed_by(third), crossings.inside():
        gone = crossings.freeing(4, inside=False)
    with crossings.observed_by(first):
        tell = crossings.freeing(8, inside=True)
        with crossings.observed_by(second):
            tell()
            gone()
    tell()
    assert first == [("free", 8, True)]
    assert second == third == []
