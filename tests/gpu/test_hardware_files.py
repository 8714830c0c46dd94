"""The files of tests/gpu/hardware, which run on a GPU only: what can be checked of them without one."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HARDWARE = sorted((HERE / "hardware").glob("*.py"))


def imports_of(path: Path) -> list[tuple[str, str, str]]:
    """(module, name, name here) of what a file imports from gzarr and its tests."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    found = [(node.module or "", each.name, each.asname or each.name) for node in nodes for each in node.names]
    return [row for row in found if row[0].split(".")[0] in ("gzarr", "tests", "benchmarks")]


def names_of_tests(path: Path) -> list[str]:
    body = ast.parse(path.read_text()).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.mark.parametrize("path", HARDWARE, ids=lambda path: path.stem)
def test_what_a_file_imports_exists(path: Path) -> None:
    for module, name, _ in imports_of(path):
        found = importlib.import_module(module)
        assert name == "*" or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), (module, name)


def test_the_tests_of_every_kernel_run_on_a_gpu_too() -> None:
    imports = imports_of(HERE / "hardware" / "test_hardware_kernels.py")
    modules = {module.rpartition(".")[2] for module, _, _ in imports if ".kernels.test_" in module}
    kernels = {path.stem for path in (HERE.parents[1] / "gzarr" / "gpu" / "kernels").glob("*.cu")}
    assert modules == {f"test_{name}" for name in kernels}


def test_no_test_of_a_kernel_hides_another_on_a_gpu() -> None:
    names: Counter[str] = Counter()
    for module, name, here in imports_of(HERE / "hardware" / "test_hardware_kernels.py"):
        if ".kernels.test_" in module:
            path = HERE / "kernels" / f"{module.rpartition('.')[2]}.py"
            names.update(names_of_tests(path) if name == "*" else [here])
    assert [name for name, times in names.items() if times > 1] == []
