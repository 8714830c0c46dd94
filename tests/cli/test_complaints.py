"""What a command says of an error."""

from __future__ import annotations

import pytest

from gzarr.cli.complaints import complain, in_shell
from gzarr.errors import OVERWRITE, REMEDIES, REPLACE, RESUME


def test_a_list_of_reasons_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    complain("device 'cuda' cannot be used:\n- no driver: install one\n- no CuPy\nUse device='cpu'.")
    assert capsys.readouterr().err == (
        "gzarr: device 'cuda' cannot be used: no driver: install one; no CuPy. Use device='cpu'.\n"
    )


def test_remedies_are_spelled_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"pass {OVERWRITE} or {RESUME}; not_{RESUME[0]}=1 is no remedy")
    assert capsys.readouterr().err == "gzarr: pass --if-exists replace or --resume; not_resume=1 is no remedy\n"
    assert in_shell(REPLACE) == "--if-exists replace"
    assert len(set(map(in_shell, REMEDIES))) == len(REMEDIES) - 1  # one has two names in Python
