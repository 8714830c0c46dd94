"""What users paste into a report of a bug."""

from importlib import metadata
from types import SimpleNamespace

import gzarr
from gzarr.cpu.compiled.library import status
from gzarr.devices import describe_gpu


def lines(text):
    return dict(line.split(": ", 1) for line in text.splitlines())


def test_versions_and_states_are_printed(capsys):
    with gzarr.config.set(device="cpu"):
        gzarr.print_debug_info()
    facts = lines(capsys.readouterr().out)
    assert facts["numpy"] == metadata.version("numpy")
    assert facts["compiled loop"] == status()
    assert facts["GPU backend"] == describe_gpu()
    assert facts["device"] == "'cpu' unless given"
    assert "pytest" not in facts


def test_a_lack_of_metadata_is_no_error(capsys, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    # Not those of `metadata` itself: a module that is imported meanwhile would keep them.
    without = SimpleNamespace(version=missing, requires=missing, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr("gzarr.api.debug.metadata", without)
    gzarr.print_debug_info()
    assert lines(capsys.readouterr().out)["numpy"] == "not installed"


def test_a_gpu_is_named_or_what_it_lacks(monkeypatch):
    monkeypatch.setattr("gzarr.devices._problems", lambda kvikio: ("no driver: install it", "no CuPy"))
    assert describe_gpu() == "off: no driver: install it; no CuPy"
    monkeypatch.setattr("gzarr.devices._problems", lambda kvikio: ())
    monkeypatch.setattr("gzarr.gpu.detection.driver.device_count", lambda: 2)
    monkeypatch.setattr("gzarr.gpu.detection.driver.identify", lambda number: SimpleNamespace(name=f"GPU {number}"))
    assert describe_gpu() == "cuda:0 (GPU 0), cuda:1 (GPU 1)"
