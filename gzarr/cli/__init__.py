"""The command ``gzarr``: one file a command. Typer and Rich, which it is made of, come with the extra ``cli``."""

import sys
from collections.abc import Sequence


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command (`gzarr.cli.main.main`), or say on stderr what to install, with exit code 1."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(f"gzarr: the command needs Typer and Rich ({error}): pip install 'gzarr[cli]'", file=sys.stderr)
        return 1
    from gzarr.cli.main import main

    return main(argv)
