"""The layers of the package, checked on the syntax trees: who may import whom, and what only one place may name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import gzarr
from tests.conftest import LONG

PACKAGE = Path(__file__).parents[1] / "gzarr"


@cache  # several tests look at all modules
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's syntax tree."""
    return nodes_of(path.read_text("utf-8"))


#: Lowest first. An import goes to a lower floor, or sideways inside a folder. "__init__" is the package itself.
FLOORS = (
    {"errors", "config", "concurrency"},
    {"profiling", "tensors"},
    {"dtypes", "indexing", "storage"},
    {"codecs", "dtype", "layout"},
    {"metadata", "backend"},
    {"cpu", "display"},
    {"gpu"},  # above cpu: steps that the GPU lacks run there
    {"devices", "chunk_io", "scale"},
    {"checking"},
    {"hierarchy"},
    {"api", "identity"},
    {"copying", "images", "loader", "selfcheck", "testing"},
    {"virtual"},
    {"advising", "convert", "interop"},
    {"__init__"},
    {"cli", "compat"},
    {"__main__"},
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}
GPU_LIBRARIES = {"cupy", "cupyx", "nvcomp", "nvidia", "kvikio"}
NAMES_GPU = {"gpu", "devices"}
#: The core serves both backends and is handed the one that it runs on.
CORE = {
    "indexing",
    "layout",
    "codecs",
    "dtypes",
    "metadata",
    "storage",
    "profiling",
    "backend",
    "chunk_io",
    "hierarchy",
}
#: Format differences end in metadata/ and in the JSON of fill values. Creation takes the format as an argument, an
#: array shows its codecs in the words of its format, copies convert one into the other; Xarray
#: has other defaults for each; advice has to know which has shards.
KNOWS_FORMATS = {
    "checking",
    "metadata",
    "dtype",
    "dtypes",
    "hierarchy",
    "api",
    "interop",
    "copying",
    "convert",
    "advising",
    "images",
}

#: Folders of tests that mirror no room: what they test goes through the whole house. Kernels are no Python modules.
ACROSS = {
    *("benchmarks", "concurrency", "conformance", "contracts", "examples", "faults", "properties", "reference"),
    *("gpu/driver", "gpu/hardware", "gpu/kernels", "gpu/ptx"),
}


def imported_names(path: Path) -> Iterator[str]:
    """Every dotted name that a module imports, at its top or inside functions, also through importlib."""
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = "." * level + (module or "")
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module" | "find_spec"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def part_of(module: str) -> str:
    """``gzarr.codecs.compressors`` -> ``codecs``; ``gzarr`` -> ``__init__``."""
    return [*module.split("."), "__init__"][1]


def compares_format(path: Path) -> bool:
    """Whether a module asks which format it deals with."""
    for node in nodes(path):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.subject] if isinstance(node, ast.Match) else []
        if any(getattr(side, "attr", getattr(side, "id", "")) == "zarr_format" for side in sides):
            return True
    return False


def find_violations(package: Path) -> list[str]:
    """All that is wrong with a package, as sentences."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        paths[".".join(parts).removesuffix(".__init__")] = path
    found, graph = [], {}
    for module, path in paths.items():
        part = part_of(module)
        if part not in FLOOR_OF:
            found.append(f"{module} stands on no floor: add it to the table")
            continue
        names = list(imported_names(path))
        targets = {resolve(name, paths) for name in names if name.split(".")[0] == "gzarr"}
        graph[module] = targets
        found += [f"{module} imports {name}: write absolute imports" for name in names if name.startswith(".")]
        for target in sorted(targets):
            to = part_of(target)
            if to != part and FLOOR_OF.get(to, 99) >= FLOOR_OF[part]:
                found.append(f"{module} imports {target}, which is not below it")
            if to == "gpu" and part not in NAMES_GPU:
                found.append(f"{module} names {target}: only devices may")
            if to == "cpu" and part in CORE:
                found.append(f"{module} names {target}: the core is handed a backend")
        if part != "gpu":
            found += [f"{module} imports {name}" for name in names if name.split(".")[0] in GPU_LIBRARIES]
        if part not in KNOWS_FORMATS and compares_format(path):
            found.append(f"{module} compares zarr_format: only {sorted(KNOWS_FORMATS)} may")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("circle: " + " -> ".join(error.args[1]))
    return found


def resolve(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name lies in: ``gzarr.errors.GzarrError`` -> ``gzarr.errors``."""
    if part_of(name) in FLOOR_OF and not any(part_of(module) == part_of(name) for module in modules):
        return f"gzarr.{part_of(name)}"  # a part that may be there one day, such as gzarr.gpu
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def test_the_package_keeps_to_its_floors() -> None:
    assert find_violations(PACKAGE) == []


