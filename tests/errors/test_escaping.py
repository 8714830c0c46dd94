"""What data can make a terminal or a page do: nothing. Hostile names go through every command and every display."""

import io
import itertools
import json
import logging
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.cli.options import COMMANDS as REGISTERED
from gzarr.copying.migrating import migrate
from gzarr.display.info import Report, Tree
from gzarr.display.progress import counted
from gzarr.errors import GzarrError
from gzarr.errors.escaping import escaped, escaped_lines, in_html

#: The title of a window, a colour, a bell, a cleared line, C1's CSI, text from right to left, lines, Rich's markup.
BAD = "\x1b]0;owned\x07\x1b[31m\r\x7f\x9b2J\u202e\u2066\u2028\n[red]"
NAMES = {"array": f"a{BAD}", "group": f"g{BAD}", "image": f"i{BAD}"}
ROWS = np.arange(64, dtype="u2").reshape(8, 8)


def strange(text: str, allowed: str = "\n") -> set[str]:
    """The characters of a text that do something other than print."""
    return {c for c in text if c not in allowed and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def edit(path: Path, **fields: Any) -> None:
    """Change a document as no program of good will does."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose nodes, attributes, dimensions, units, channels and codecs have hostile names."""
    from gzarr.images import create_image

    folder = tmp_path_factory.mktemp("hostile") / f"d{BAD}"
    group = gzarr.open_group(folder, mode="w", attributes={BAD: BAD})
    group.create_array(NAMES["array"], data=ROWS, chunks=(4, 4), dimension_names=(BAD, "x"), attributes={BAD: [BAD]})
    group.create_group(NAMES["group"], attributes={BAD: {BAD: BAD}}).create_array(BAD.strip(), data=["x", BAD])
    gzarr.create_array(folder.parent, name=f"odd{BAD}", data=ROWS)
    edit(folder.parent / f"odd{BAD}/zarr.json", codecs=[{"name": BAD, "configuration": {BAD: BAD}}])
    gzarr.create_array(folder.parent, name=f"damaged{BAD}", data=ROWS, chunks=(4, 4))
    (folder.parent / f"damaged{BAD}/c/0/0").write_bytes(b"damaged")
    (folder / NAMES["array"] / f"leftover{BAD}").write_bytes(b"x")
    image = create_image(group, ROWS, axes="yx", path=NAMES["image"], units=None)
    image.group.attrs["ome"] = _hostile_image(image.group.attrs["ome"])
    gzarr.save_array(folder / f"v2{BAD}", ROWS, zarr_format=2, chunks=(4, 4))
    return folder


def _hostile_image(ome: dict[str, Any]) -> dict[str, Any]:
    multiscale = {**ome["multiscales"][0], "name": BAD}
    multiscale["axes"] = [{**axis, "unit": BAD} for axis in multiscale["axes"]]
    channel = {"label": BAD, "color": BAD, "window": {"start": 0, "end": 9, "min": 0, "max": 9}, "active": True}
    return {**ome, "multiscales": [multiscale], "omero": {"channels": [channel]}}


COMMANDS: dict[str, list[str]] = {
    "info": ["info", "{root}"],
    "info of an array": ["info", "{array}"],
    "info --json": ["info", "{array}", "--json"],
    "tree": ["tree", "{root}", "--stored"],
    "ls": ["ls", "{root}", "--long", "--recursive"],
    "ls of an array": ["ls", "{array}", "--stored"],
    "ls --json": ["ls", "{root}", "--json"],
    "stats": ["stats", "{array}"],
    "stats of a group": ["stats", "{root}"],
    "stats of damage": ["stats", "{damaged}"],
    "histogram": ["histogram", "{array}", "--bins", "3"],
    "quicklook": ["quicklook", "{array}", "{out}.png"],
    "quicklook at no axis": ["quicklook", "{array}", "{out}.png", "--at", "{bad}=3"],
    "quicklook of a group": ["quicklook", "{group}", "{out}.png"],
    "serve": ["serve", "{root}/none{bad}"],
    "verify": ["verify", "{root}"],
    "verify --json": ["verify", "{root}", "--json"],
    "verify --repair": ["verify", "{root}", "--repair", "chunks,leftovers"],
    "verify --remove": ["verify", "{root}", "--remove", "{bad}"],
    "compare": ["compare", "{root}", "{array}"],
    "compare groups": ["compare", "{root}", "{group}", "--strict"],
    "copy": ["copy", "{array}", "{out}"],
    "copy --dry-run": ["copy", "{group}", "{out}", "--dry-run"],
    "copy onto it": ["copy", "{array}", "{root}"],
    "copy of damage": ["copy", "{damaged}", "{out}", "--chunks", "2,2"],
    "convert": ["convert", "{array}", "{out}.npy"],
    "convert to HDF5": ["convert", "{root}", "{out}.h5"],
    "convert of nothing": ["convert", "{out}{bad}", "{out}"],
    "migrate": ["migrate", "{v2}", "--dry-run"],
    "consolidate": ["consolidate", "{root}/none{bad}"],
    "advise": ["advise", "{root}"],
    "advise --apply": ["advise", "{array}", "--apply", "{out}"],
    "bench": ["bench", "{array}", "--seconds", "0"],
    "bench of codecs": ["bench", "{odd}", "--seconds", "0"],
    "ome info": ["ome", "info", "{image}"],
    "ome validate": ["ome", "validate", "{root}"],
    "ome validate --data": ["ome", "validate", "{image}", "--data"],
    "ome pyramid": ["ome", "pyramid", "{image}", "--levels", "{bad}"],
    "ome convert": ["ome", "convert", "{array}", "{out}", "--axes", "yx"],
    "ome thumbnail": ["ome", "thumbnail", "{image}", "{out}.png", "--channels", "{bad}"],
    "an option": ["info", "{array}", "--{bad}"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_no_controls(
    name: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"root": str(root), "out": str(tmp_path / f"out{BAD}"), "bad": BAD, "v2": str(root / f"v2{BAD}")}
    places |= {"odd": str(root.parent / f"odd{BAD}"), "damaged": str(root.parent / f"damaged{BAD}")}
    places |= {key: str(root / value) for key, value in NAMES.items()}
    monkeypatch.setenv("COLUMNS", "200")
    try:
        main([argument.format(**places) for argument in COMMANDS[name]])
    except SystemExit:
        assert "an option" in name or "{bad}" in str(COMMANDS[name])
    printed = capsys.readouterr()
    assert printed.out + printed.err
    assert not strange(printed.out + printed.err)
    for line in (printed.out + printed.err).splitlines():
        assert not line.startswith("[red]")


def test_every_command_is_among_them() -> None:
    names = {command.function.__name__ for command in REGISTERED if command.heading}
    of_images = {command.function.__name__ for command in REGISTERED if not command.heading}
    tried = {words[0] for words in COMMANDS.values()} - {"ome"}
    assert names - tried == {"gpu"}  # which shows nothing of anyone's
    assert of_images == {words[1] for words in COMMANDS.values() if words[0] == "ome"}


def _shown_things(root: Path) -> Iterator[Any]:
    from gzarr.images import open_image, validate

    group = gzarr.open_group(root, mode="r")
    array, inner = group[NAMES["array"]], group[NAMES["group"]]
    image = open_image(root / NAMES["image"], "r")
    yield from (group, array, inner, inner[BAD.strip()], group.attrs, array.attrs, array.attrs[BAD])
    yield from (group.info, array.info, array.placement, group.tree(), gzarr.tree(group, level=1))
    yield from (group.store, array.store_path, repr(array.store_path), array.metadata, group.metadata)
    yield from (image, image.labels, image.axes, image.channels, validate(root), gzarr.advise(root))
    found = gzarr.verify(root)
    yield from (found, *found.problems, *found.leftover_files, gzarr.repair(root, "chunks", "leftovers"))
    differing = gzarr.compare(root, root / NAMES["group"], strict=True)
    yield from (differing, *differing.differences, *differing.layout)
    report = gzarr.transfer(array, gzarr.MemoryStore(), path=f"x{BAD}", dry_run=True)
    yield from (report, *report.arrays)
    yield migrate(root / f"v2{BAD}", dry_run=True)
    loader = gzarr.Loader({BAD: array}, batch_size=2)
    yield from (loader, loader.summary())
    yield gzarr.storage.LoggingStore(group.store)


@pytest.mark.filterwarnings("ignore")
def test_what_is_shown_has_no_controls(root: Path) -> None:
    for thing in _shown_things(root):
        texts = {"repr": repr(thing), "html": getattr(thing, "_repr_html_", str)()}
        if not isinstance(thing, (str, gzarr.storage.Store, gzarr.storage.StorePath)):  # whose text names a place
            texts["str"] = str(thing)
        for kind, text in texts.items():
            assert kind != "html" or "_repr_html_" not in dir(thing) or "<script" not in text
            if kind != "html" or hasattr(thing, "_repr_html_"):
                assert not strange(text), (type(thing), kind, text)


FAILING: dict[str, Callable[[Any], Any]] = {
    "a missing member": lambda group: group[BAD],
    "a missing node": lambda group: gzarr.open(group.store, path=BAD, mode="r"),
    "a damaged chunk": lambda group: gzarr.open_array(Path(str(group.store)[7:]).parent / f"damaged{BAD}")[:],
    "a codec": lambda group: gzarr.open_array(Path(str(group.store)[7:]).parent / f"odd{BAD}"),
    "a node that is there": lambda group: gzarr.open_group(str(group.store)).create_array(
        NAMES["array"], shape=3, dtype="i4"
    ),
    "a read-only group": lambda group: group.create_group(BAD),
    "an index": lambda group: group[NAMES["array"]][99],
    "a data type": lambda group: gzarr.create_array(gzarr.MemoryStore(), shape=3, dtype=BAD),
    "a codec of a caller": lambda group: gzarr.create_array(gzarr.MemoryStore(), shape=3, dtype="i4", compressors=BAD),
    "a field": lambda group: group[NAMES["array"]][BAD],
    "a key": lambda group: group.store.get(f"../{BAD}"),
}


@pytest.mark.parametrize("what", FAILING)
def test_errors_have_no_controls(what: str, root: Path) -> None:
    group = gzarr.open_group(root, mode="r")
    with pytest.raises(Exception) as failed:
        FAILING[what](group)
    shown = "".join(traceback.format_exception_only(failed.value)) + str(failed.value) + repr(failed.value)
    assert not strange(shown), shown


def test_a_message_keeps_its_own_lines_and_is_pickled_as_it_is() -> None:
    import pickle

    error = gzarr.ChunkError(f"bad\n{BAD}", path=BAD, key=BAD)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert not strange(str(error))
    assert str(GzarrError("a\nb\x1b")) == "a\nb\\x1b"
    assert error.path == BAD


def test_bars_and_logs_show_no_controls(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "200")
    with counted(True, 10) as add:
        add(10, BAD)
    assert "owned" in screen.getvalue()
    assert "[red]" in screen.getvalue()
    assert not any(bad in screen.getvalue() for bad in ("\x1b]0;", "\x07", "\x9b", "\u202e", "\u2028", "\r\x7f"))
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(handler.format(record))  # type: ignore[method-assign]
    store = gzarr.storage.LoggingStore(gzarr.open_group(root, mode="r").store, log_handler=handler)
    try:
        store.get(NAMES["array"] + "/zarr.json")
        assert records
        assert not strange("".join(records))
    finally:
        logging.getLogger("gzarr.storage").removeHandler(handler)
    with io.StringIO() as lines:
        gzarr.copy_store(store, gzarr.MemoryStore(), log=lines)
        assert not strange(lines.getvalue())


def test_a_command_in_a_terminal_colours_names_and_not_as_they_say(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzarr.cli.options.os.environ", {})
    for command in (["tree"], ["ls", "-l"], ["info"]):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        main([*command, str(root)])
        printed = capsys.readouterr().out
        assert "\x1b[1m" in printed or "\x1b[36m" in printed
        assert not any(bad in printed for bad in ("\x1b]0;", "\x07", "\x9b", "\u202e", "\u2028", "\r"))


def test_letters_of_all_languages_stay() -> None:
    for text in ("größe", "温度", "температура", "درجة", "µm · Å", "a\\x1b", "👩‍🔬", "zero\u200bwidth"):
        assert escaped(text) == escaped_lines(text) == text
    assert escaped("a\nb\tc\x1b\x9b\u202e\ud800") == "a\\nb\\tc\\x1b\\x9b\\u202e\\ud800"
    assert escaped_lines("a\nb\x1b") == "a\nb\\x1b"
    assert in_html("<b>\x1b&\u202e") == "&lt;b&gt;\\x1b&amp;\\u202e"


def test_pages_have_no_controls_and_no_markup_of_names() -> None:
    page = Report([(f"<i>{BAD}", f"<script>{BAD}")])._repr_html_() + Tree(escaped(f"<b>{BAD}"))._repr_html_()
    assert not strange(page)
    assert not any(tag in page for tag in ("<b>", "<i>", "<script>"))


def test_every_control_is_escaped() -> None:
    every = map(chr, itertools.chain(range(32), range(127, 160), range(0x202A, 0x202F), range(0x2066, 0x206A)))
    more = ["\u2028", "\u2029", "\u200e", "\u200f", "\u061c", "\ud800", "\udcff", "\udfff"]
    assert [c for c in (*every, *more) if not escaped(c).startswith("\\")] == []
