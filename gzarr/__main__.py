"""Makes ``python -m gzarr`` the same as the command ``gzarr``."""

import sys

from gzarr.cli import run

sys.exit(run())
