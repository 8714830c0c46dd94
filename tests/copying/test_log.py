"""The places that copies log to."""

import pytest

import gzarr
from tests.copying.scenarios import hierarchy


def test_log_takes_functions_and_file_names(tmp_path):
    source = hierarchy(gzarr)
    lines = []
    gzarr.copy(source["eggs"], gzarr.group(), log=lines.append)
    gzarr.copy(source["eggs"], gzarr.group(), log=str(tmp_path / "log.txt"))
    assert lines == ["copy /eggs (20, 30) uint8", "all done: 1 copied, 0 skipped, 600 bytes copied"]
    assert (tmp_path / "log.txt").read_text().splitlines() == lines
    with pytest.raises(TypeError, match="log must be"):
        gzarr.copy(source["eggs"], gzarr.group(), log=3)
