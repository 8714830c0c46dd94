"""Questions to real hardware fail one at a time."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import questions
from gzarr.gpu.detection.detect import find_missing

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(find_missing() is None, reason="this machine has a usable GPU")
def test_questions_that_fail_or_hang_take_no_other_with_them(tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    answers = questions.ask_all(["temp_sizes"], out, 600, 600)
    assert "no usable GPU" in answers["temp_sizes"]["error"]
    assert json.loads(out.read_text()) == answers
    assert "no answer within" in questions.ask("machine", 0.01)["error"]
    assert "time was used up" in questions.ask_all(["machine"], None, 600, 0)["machine"]["error"]
