"""The commands ``gzarr tree``, ``ls`` and ``info``."""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gzarr
from gzarr.cli.options import AsJson, NodePath, colored, command, print_report
from gzarr.errors.escaping import escaped

#: Letters of an attribute that `info` shows: a description of many lines would hide all others.
_LONG = 1_000

if TYPE_CHECKING:
    from gzarr.display.info import Tree


@command("Look at data")
def tree(
    path: NodePath,
    level: Annotated[int | None, typer.Option(metavar="N", help="How many levels. By default, all.")] = None,
    stored: Annotated[bool, typer.Option("--stored", help="Also say how many bytes each array occupies.")] = False,
) -> None:
    """Draw a group and everything in it, with shapes, types, chunks and sizes.

    Examples
    --------
    $ gzarr tree data.zarr
    $ gzarr tree data.zarr/measurements --level 1
    $ gzarr tree data.zarr --stored
    """
    node = gzarr.open(path, mode="r", device="cpu")
    print(repr(_drawn(node, node.basename or "/", level, stored=stored)))


def _drawn(node: "gzarr.Array | gzarr.Group", name: str, level: int | None, *, stored: bool) -> "Tree":
    """A node and what is below it."""
    from gzarr.display.info import Tree
    from gzarr.hierarchy.group_info import trees_left_out

    if isinstance(node, gzarr.Array):
        return Tree(f"{colored(name, bold=True)} {described(node, stored=stored)}")
    members = () if level == 0 else node.members()
    below = None if level is None else level - 1
    children = [_drawn(member, inner, below, stored=stored) for inner, member in members]
    return Tree(colored(name, "blue", bold=True), [*children, *trees_left_out(node.metadata)])


def described(array: "gzarr.Array", *, stored: bool) -> str:
    """An array in a few words: ``(10, 20) int32, chunks (5, 10), 800 B``."""
    from gzarr.display.info import size_text

    facts = [f"{array.shape} {array.metadata.data_type.name}", f"chunks {array.chunks}"]
    if array.shards:
        facts.append(f"shards {array.shards}")
    facts.append(size_text(array.nbytes))
    if stored:
        facts.append(f"{size_text(array.nbytes_stored)} stored")
    return ", ".join(facts)


@command("Look at data")
def ls(
    path: NodePath,
    long: Annotated[bool, typer.Option("--long", "-l", help="Say what each array is.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Also say how many bytes each array occupies.")] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="List groups in groups as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the members of a group, one a line; names of groups end with a slash.

    Examples
    --------
    $ gzarr ls data.zarr
    $ gzarr ls data.zarr --long --stored
    $ gzarr ls data.zarr --recursive --json
    """
    from gzarr.storage.rules import without_secrets  # with NumPy, which the help does without

    node = gzarr.open(path, mode="r", device="cpu")
    members = (
        [(without_secrets(path.rstrip("/")), node)]
        if isinstance(node, gzarr.Array)
        else node.members(None if recursive else 0)
    )
    if as_json:
        print(json.dumps([_as_json(name, member) for name, member in members], indent=2))
        return
    shown = [
        (escaped(name), described(member, stored=stored))
        if isinstance(member, gzarr.Array)
        else (f"{escaped(name)}/", "group")
        for name, member in members
    ]
    width = max((len(name) for name, _ in shown), default=0)
    for name, facts in shown:
        styled = colored(name, "blue" if name.endswith("/") else None, bold=True)
        print(f"{styled}{' ' * (width - len(name))}  {facts}" if long or stored else styled)


def _as_json(name: str, node: "gzarr.Array | gzarr.Group") -> dict[str, object]:
    if isinstance(node, gzarr.Group):
        return {"name": name, "type": "group"}
    sizes = {"shape": node.shape, "dtype": node.metadata.data_type.name, "chunks": node.chunks, "shards": node.shards}
    return {"name": name, "type": "array", **sizes, "nbytes": node.nbytes}


@command("Look at data")
def info(path: NodePath, as_json: AsJson = False) -> None:
    """Describe an array or a group: shape, chunks, codecs, sizes, dimensions, attributes.

    Examples
    --------
    $ gzarr info data.zarr
    $ gzarr info data.zarr/temperature --json
    $ gzarr info s3://bucket/data.zarr
    """
    node = gzarr.open(path, mode="r", device="cpu")
    if as_json:
        print(json.dumps(_all_of(node), indent=2, default=str))
        return
    from gzarr.display.info import Report

    items = list(node.info.items)
    if isinstance(node, gzarr.Array):
        items.append(("Fill value", str(node.fill_value)))
        if node.dimension_names:
            items.append(("Dimensions", ", ".join("-" if name is None else name for name in node.dimension_names)))
    items += [("Attribute", f"{name}: {_text(name, value, node)}") for name, value in node.attrs.items()]
    print_report(Report(items))


def _text(name: str, value: Any, node: "gzarr.Array | gzarr.Group") -> str:
    """An attribute as text: what is missing as its value, and of long ones the beginning."""
    if name == "_FillValue" and isinstance(node, gzarr.Array):
        from gzarr.metadata.conventions import decode_mask

        with suppress(ValueError):
            value = decode_mask(value, node.dtype)
            value = float(str(node.dtype.type(value))) if node.dtype.kind == "f" else value  # 1e20, in few digits
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters: --json shows all)"


def _all_of(node: "gzarr.Array | gzarr.Group") -> dict[str, Any]:
    """What ``info`` says, for programs. Only this and the stored document say what the codecs are."""
    from gzarr.metadata.documents import documents

    _, document = documents(node.metadata, node.path)[-1]
    said: dict[str, Any] = {
        "type": "array" if isinstance(node, gzarr.Array) else "group",
        "store": str(node.store),
        "path": node.path,
        "zarr_format": node.metadata.zarr_format,
        "attributes": dict(node.attrs),
    }
    if isinstance(node, gzarr.Group):
        said["arrays"], said["groups"] = list(node.array_keys()), list(node.group_keys())
    else:
        said |= {
            "shape": node.shape,
            "dtype": node.metadata.data_type.name,
            "chunks": node.chunks,
            "shards": node.shards,
            "dimension_names": node.dimension_names,
            "fill_value": json.loads(document)["fill_value"],
            "nbytes": node.nbytes,
            "nbytes_stored": node.nbytes_stored,
            "nchunks": node.nchunks,
            "nchunks_initialized": node.nchunks_initialized,
        }
    return {**said, "document": json.loads(document)}
