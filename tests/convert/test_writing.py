"""New files: what they replace, and who can put something in their place."""

from pathlib import Path

from gzarr.convert.writing import replacing


def test_files_are_written_where_others_can_put_no_link(tmp_path: Path) -> None:
    with replacing(tmp_path / "x.npy", overwrite=False) as partial:
        assert partial.parent.stat().st_mode & 0o077 == 0
        partial.write_bytes(b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.npy", b"x")]
