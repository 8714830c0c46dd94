"""The meter is run on a clock that the test turns."""

import pytest

from gzarr.loader.stats import LoaderStats, Meter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(meter: Meter, clock: Clock, stage: str, seconds: float) -> None:
    with meter.stage(stage):
        clock.now += seconds


@pytest.fixture
def stats() -> LoaderStats:
    clock = Clock()
    meter = Meter(3, n_chunks=10, clock=clock)
    for _ in range(2):
        spend(meter, clock, "read", 2.0)
        meter.add("chunks", 8)
        spend(meter, clock, "gather", 0.5)
        meter.add_batch(samples=60, nbytes=6000)
    spend(meter, clock, "stall", 1.0)
    meter.add("skipped", 4)
    meter.add_batch(samples=60, nbytes=6000)
    clock.now += 100  # nobody has asked for a batch since
    return meter.stats()


def test_what_was_handed_out_is_counted(stats: LoaderStats) -> None:
    assert (stats.epoch, stats.batches, stats.samples, stats.nbytes, stats.skipped) == (3, 3, 180, 18000, 4)
    assert (stats.chunks, stats.decodes) == (16, 1.6)
    assert (stats.elapsed_s, stats.samples_per_s, stats.nbytes_per_s) == (6.0, 30.0, 3000.0)
    assert (stats.read_s, stats.gather_s, stats.transform_s, stats.caller_s, stats.stall_s) == (4.0, 1.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"stall": 5.0, "read": 4.0, "gather": 1.0}, "read"),
        ({"stall": 5.0, "read": 1.0, "plan": 2.0}, "plan"),
        ({"stall": 5.0, "read": 1.0, "transform": 4.0, "caller": 5.0}, "transform"),
        ({"stall": 0.01, "read": 4.0, "caller": 1.0}, "caller"),
    ],
)
def test_the_stage_that_limits_is_named(seconds: dict[str, float], expected: str) -> None:
    clock = Clock()
    meter = Meter(0, 1, clock)
    for stage, s in seconds.items():
        spend(meter, clock, stage, s)
    meter.add_batch(1, 1)
    assert meter.stats().limited_by == expected


def fail(meter: Meter, clock: Clock) -> None:
    with meter.stage("transform"):
        clock.now += 1.0
        raise ZeroDivisionError


def test_a_stage_that_fails_is_counted() -> None:
    clock = Clock()
    meter = Meter(0, 1, clock)
    with pytest.raises(ZeroDivisionError):
        fail(meter, clock)
    assert meter.stats().transform_s == 1.0


def test_it_prints_as_a_table(stats: LoaderStats) -> None:
    assert "Decodes a chunk : 1.60 (16 decoded)" in str(stats)
    assert "limited by: read" in str(stats)
    assert "4 samples of damaged chunks" in str(stats)
    assert stats._repr_html_().startswith("<table>")
    assert "0.00 (0 decoded)" in str(Meter(0, 0).stats())


def test_the_caller_waits_no_longer_than_the_iteration_takes() -> None:
    """The wait that finds the end comes after the last batch."""
    clock = Clock()
    meter = Meter(0, 1, clock)
    spend(meter, clock, "stall", 2.0)
    meter.add_batch(1, 1)
    spend(meter, clock, "stall", 1.0)
    assert (meter.stats().stall_s, meter.stats().elapsed_s) == (3.0, 3.0)
