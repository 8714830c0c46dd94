"""Builds distributions of this tree as pip does, in a copy, so that nothing is left in the tree."""

import os
import shutil
import sys
from pathlib import Path

from tests.support.processes import ROOT, output_of

_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.so")
NO_COMPILERS = {"CC": "no-such-compiler", "CXX": "no-such-compiler"}


def copy_sources(target: Path) -> Path:
    """The files that distributions are made of."""
    target.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, target)
    shutil.copytree(ROOT / "gzarr", target / "gzarr", ignore=_NOT_SOURCES)
    return target


def quick_compilers(folder: Path) -> dict[str, str]:
    """Compilers for `build` that do not optimize, which takes four fifths of the time, whatever the flags are."""
    for variable, usual in (("CC", "cc"), ("CXX", "c++")):
        (folder / variable).write_text(f'#!/bin/sh\nexec {os.environ.get(variable) or usual} "$@" -O0\n')
        (folder / variable).chmod(0o755)
    return {variable: str(folder / variable) for variable in ("CC", "CXX")}


def build(kind: str, sources: Path, target: Path, **environment: str) -> Path:
    """Build a "wheel" or an "sdist"; returns its path."""
    target.mkdir(exist_ok=True)
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    command = [sys.executable, "-c", code, str(target)]
    output_of(command, cwd=sources, env={**os.environ, **environment})
    (path,) = target.iterdir()
    return path