#: Rooms that may become packages of their own one day.
APART = {"images", "convert", "advising"}
#: A room that stands on the core as they do, and is no part of it.
BESIDE = {"virtual"}
#: What they take from the core besides its public names, by room (a dot is the room itself).
SEAM = {
    "backend": ".",
    "chunk_io": "prepare",
    "codecs": "bytes chain spec",
    "concurrency": ".",
    "copying": ". arrays planning report sources transfer",
    "cpu": "threads windows",
    "devices": ".",
    "display": "info progress",
    "dtypes": ".",
    "errors": ". escaping",
    "hierarchy": "create keywords missing new_nodes node options presets reaching reductions resizing values",
    "identity": "inputs runs",
    "indexing": "chunking grid keys regions",
    "metadata": "conventions documents model occupied",
    "scale": "blocks engines parts running",
    "storage": "base extras in_place local",
    "tensors": ".",
}
#: How many names these are. They only become fewer.
MAX_SEAM = 149
#: Public modules whose names are public too.
PUBLIC = {"gzarr.errors", "gzarr.storage", "gzarr.codecs"}


def test_rooms_that_may_leave_see_the_core_through_a_seam() -> None:
    public = {f"{module}.{name}" for name, module in gzarr._HOMES.items()}
    used, names = set(), set()
    for path in (path for room in APART for path in (PACKAGE / room).rglob("*.py")):
        for name in imported_names(path):
            module, _, last = name.rpartition(".")
            own = part_of(name) in APART | BESIDE or not name.startswith("gzarr.")
            if not own and name not in public and not (module in PUBLIC and last in dir(import_module(module))):
                used.add(module.removeprefix("gzarr."))
                names.add(name)
    assert used == {f"{room}.{name}".rstrip(".") for room, modules in SEAM.items() for name in modules.split()}
    assert len(names) <= MAX_SEAM, sorted(names)


#: How many names classes of several modules share, underscores before them aside. It only becomes smaller.
MAX_SHARED_NAMES = 15


def test_class_names_that_mean_several_things_stay_few() -> None:
    modules = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                modules[node.name.lstrip("_")].add(str(path.relative_to(PACKAGE)))
    shared = {name: sorted(where) for name, where in modules.items() if len(where) > 1}
    assert len(shared) <= MAX_SHARED_NAMES, f"{len(shared)} names: give the new class another one\n{shared}"


def test_every_floor_is_named_once() -> None:
    assert sum(len(names) for names in FLOORS) == len(FLOOR_OF)


def test_nothing_looks_at_the_order_of_base_classes() -> None:
    """Stores say by objects what they can do (`gzarr.storage.base.Store`)."""
    names = {"__mro__", "mro", "getmro"}
    looks = [
        path.name for path in PACKAGE.rglob("*.py") if any(getattr(node, "attr", "") in names for node in nodes(path))
    ]
    assert looks == []


def test_no_calls_form_a_circle_among_the_files_of_the_loop() -> None:
    code = {
        path.name: re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for path in (PACKAGE / "cpu" / "loop").glob("*.c")
    }
    defined = re.compile(r"^(?!static)\w[\w *]*?\b(\w+)(?:\([^;{]*\) \{|;| = )", re.MULTILINE)
    owner = {match.group(1): name for name, text in code.items() for match in defined.finditer(text)}
    assert {"decode.c", "encode.c", "library.c", "blocks.c"} <= set(owner.values())
    used = {name: {owner[word] for word in re.findall(r"\w+", text) if word in owner} for name, text in code.items()}
    TopologicalSorter({name: names - {name} for name, names in used.items()}).prepare()


