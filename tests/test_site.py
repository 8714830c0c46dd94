"""The documentation site builds without a warning, and its notebook runs."""

import os
import re
import sys
from pathlib import Path

from tests.support.processes import ROOT, output_of
from tools.public_api import MODULES


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    output_of(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)})
    reference = (tmp_path / "site/reference/gzarr.html").read_text()
    assert all(
        f'id="gzarr.{name}"' in reference for name in ("open_array", "Array", "Array.vindex", "Loader", "config")
    )
    assert all((tmp_path / f"site/reference/{module}.html").exists() for module in MODULES)
    assert (tmp_path / "site/gallery.html").read_text().count("data:image/png") >= 4  # the notebook was run


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = set(re.findall(r"([\w./-]+\.(?:md|ipynb))\s", nav))
    pages = {p.name for p in (ROOT / "docs").iterdir() if p.suffix in (".md", ".ipynb")}
    assert pages <= listed
    assert {f"reference/{module}.md" for module in MODULES} <= listed
