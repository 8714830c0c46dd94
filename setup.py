"""What pyproject.toml cannot say: what is compiled is optional, and one build serves every Python from 3.11 on."""

import runpy
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# A free-threaded Python has no stable interface before 3.15: there the extension is built for one version.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
# The second one serves devices.
FOLDERS = ["gzarr/cpu/loop", "gzarr/gpu/native"]
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]

loop = Extension(
    "gzarr.cpu._loop",
    [str(file) for folder in FOLDERS for file in sorted(Path(folder).glob("*.c"))],
    depends=[str(file) for folder in FOLDERS for file in sorted(Path(folder).glob("*.h"))],
    define_macros=[("_GNU_SOURCE", "1"), ("_FILE_OFFSET_BITS", "64")]
    + ([("Py_LIMITED_API", "0x030B0000")] if STABLE else []),
    extra_compile_args=FLAGS,
    extra_link_args=["-Wl,-S"],  # names of functions stay for profilers; the rest of what debuggers want is 0.5 MB
    py_limited_api=STABLE,
    optional=True,  # without a compiler chunks are read and written by Python
)

# The CUDA kernels for the host, so that device="emulated" needs no compiler. No module of Python: ctypes loads it.
kernels = Extension(
    "gzarr.gpu._host_kernels",
    [],
    language="c++",
    extra_link_args=["-Wl,-S"],
    py_limited_api=STABLE,
    optional=True,  # without it they are compiled when they are first launched
)


class Build(build_ext):
    """Writes the source of the kernels before it is compiled."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension."""
        if ext is kernels:
            texts = runpy.run_path("gzarr/gpu/kernels/sources.py")
            file = Path(self.build_temp, "host_kernels.cpp")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(texts["host_source"](), encoding="utf-8")
            ext.sources = [str(file)]
            ext.extra_compile_args = [*texts["HOST_FLAGS"], "-w"]  # tests compile them with all warnings
        super().build_extension(ext)


class Wheel(bdist_wheel):
    """A wheel for the platforms that it serves best.

    Without compiled parts it would install anywhere, before a source distribution that builds them. It is therefore
    tagged for Windows, where nothing is compiled, or for the machine without a compiler that it was made on.
    """

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag that the name of the wheel ends with. Called when all files are in its folder."""
        if not any(Path(self.bdist_dir).rglob("*.so")):
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            return "py3", "none", "win32.win_amd64.win_arm64" if sys.platform == "win32" else here
        self.root_is_pure = False
        tag: tuple[str, str, str] = super().get_tag()
        return tag


setup(
    cmdclass={"bdist_wheel": Wheel, "build_ext": Build},
    ext_modules=[] if sys.platform == "win32" else [loop, kernels],  # the loop calls POSIX, MSVC refuses the kernels
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE and sys.platform != "win32" else {},
)
