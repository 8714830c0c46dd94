"""The lists of tests that may fail in the suites of other libraries are read, matched and rewritten as documented."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
LISTS = [p for p in sorted((ROOT / "tests/support/suites").glob("*.txt")) if p.name != "requirements.txt"]
TEXT = """# Private names.
test_core.py::test_a
test_core.py::test_b[*]

# Different on purpose,
# as docs/differences.md says.
test_core.py::test_c[1-x]
"""


@pytest.fixture(scope="module")
def peer_suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peer_suites", ROOT / "tools/peer_suites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peer_suites"] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module


def test_lines_belong_to_the_reason_above_them(peer_suites: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(TEXT)
    assert peer_suites.listed(path) == {
        "# Private names.": ["test_core.py::test_a", "test_core.py::test_b[*]"],
        "# Different on purpose,\n# as docs/differences.md says.": ["test_core.py::test_c[1-x]"],
    }


def test_only_the_asterisk_is_a_wildcard(peer_suites: ModuleType) -> None:
    names = {"t.py::b[1]", "t.py::b[2-x]", "t.py::bc", "t.py::b1"}
    assert peer_suites.matching("t.py::b[*]", names) == {"t.py::b[1]", "t.py::b[2-x]"}
    assert peer_suites.matching("t.py::b[1]", names) == {"t.py::b[1]"}


def test_an_update_keeps_reasons_drops_what_passes_and_adds_what_fails(peer_suites: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(TEXT)
    failed, new = {"test_core.py::test_b[3]", "test_core.py::test_new"}, {"test_core.py::test_new"}
    peer_suites.update(path, peer_suites.listed(path), failed, set(), new)
    expected = "# Private names.\ntest_core.py::test_b[*]\n\n# to be judged\ntest_core.py::test_new\n"
    assert path.read_text() == expected
    peer_suites.update(path, peer_suites.listed(path), failed, {"test_core.py::test_b[2]"}, set())
    expected = expected.replace("*", "3")  # the wildcard would hide a test that passes
    assert path.read_text() == expected


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.name)
def test_every_test_that_may_fail_has_a_reason(path: Path, peer_suites: ModuleType) -> None:
    groups = peer_suites.listed(path)
    assert groups
    assert "" not in groups
