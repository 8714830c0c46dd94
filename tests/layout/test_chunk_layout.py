"""The layout in which every chunk is an object."""

from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import KeyEncoding
from gzarr.layout.chunk_layout import Layout, Names
from gzarr.storage import MemoryStore, Request


def test_chunks_of_an_unsharded_layout_are_objects() -> None:
    grid = (RegularAxis(10, 4),)
    layout = Layout(grid, grid, Names("", KeyEncoding()))
    assert layout.objects is layout.grid
    assert layout.locate(MemoryStore(), (2,)).located("c/2", [(2,)]) == [Request("c/2")]
    assert layout.extract(b"x", (2,), [(2,)]) == [b"x"]
    assert layout.build(b"old", (2,), {(2,): b"new"}) == b"new"
    assert layout.build(b"old", (2,), {(2,): None}) is None
    assert layout.is_whole((2,), 1)
    assert layout.initialized(MemoryStore(), (2,)) == 1
