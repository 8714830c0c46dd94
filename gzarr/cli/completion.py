"""The command ``gzarr completion``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated, Literal

import typer

from gzarr.cli.commands import command


@command("Set up")
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"],
        typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell."),
    ],
) -> int:
    """Print a script that lets a shell complete the names of commands and options.

    Examples
    --------
    $ eval "$(gzarr completion bash)"    # in ~/.bashrc
    $ gzarr completion zsh > ~/.zfunc/_gzarr
    $ gzarr completion fish > ~/.config/fish/completions/gzarr.fish
    """
    # Typer answers such a variable instead of running a command.
    asking = {**os.environ, "_GZARR_COMPLETE": f"source_{shell}"}
    return subprocess.run([sys.executable, "-m", "gzarr"], env=asking, check=False).returncode
