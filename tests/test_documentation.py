"""What the documentation shows runs: the examples of docstrings, and the Python of the README, in order."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = [p for p in sorted((ROOT / "gzarr").rglob("*.py")) if ">>> " in p.read_text()]


@pytest.mark.parametrize("path", SHOWN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_examples_of_docstrings(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


def run_blocks(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks("README.md", tmp_path, monkeypatch)


@pytest.mark.filterwarnings("ignore:.*[Cc]onsolidated metadata")
def test_the_python_of_the_ecosystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask.array")
    xarray = pytest.importorskip("xarray")
    if "gzarr" not in xarray.backends.list_engines():  # gzarr is not installed but on the path: no entry points
        from gzarr.interop.xarray import GzarrBackendEntrypoint

        find = xarray.backends.api.plugins.get_backend
        ours = GzarrBackendEntrypoint()
        monkeypatch.setattr(
            xarray.backends.api.plugins, "get_backend", lambda engine: ours if engine == "gzarr" else find(engine)
        )
    run_blocks("docs/ecosystem.md", tmp_path, monkeypatch)


def test_what_the_page_on_layouts_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its examples print what stands below them; sizes of compressed data may differ between libraries."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown = re.findall(r"```(python|text)\n(.*?)```", (ROOT / "docs/layout.md").read_text(), re.DOTALL)
    assert [kind for kind, _ in shown] == ["python", "text"] * 3
    for kind, text in shown:
        if kind == "python":
            exec(compile(text, "docs/layout.md", "exec"), names)
        else:
            assert without_numbers(capsys.readouterr().out) == without_numbers(text)


def without_numbers(text: str) -> list[str]:
    return re.sub(r"[\d.,]+[KMG]?", "#", text).split()


def test_links_of_the_documentation_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CORRECTNESS.md", *(ROOT / "docs").glob("*.md")]
    broken = []
    for page in pages:
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        broken += [f"{page.name}: {k}" for k in links if not k.startswith("http") and not (page.parent / k).exists()]
    assert not broken
