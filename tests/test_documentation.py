"""What the documentation shows runs: the examples of docstrings, and the Python of the README, in order."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = [p for p in sorted((ROOT / "gzarr").rglob("*.py")) if ">>> " in p.read_text()]


@pytest.mark.parametrize("path", SHOWN, ids=lambda p: p.stem)
def test_examples_of_docstrings(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


def test_the_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def test_links_of_the_documentation_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CORRECTNESS.md", *(ROOT / "docs").glob("*.md")]
    broken = []
    for page in pages:
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        broken += [f"{page.name}: {k}" for k in links if not k.startswith("http") and not (page.parent / k).exists()]
    assert not broken
