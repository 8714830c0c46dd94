"""Settings for all tests: Hypothesis draws the same examples every time, so that a red run is red for everyone.

``HYPOTHESIS_PROFILE=explore python -m pytest tests/properties`` looks further, at random.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Tests of the CPU are that on a machine with a GPU, too: "auto" would take it. Before gzarr reads its settings.
os.environ.setdefault("GZARR_DEVICE", "cpu")

from tests.support.servers import (  # noqa: F401 - fixtures
    azure_endpoint,
    http_server,
    mongo_port,
    redis_port,
    s3_endpoint,
    s3_options,
    slow_http_server,
)

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile(
    "gzarr", derandomize=True, deadline=None, max_examples=60, database=None, suppress_health_check=_SLOW
)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gzarr"))
