"""Files stay open for the next reads, within the limits of the process, and are opened at once."""

from __future__ import annotations

import pytest

from gzarr.gpu.reading import files as files_module
from gzarr.gpu.reading.open_files import FileCache, Limits
from tests.gpu.direct_files import DirectFiles


def test_file_handles_are_bounded_and_closed(tmp_path) -> None:
    direct = DirectFiles()
    cache = FileCache(direct, Limits(3, 10))
    paths = [tmp_path / str(i) for i in range(10)]
    for path in paths:
        path.write_bytes(b"x")
    versions = {str(path): files_module.file_version(path.stat()) for path in paths}
    with cache.open(versions) as found:
        assert len(found) == 10
        assert direct.closed == 0  # all are in use
        cache.close()
        assert direct.closed == 0
    assert (direct.opened, direct.closed, len(cache)) == (10, 10, 0)
    for _ in range(2):
        with cache.open(dict(list(versions.items())[:3])):
            pass
    assert (direct.opened, direct.closed, len(cache)) == (13, 10, 3)
    with cache.open({str(paths[9]): versions[str(paths[9])]}):
        pass
    assert (direct.opened, direct.closed, len(cache)) == (14, 11, 3)
    paths[9].write_bytes(b"another")
    another = {str(paths[9]): (*versions[str(paths[9])][:2], 0, 0)}
    with pytest.raises(OSError, match="replaced"), cache.open(another):
        pass
    cache.close()
    assert direct.opened == direct.closed