def test_locks_and_threads_come_from_one_module() -> None:
    """Those of the standard library would let finalizers wait for their own thread (`gzarr.concurrency`).

    The locks of single objects and files live as long as a write; a fork forgets their tables. What must not be forked
    halfway keeps forks waiting.
    """
    allowed = {"concurrency.py", "storage/locks.py", "storage/file_locks.py", "storage/forks.py"}
    names = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Thread", "Timer"}
    names |= {"Queue", "LifoQueue", "PriorityQueue", "ThreadPoolExecutor", "register_at_fork", "start_new_thread"}
    modules = {"threading", "_thread", "queue", "concurrent.futures", "os"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
            match node:
                case ast.ImportFrom(module=module, names=aliases) if module in modules:
                    used = {alias.name for alias in aliases}
                case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules:
                    used = {name}
                case _:
                    continue
            if used & names:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found <= allowed


def test_nothing_waits_for_a_queue_of_the_standard_library_with_a_limit() -> None:
    """A SimpleQueue may forget it: see `gzarr.concurrency.TimedQueue`."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert [name for name, text in texts.items() if ".get(timeout=" in text] == []


def test_the_house_stays_small() -> None:
    assert len(FLOORS) <= 17
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_folders_of_tests_mirror_the_rooms() -> None:
    """``tests/x/`` tests ``gzarr/x/``, but for the folders that test the whole house."""
    tests = PACKAGE.parent / "tests"
    rooms = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    across = {room for room in rooms if {*room.parts[:1], room.as_posix()} & ACROSS}
    astray = {
        room for room in rooms - across if not any((PACKAGE / room).with_suffix(end).exists() for end in ("", ".py"))
    }
    assert astray == set()


#: How many files have more than 400 lines, and which functions more than 40. Both only become fewer.
MAX_LONG_FILES = 13
LONG_FUNCTIONS = {
    "copying/transfer": "transfer_tree",
    "cpu/compiled/source": "make_loop_chain",
    "cpu/compiled/write": "_write_shard",
    "hierarchy/create": "new_array",
    "images/acquisition/writer": "__init__",
    "images/create": "create_image",
    "images/filters/overlap": "map_overlap",
    "images/filters/reducing": "reduce_blocks",
    "images/label_images": "write_label",
    "images/labels/merging": "merge_labels",
    "interop/dask": "to_zarr",
}


def test_few_files_are_long() -> None:
    sources = [path for end in ("py", "c", "h", "cu", "cuh") for path in PACKAGE.rglob(f"*.{end}")]
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in sources}
    long = {name: length for name, length in lengths.items() if length > 400}
    assert len(long) <= MAX_LONG_FILES, f"{len(long)} files of more than 400 lines: {long}"


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str
    documentation = (first.end_lineno or 0) - first.lineno + 1 if is_text else 0
    return (function.end_lineno or 0) - function.lineno + 1 - documentation


def test_no_more_functions_are_long() -> None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    long = {
        (path.relative_to(PACKAGE).with_suffix("").as_posix(), node.name)
        for path in PACKAGE.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, kinds) and length_of(node) > 40
    }
    assert long <= set(LONG_FUNCTIONS.items()), "functions of more than 40 lines"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"errors.py": "from gzarr.indexing.plan import Plan"},
            "gzarr.errors imports gzarr.indexing.plan, which is not",
        ),
        (
            {"indexing/plan.py": "from gzarr.layout import shard"},
            "gzarr.indexing.plan imports gzarr.layout.shard, which",
        ),
        ({"indexing/plan.py": "def f():\n    import gzarr"}, "gzarr.indexing.plan imports gzarr, which is not below"),
        (
            {"indexing/plan.py": "from .grid import Grid"},
            "gzarr.indexing.plan imports .grid.Grid: write absolute imports",
        ),
        ({"codecs/a.py": "import gzarr.codecs.b"}, "circle: gzarr.codecs.a -> gzarr.codecs.b -> gzarr.codecs.a"),
        ({"cpu/backend.py": "import cupy.cuda"}, "gzarr.cpu.backend imports cupy.cuda"),
        ({"cpu/backend.py": "import importlib as i\ni.import_module('kvikio')"}, "gzarr.cpu.backend imports kvikio"),
        (
            {"chunk_io/prepare.py": "import gzarr.gpu.backend"},
            "gzarr.chunk_io.prepare names gzarr.gpu.backend: only devices",
        ),
        ({"layout/shard.py": "import gzarr.cpu.backend"}, "gzarr.layout.shard names gzarr.cpu.backend: the core"),
        ({"chunk_io/engine.py": "import gzarr.cpu.backend"}, "gzarr.chunk_io.engine names gzarr.cpu.backend: the core"),
        ({"chunk_io/engine.py": "x = meta.zarr_format == 2"}, "gzarr.chunk_io.engine compares zarr_format"),
        ({"chunk_io/engine.py": "match zarr_format:\n    case 2: pass"}, "gzarr.chunk_io.engine compares zarr_format"),
        ({"misc.py": ""}, "gzarr.misc stands on no floor"),
    ],
)
def test_violations_are_found(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    sound = {
        "__init__.py": "from gzarr.api.open import open",
        "api/open.py": "import gzarr.devices\ndef open():\n    return zarr_format == 2",
        "devices.py": "def backend_for():\n    import gzarr.gpu.backend",
        "gpu/backend.py": "import cupy",
        "cpu/backend.py": "from gzarr.indexing.plan import Plan",
        "codecs/a.py": "",
        "codecs/b.py": "from gzarr.codecs.a import A",
        "errors.py": "",
        "indexing/plan.py": "from gzarr.indexing.grid import Grid",
        "indexing/grid.py": "",
        "layout/shard.py": "",
    }
    package = tmp_path / "gzarr"
    write_tree(package, sound)
    assert find_violations(package) == []
    write_tree(package, files)
    found = find_violations(package)
    assert any(sentence.startswith(expected) or same_circle(sentence, expected) for sentence in found), found


def write_tree(package: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def same_circle(one: str, other: str) -> bool:
    """Whether two sentences name the same circle: the walk may begin anywhere on it."""
    return one.startswith("circle: ") and set(one[8:].split(" -> ")) == set(other[8:].split(" -> "))


def test_what_takes_long_is_still_there() -> None:
    """Tests that have moved would run with all others."""
    for path, _, name in (place.partition("::") for place in LONG):
        found = Path(__file__).parent / path
        assert found.exists(), path
        assert not name or f"def {name}" in found.read_text("utf-8"), name
