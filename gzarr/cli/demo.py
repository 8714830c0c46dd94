"""The command ``gzarr demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gzarr.cli.commands import command


@command("Speed")
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the map is stored.")] = Path("demo-out"),
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Store an elevation map of the Earth, read it back, check it, time it.

    Examples
    --------
    $ gzarr demo
    $ gzarr demo --out /tmp/relief --device cpu
    """
    from gzarr.demo.tour import run_tour  # here, so that other commands start without it

    run_tour(out, device)
    print("\nTo draw a picture of it, run `make demo` in a clone of gzarr's repository.")
