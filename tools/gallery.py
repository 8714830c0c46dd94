"""Runs the code of docs/images-gallery.md, and puts the pictures that it draws beside the page."""

import contextlib
import re
import runpy
import tempfile
from pathlib import Path

import PIL.Image

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Draw all pictures. The page's own code does it, so that they are what the code makes."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "images-gallery.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("page.py").write_text("\n".join(blocks))
        runpy.run_path("page.py")
        for drawn in Path(folder).glob("gallery-*.png"):
            with PIL.Image.open(drawn) as image:  # noise takes many bytes in many colours
                image.quantize(40).save(DOCS / drawn.name, optimize=True)


if __name__ == "__main__":
    main()
