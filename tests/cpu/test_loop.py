"""The stub of the compiled loop names what the extension has."""

import ast
from pathlib import Path

import pytest

import gzarr

STUB = Path(gzarr.__file__).parent / "cpu" / "_loop.pyi"


def test_the_stub_names_what_is_there():
    loop = pytest.importorskip("gzarr.cpu._loop", exc_type=ImportError)
    nodes = ast.parse(STUB.read_text()).body
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    constants = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign)}
    assert functions | constants == {name for name in dir(loop) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["bind", "read", "write", "fetch", "put", "parse_blosc"])
def test_the_stub_counts_the_arguments(name):
    loop = pytest.importorskip("gzarr.cpu._loop", exc_type=ImportError)
    (node,) = (n for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.FunctionDef) and n.name == name)
    with pytest.raises(TypeError, match=rf"exactly {len(node.args.posonlyargs)} argument"):
        getattr(loop, name)()
