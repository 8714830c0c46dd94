"""Makes ``python -m gzarr`` the same as the command ``gzarr``."""

import sys

from gzarr.cli.main import main

sys.exit(main())
