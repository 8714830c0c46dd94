"""A pytest plug-in that writes what came of each test, as JSON, to the file in ``SUITE_OUTCOMES``."""

import json
import os
from pathlib import Path
from typing import Any

_ORDER = ("passed", "skipped", "failed")
_worst: dict[str, str] = {}


def _note(nodeid: str, outcome: str) -> None:
    _worst[nodeid] = max(_worst.get(nodeid, "passed"), outcome, key=_ORDER.index)


def pytest_runtest_logreport(report: Any) -> None:
    _note(report.nodeid, report.outcome)


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _note(report.nodeid, "failed")


def pytest_sessionfinish(session: Any) -> None:
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(_worst))
