"""The files of tests/gpu/hardware, which run on a GPU only: what can be checked of them without one."""

import ast
import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HARDWARE = sorted((HERE / "hardware").glob("*.py"))


def imports_of(path: Path) -> list[tuple[str, str, str]]:
    """(module, name, name here) of what a file imports from gzarr and its tests."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    found = [(node.module or "", each.name, each.asname or each.name) for node in nodes for each in node.names]
    return [row for row in found if row[0].split(".")[0] in ("gzarr", "tests", "benchmarks")]


@pytest.mark.parametrize("path", HARDWARE, ids=lambda path: path.stem)
def test_what_a_file_imports_exists(path: Path) -> None:
    for module, name, _ in imports_of(path):
        found = importlib.import_module(module)
        assert name == "*" or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), (module, name)
