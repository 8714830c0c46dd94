"""The command ``gzarr gpu``."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gzarr.cli.options import AsJson, command


@command("Set up", tells=True)
def gpu(
    check: Annotated[bool, typer.Option("--check", help="Check the first GPU, even if it has passed before.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Compile all kernels, for later processes too.")] = False,
    as_json: AsJson = False,
) -> int:
    """Say what there is of GPUs, what runs on them and why, what is missing, and how to install it.

    Exits with 0 if a GPU can be used, 1 if none can, 2 if --check or --warm fail.

    Examples
    --------
    $ gzarr gpu
    $ gzarr gpu --check --warm
    $ gzarr gpu --json
    """
    from gzarr.devices import gpu_report

    report = gpu_report(check=check, warm=warm)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        from gzarr.cli.options import print_report
        from gzarr.display.info import Report

        print_report(Report([*_there(report), *_runs(report), *_missing(report)]))
    return int(not report["usable"])


def _there(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The driver, the devices, and the packages."""
    from gzarr.display.info import size_text

    driver, runs = report["driver"], report["cuda"]["the driver and the GPU"]
    yield "GPU backend", "can be used" if report["usable"] else "cannot be used: see below"
    version = f"{driver['version']}, runs" if driver and driver["version"] else "runs"
    yield "Driver", f"{version} CUDA {driver['cuda']}" if driver else "none"
    if report["visible"] is not None:
        yield "CUDA_VISIBLE_DEVICES", report["visible"] or "empty: no device is visible"
    for one in report["devices"]:
        about = f"compute capability {one['compute_capability']}, {size_text(one['nbytes'])}, UUID {one['uuid']}"
        yield "Device", f"{one['device']}, {one['name']}: {about}"
    for library in ("CuPy", "nvCOMP"):
        if (cuda := report["cuda"][library]) is not None:
            newer = f"; the driver and the GPU run CUDA {runs}, too" if runs and runs > cuda else ""
            yield library, f"built for CUDA {cuda}{newer}"
    yield "Packages", ", ".join(f"{name} {version}" for name, version in report["packages"].items())


def _runs(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What was checked, and what runs where."""
    import time

    check, kernels, small = report["self_check"], report["kernels"], report["small"]
    if check is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(check["time"]))
        old = "" if check["valid"] else ", which counts no more"
        what = "cuda:0 does otherwise than the CPU" if check["faults"] else "cuda:0 reads and writes as the CPU does"
        yield "Self-check", f"{'failed' if check['faults'] else 'passed'} on {when}{old}: {what}"
        yield from (("Fault", fault) for fault in check["faults"])
    elif report["usable"]:
        yield "Self-check", "not yet done for this GPU and its software: gzarr gpu --check"
    yield 'device="auto"', f"{report['auto']['device']}: {report['auto']['why']}"
    if not report["usable"]:
        return
    yield "Files", f"reader {report['reader']['name']!r}: {report['reader']['why']}"
    yield "On the GPU", f"{', '.join(report['codecs'])}"
    yield "On the host", "all other codecs; strings, times and records; array.placement says what runs where, and why"
    at_most = f"reads and writes of at most {small['nchunks']} chunks and {small['nbytes'] >> 10} KiB"
    yield "On the host", f"{at_most}, as a call on the device costs some hundred microseconds"
    if (seconds := kernels["compiled_s"]) is None:
        yield "Kernels", f"{kernels['number']}, each compiled when it is first needed: gzarr gpu --warm"
    else:
        yield "Kernels", f"{kernels['number']} are compiled and cached; this took {seconds} s of CPU"


def _missing(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What to install."""
    yield from (("Missing", problem) for problem in report["problems"])
    if lacks := report["reader"]["kvikio_lacks"]:
        yield "Optional", f"{lacks}; it reads local files straight into GPU memory"
