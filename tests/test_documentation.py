"""What the documentation shows runs, what it links to exists, and the README stays short."""

import doctest
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.dtype
import gzarr.testing
from gzarr.config import Config
from gzarr.devices import backend_for
from gzarr.hierarchy.attributes import Attributes

ROOT = Path(__file__).parents[1]
PAGES = [p for folder in ("", "docs", "examples", ".github") for p in sorted((ROOT / folder).glob("*.md"))]
README_WORDS = 450
#: Pages whose Python needs nothing else.
CHECKED = ("checking", "dataloader", "images", "images-gallery", "lazy-views", "testing", "training", "tutorial")
#: Tests of their own run the examples of these: their packages may be missing, and nothing may fork beside JAX.
ELSEWHERE = [
    ROOT / f"gzarr/interop/{name}.py" for name in ("torch", "jax", "grain", "datasets", "ray", "opentelemetry")
]
SHOWN = [p for p in sorted((ROOT / "gzarr").rglob("*.py")) if ">>> " in p.read_text() and p not in ELSEWHERE]


@pytest.mark.parametrize("path", SHOWN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_examples_of_docstrings(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of `gzarr` and of its bridges, and the methods of the classes that users meet first."""
    for name in gzarr.__all__:
        value = getattr(gzarr, name)
        if inspect.isfunction(value):
            yield name, value
    for module in (gzarr.convert, gzarr.storage, gzarr.testing):
        for name in module.__all__:
            if inspect.isfunction(value := getattr(module, name)):
                yield f"{module.__name__}.{name}", value
    for owner in (gzarr.Array, gzarr.LazyView, gzarr.Group, Attributes, Config, gzarr.dtype.ZDType):
        for name in dir(owner):
            value = getattr(owner, name)
            if inspect.isfunction(value) and value.__module__.startswith("gzarr.") and not name.startswith("_"):
                yield f"{owner.__name__}.{name}", value
    yield "backend_for", backend_for


@pytest.mark.parametrize(("name", "function"), list(public_functions()), ids=lambda v: v if isinstance(v, str) else "")
def test_docstrings_name_the_parameters(name: str, function: Callable[..., Any]) -> None:
    """In a section of the NumPy style, unless another function with the same parameters is named."""
    text = inspect.getdoc(function) or ""
    if re.search(r": see `|whose parameters it has|: `create_array` with", text.partition("\n")[0]):
        return
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+$|\Z)", text, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^[\w*].*$", section[1], re.MULTILINE) if section else []
    named = {part.strip().lstrip("*") for line in lines for part in line.partition(" : ")[0].split(",")}
    assert set(inspect.signature(function).parameters) - {"self"} == named


def run_blocks(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", ["README.md", *[f"docs/{p}.md" for p in CHECKED]])
def test_the_python_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(page, tmp_path, monkeypatch)


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS


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


def sections(page: str) -> dict[str, str]:
    """The text below each second heading of a page."""
    _, *parts = re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.filterwarnings("ignore")  # each library's own, which differ by version
@pytest.mark.parametrize("heading", [h for h, text in sections("docs/zarr-python.md").items() if "```python" in text])
def test_the_python_under_zarr_python(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """anndata and napari need Python 3.12: their examples run where they are installed (`make test-zarr`)."""
    zarr = pytest.importorskip("zarr")
    for name in re.findall(r"^(?:import|from) (\w+)", text := sections("docs/zarr-python.md")[heading], re.MULTILINE):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with zarr.config.set({}):  # puts the pipeline back
        exec(compile("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), heading, "exec"), names)
        with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
            check_what_was_written(zarr, tmp_path)


def check_what_was_written(zarr: Any, folder: Path) -> None:
    """gzarr's pipeline wrote it: arrays are the same to zarr-python's own."""
    written = [path for path in folder.iterdir() if path.suffix == ".zarr"]
    assert written
    for path in written:
        node = zarr.open(str(path), mode="r")
        arrays = (
            [node] if hasattr(node, "shape") else [a for _, a in node.members(max_depth=None) if hasattr(a, "shape")]
        )
        for array in arrays:
            assert np.array_equal(np.asarray(array[...]), np.asarray(gzarr.open_array(path / array.path)[...])), array


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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    broken = []
    for link in links:
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        found = link.startswith("http") or path.exists()
        if found and anchor and path.suffix == ".md":
            found = anchor in anchors(path)
        broken += [] if found else [link]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:gzarr|tests|benchmarks|docs|tools|examples)/[a-z0-9_./-]+)(?:::(\w+))?`", page.read_text()
    )
    lost = [path for path, _ in named if not (ROOT / path).exists()]
    lost += [
        test for path, test in named if test and path not in lost and f"def {test}(" not in (ROOT / path).read_text()
    ]
    assert not lost


@pytest.mark.parametrize("path", [*ROOT.glob(".github/**/*.yml"), ROOT / "CITATION.cff"], ids=lambda p: p.name)
def test_forms_and_workflows_are_yaml(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_a_page_opens_with_its_title_and_a_sentence(page: Path) -> None:
    title, empty, summary = page.read_text().splitlines()[:3]
    assert title.startswith("# ")
    assert not empty
    assert not summary.startswith(("#", "|", "-", "<", "```"))
    assert page.name == "index.md" or f"]({page.name})" in (ROOT / "docs/index.md").read_text()
