"""Observers of what crosses between host and device."""

import contextlib
import threading

import pytest

from gzarr.profiling import transfers


class Noted(list):
    def crossed(self, what, nbytes, *, inside):
        self.append((what, nbytes, inside))


def test_observers_are_told_while_they_observe() -> None:
    first, second = Noted(), Noted()
    transfers.notify("to_host", 1)
    with transfers.observed_by(first):
        transfers.notify("to_host", 2)
        with transfers.observed_by(second):
            assert transfers.is_observed()
            transfers.notify("to_device", 3, inside=True)
        transfers.notify("synchronize")
    transfers.notify("to_host", 4)
    assert first == [("to_host", 2, False), ("to_device", 3, True), ("synchronize", 0, False)]
    assert second == [("to_device", 3, True)]
    assert not transfers.is_observed()


def test_a_thread_is_inside_by_itself() -> None:
    noted = Noted()
    with transfers.observed_by(noted):
        with transfers.inside():
            with transfers.inside():
                pass
            transfers.notify("to_host", 1)
            other = threading.Thread(target=transfers.notify, args=("to_host", 2))
            other.start()
            other.join()
        transfers.notify("to_host", 3)
    assert noted == [("to_host", 1, True), ("to_host", 2, False), ("to_host", 3, False)]


def test_an_observer_may_refuse() -> None:
    class Full:
        def crossed(self, what, nbytes, *, inside):
            raise MemoryError

    with pytest.raises(MemoryError), transfers.observed_by(Full()):
        transfers.notify("allocate", 1)
    transfers.notify("allocate", 1)


def test_libraries_are_watched_while_someone_observes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_watchers", {})
    steps = []

    @contextlib.contextmanager
    def watch():
        steps.append("begin")
        yield
        steps.append("end")

    transfers.watched_by("library", lambda: pytest.fail("replaced"))
    transfers.watched_by("library", watch)
    assert steps == []
    with transfers.observed_by(Noted()), transfers.observed_by(Noted()):
        assert steps == ["begin", "begin"]
    assert steps == ["begin", "begin", "end", "end"]


def test_the_end_of_memory_is_told_to_who_knows_its_beginning() -> None:
    first, second, third = Noted(), Noted(), Noted()
    with transfers.observed_by(third), transfers.inside():
        gone = transfers.freeing(4, inside=False)
    with transfers.observed_by(first):
        tell = transfers.freeing(8, inside=True)
        with transfers.observed_by(second):
            tell()
            gone()
    tell()
    assert first == [("free", 8, True)]
    assert second == third == []
