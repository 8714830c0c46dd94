"""Finalizers that read and write arrays come at every step of gzarr: nothing waits forever, nothing is lost."""

import sys

from tests.concurrency.reentrant_code import SCENARIOS
from tests.support.processes import ROOT, output_of


def test_nothing_is_lost_and_nothing_waits_when_finalizers_use_what_they_interrupt() -> None:
    command = [sys.executable, "-m", "tests.concurrency.reentrant_code"]
    assert output_of(command, timeout=3600, cwd=ROOT).count("re-entrant code came") == len(SCENARIOS)
