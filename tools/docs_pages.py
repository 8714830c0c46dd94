"""What MkDocs calls while it builds the site: adds pages that are made of other files, and fixes links out of docs/.

The reference has one page for each module of `tools.public_api`, with what its docstrings say. Files at the top of the
repository become pages, too. Links to sources, of which the site has no copy, become their text.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from typing import Any

from mkdocs.structure.files import File, Files

from tools.public_api import MODULES, ROOT, load, public

#: Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CORRECTNESS.md": "project/correctness.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "examples/README.md": "project/examples.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for source, target in PAGES.items():
        if target != "index.md":
            files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    for module in MODULES:
        files.append(File.generated(config, _page(module), content=_reference(module)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to where the linked files are on the site."""
    path = page.file.src_uri
    origin = next((source for source, target in PAGES.items() if target == path), f"docs/{path}")
    return _LINK.sub(lambda link: _led(link, path, origin), markdown)


def _led(link: re.Match[str], page: str, origin: str) -> str:
    """A link of a page, whose text was written for a file at ``origin``."""
    text, url = link.groups()
    target, hash_, anchor = url.partition("#")
    if not target or ":" in url.split("/")[0]:
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if place in PAGES:
        place = PAGES[place]
    elif place.startswith("docs/") and (ROOT / place).is_file():
        place = place.removeprefix("docs/")
    elif not page.startswith("reference/"):
        return text
    else:
        return link[0]
    return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{hash_}{anchor})"


def _page(module: str) -> str:
    return f"reference/{module}.md"


@cache
def _names() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {module: [] for module in MODULES}
    for path, item in public(load()):
        if not getattr(item, "is_module", False):
            names[path.rpartition(".")[0]].append(path)
    return names


def _reference(module: str) -> str:
    return "\n\n".join(
        [f"# {module}", f"What `{module}` has, in alphabetical order.", *[f"::: {name}" for name in _names()[module]]]
    )
