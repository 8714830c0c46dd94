"""The binding of nvCOMP against the library itself, without a device: tables, struct layouts, refusals, loading.

No call of these tests reaches a kernel: where it could (on a machine with a driver), it is not made.
"""

import ctypes
import dataclasses
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.errors import DeviceError
from gzarr.gpu.device import nvcomp
from gzarr.gpu.device.nvcomp_tables import (
    CODECS,
    OPTIONS_NBYTES,
    STATUS_TEXT,
    bound_compress_temp_nbytes,
    check_batch,
    compress_alignment,
    compress_options,
    decompress_temp_nbytes,
)
from tests.support.processes import ROOT, output_of, run_python

NAMES = sorted(CODECS)
STATUSES = [0, *range(10, 25), 1000, 10000]


def why_no_library() -> str:
    """The reason to skip what needs the library; empty if it is there."""
    try:
        nvcomp.load()
    except DeviceError as error:
        return str(error)
    return ""


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


needs_library = pytest.mark.skipif(bool(why_no_library()), reason=why_no_library() or "nvCOMP is there")
needs_no_driver = pytest.mark.skipif(has_driver(), reason="with a driver this call would start a kernel")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to make a stand-in library with")


def with_field(options: bytes, offset: int, value: int) -> bytes:
    """Options with one int replaced."""
    return options[:offset] + value.to_bytes(4, "little", signed=True) + options[offset + 4 :]


def patched(monkeypatch: pytest.MonkeyPatch, codec: str, **changes: object) -> None:
    """Change a codec's table for one test, as `codec_of` sees it."""
    table = dataclasses.replace(CODECS[codec], **changes)
    monkeypatch.setattr("gzarr.gpu.device.nvcomp_tables.CODECS", {**CODECS, codec: table})


class Scene:
    """Arguments of `decompress_async` and `compress_async` that are all right but for the missing device."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(1 << 20)
        self.base = -(-ctypes.addressof(self.memory) // 4096) * 4096

    def decompress(self, codec: str, **changes: int) -> None:
        at = self.base
        batch = nvcomp.StreamBatch(at, at + 64, 1, at + 4096, 1 << 16, at + 256, at + 192, at + 320)
        capacities = changes.pop("out_capacities", at + 128)
        nvcomp.decompress_async(codec, batch._replace(**changes), capacities)

    def compress(self, codec: str, **changes: int) -> None:
        at = self.base
        batch = nvcomp.StreamBatch(at, at + 64, 1, at + 4096, 1 << 19, at + 256, at + 192, at + 320)
        max_chunk, options = changes.pop("max_chunk", 64), changes.pop("options", None)
        nvcomp.compress_async(codec, batch._replace(**changes), max_chunk, options)

    def crc32c(self, **changes: int) -> None:
        at = self.base
        arguments = {"ptrs": at, "sizes": at + 64, "n": 1, "max_nbytes": 64, "out": at + 128, "statuses": at + 192}
        nvcomp.crc_async("crc32c", **({"stream": 0} | arguments | changes))


@needs_library
def test_the_library_is_of_the_version_that_the_signatures_are_of() -> None:
    assert nvcomp.version()[0] == nvcomp.MAJOR


@needs_library
@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("compress", [False, True])
def test_alignments_are_what_the_library_says(codec: str, compress: bool) -> None:
    table = CODECS[codec]
    expected = compress_alignment(codec) if compress else table.alignment
    assert nvcomp.query_alignment(codec, compress=compress) == expected


@needs_library
@pytest.mark.parametrize("codec", NAMES)
def test_scratch_is_what_the_library_says(codec: str) -> None:
    rng, limit = random.Random(codec), CODECS[codec].max_decompressed_nbytes
    edges = [(1, 0, 0), (1, limit, limit), (CODECS[codec].max_batch, 1, CODECS[codec].max_batch)]
    edges += [(n, 1 << 16, (1 << 17) * n + d) for n in (1, 2, 3, 1000) for d in (-1, 0, 1, 65535, 65536, 65537)]
    drawn = [(int(2 ** rng.uniform(0, 29)), rng.randint(0, limit), int(2 ** rng.uniform(0, 44))) for _ in range(3000)]
    for n, largest, total in edges + drawn:
        asked = nvcomp.query_temp_nbytes(codec, n, largest, total)
        assert asked == decompress_temp_nbytes(codec, n, largest, total), (n, largest, total)


@needs_library
@pytest.mark.parametrize("codec", NAMES)
def test_the_largest_decompressed_chunk_is_the_librarys(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = CODECS[codec].max_decompressed_nbytes
    nvcomp.query_temp_nbytes(codec, 1, limit, limit)
    patched(monkeypatch, codec, max_decompressed_nbytes=limit + 1)
    with pytest.raises(DeviceError, match="status 18"):
        nvcomp.query_temp_nbytes(codec, 1, limit + 1, limit + 1)


@needs_library
@pytest.mark.parametrize("codec", NAMES)
def test_the_largest_batch_is_the_librarys(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, codec, max_batch=1 << 40)
    for refused in (1 << 31, (1 << 32) + 1):
        with pytest.raises(DeviceError, match="status 21"):
            Scene().decompress(codec, n=refused)
        with pytest.raises(DeviceError, match="status 21"):
            Scene().compress(codec, n=refused)


@needs_library
@pytest.mark.parametrize("codec", NAMES)
def test_the_decoder_is_chosen_by_the_first_field_of_the_options(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CODECS[codec].decompress_options
    assert options[:4] == (2).to_bytes(4, "little")
    for unknown in (3, 77, -1):
        patched(monkeypatch, codec, decompress_options=with_field(options, 0, unknown))
        for call in (
            lambda: nvcomp.query_alignment(codec),
            lambda: nvcomp.query_temp_nbytes(codec, 1, 64, 64),
            lambda: Scene().decompress(codec),
        ):
            with pytest.raises(DeviceError, match=r"status 1[01]\b"):
                call()


@needs_library
@pytest.mark.parametrize(
    ("codec", "offset", "value"),
    [("lz4", 12, 99), ("gzip", 4, 99), ("ans", 4, 99), ("ans", 8, 99), ("cascaded", 12, 99)],
)
def test_later_fields_of_the_options_lie_where_the_library_reads_them(
    codec: str, offset: int, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcomp.query_temp_nbytes(codec, 1, 64, 64)
    options = with_field(CODECS[codec].decompress_options, offset, value)
    patched(monkeypatch, codec, decompress_options=options)
    for call in (lambda: nvcomp.query_temp_nbytes(codec, 1, 64, 64), lambda: Scene().decompress(codec)):
        with pytest.raises(DeviceError, match=r"status 1[01]\b"):
            call()


@needs_library
@pytest.mark.parametrize(
    ("codec", "offset"),
    [
        *(("lz4", at) for at in (0, 4)),
        *((name, 0) for name in ("deflate", "gdeflate", "gzip")),
        *(("ans", at) for at in (0, 4)),
        *(("bitcomp", at) for at in (0, 4, 16)),
        *(("cascaded", at) for at in (0, 4)),
    ],
)
def test_options_of_compression_lie_where_the_library_reads_them(codec: str, offset: int) -> None:
    options = with_field(CODECS[codec].compress_options, offset, 99)
    with pytest.raises(DeviceError, match=r"status 1[01]\b"):
        nvcomp.compress_max_nbytes(codec, 1000, options)
    with pytest.raises(DeviceError, match=r"status 1[01]\b"):
        nvcomp.compress_temp_nbytes(codec, 1, 1000, 1000, options)


@needs_library
@needs_no_driver
@pytest.mark.parametrize("codec", NAMES)
def test_right_arguments_are_stopped_by_nothing_but_the_missing_device(codec: str) -> None:
    for call in (Scene().decompress, Scene().compress):
        with pytest.raises(DeviceError, match=r"no usable device .*status 1000"):
            call(codec)


@needs_library
@needs_no_driver
def test_right_arguments_of_crc32c_are_stopped_by_nothing_but_the_missing_device() -> None:
    with pytest.raises(DeviceError, match=r"HeuristicConf: .*no usable device .*status 1000"):
        Scene().crc32c()


@needs_library
@pytest.mark.parametrize("codec", ["zstd", "bitcomp"])
def test_misaligned_scratch_is_refused(codec: str) -> None:
    with pytest.raises(DeviceError, match=r"not aligned .*status 17"):
        Scene().decompress(codec, temp=Scene().base + 4097)


@pytest.mark.parametrize("codec", NAMES)
def test_an_empty_batch_is_refused_before_the_library_sees_it(codec: str) -> None:
    for call in (
        lambda: Scene().decompress(codec, n=0),
        lambda: Scene().compress(codec, n=0),
        lambda: nvcomp.query_temp_nbytes(codec, 0, 64, 0),
        lambda: decompress_temp_nbytes(codec, 0, 64, 0),
        lambda: nvcomp.compress_temp_nbytes(codec, 0, 64, 0),
    ):
        with pytest.raises(DeviceError, match=f"nvCOMP {codec}: a batch of 0 streams; .* skip empty batches"):
            call()
    with pytest.raises(DeviceError, match=r"a batch of 0 ranges; .* skip empty batches"):
        Scene().crc32c(n=0)


def test_batches_beyond_the_limits_are_refused_before_the_library_sees_them() -> None:
    limit = CODECS["ans"].max_decompressed_nbytes
    check_batch("ans", 1, limit)
    with pytest.raises(DeviceError, match=f"a chunk of {limit + 1} decompressed bytes; the limit is {limit}"):
        decompress_temp_nbytes("ans", 1, limit + 1, limit + 1)
    with pytest.raises(DeviceError, match=f"a batch of {1 << 30} streams; it takes 1 to {(1 << 30) - 1}"):
        decompress_temp_nbytes("zstd", 1 << 30, 1, 1 << 30)
    with pytest.raises(DeviceError, match="cannot compress a chunk of 65537 bytes; the limit is 65536"):
        nvcomp.compress_max_nbytes("deflate", 65537)
    with pytest.raises(DeviceError, match="nvCOMP has no codec 'blosc'; it has ans, bitcomp"):
        decompress_temp_nbytes("blosc", 1, 1, 1)


@needs_library
@pytest.mark.parametrize("codec", NAMES)
def test_bounds_of_compressed_chunks_are_what_the_library_says(codec: str) -> None:
    rng, limit = random.Random(codec), min(CODECS[codec].max_compress_nbytes, 1 << 24)
    exact = codec in {"bitcomp", "cascaded", "gzip", "lz4", "snappy", "zstd"}
    drawn = [int(2 ** rng.uniform(0, limit.bit_length() - 1)) for _ in range(99)]
    for nbytes in [*range(1, 700), 65535, 65536, *drawn]:
        asked, bound = nvcomp.compress_max_nbytes(codec, nbytes), CODECS[codec].compress_bound(nbytes)
        assert asked == bound if exact else asked <= bound <= 2 * asked + 3000, nbytes


@needs_library
@pytest.mark.parametrize("codec", [name for name in NAMES if name != "zstd"])  # zstd needs a device to answer
def test_scratch_for_compression_is_at_most_what_the_tables_say(codec: str) -> None:
    for n, nbytes in [(n, nbytes) for n in (1, 10, 1000) for nbytes in (1, 1000, 1 << 16)]:
        asked, bound = nvcomp.compress_temp_nbytes(codec, n, nbytes, n * nbytes), bound_compress_temp_nbytes
        assert asked <= bound(codec, n, nbytes) <= asked + 0.001 * asked + 64


@needs_library
@pytest.mark.parametrize("typesize", [1, 2, 4, 8])
@pytest.mark.parametrize("codec", NAMES)
def test_encoders_of_numbers_want_them_aligned(codec: str, typesize: int) -> None:
    options = compress_options(codec, typesize)
    assert nvcomp.query_alignment(codec, compress=True, typesize=typesize) == compress_alignment(codec, typesize)
    assert nvcomp.compress_max_nbytes(codec, 4096, options) == nvcomp.compress_max_nbytes(codec, 4096)
    if codec in {"bitcomp", "cascaded"}:
        assert compress_alignment(codec, typesize).input == typesize
        with pytest.raises(DeviceError, match="numbers of 3 bytes; it has those of 1, 2, 4 and 8"):
            compress_options(codec, 3)


@needs_library
@pytest.mark.parametrize("codec", ["lz4", "snappy", "ans", "bitcomp", "cascaded"])
def test_the_largest_chunk_to_compress_is_the_librarys(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = CODECS[codec].max_compress_nbytes
    nvcomp.compress_max_nbytes(codec, limit)
    patched(monkeypatch, codec, max_compress_nbytes=limit + 1)
    with pytest.raises(DeviceError, match="status 18"):
        nvcomp.compress_max_nbytes(codec, limit + 1)


@needs_library
def test_the_model_of_crc32c_lies_where_the_library_reads_it() -> None:
    function = nvcomp._function("nvcompBatchedCRC32Async", "CRC32Async")
    at, good = Scene().base, [0, 4, 1]
    for field, unknown in ((0, 9), (1, 3), (1, -1)):  # kernel kind, bytes a read
        words = [*good]
        words[field] = unknown
        configuration = b"".join(word.to_bytes(4, "little", signed=True) for word in words).ljust(32, b"\0")
        assert (
            function(at, at, 1, at, nvcomp._crc_options(nvcomp._POLYNOMIALS["crc32c"], configuration), 0, at, 0) == 11
        )
    options = nvcomp._crc_options(nvcomp._POLYNOMIALS["crc32c"], b"\0\0\0\0\4\0\0\0\1".ljust(32, b"\0"))
    assert function(at, at, 1, at, options, 99, at, 0) == 11  # what follows the options is where it should be
    # poly u32, init u32, reflect in u8, reflect out u8, 2 of padding, xor u32
    assert bytes(options)[:16] == bytes.fromhex("416fdc1e ffffffff 0101 0000 ffffffff")


@needs_library
def test_every_status_of_the_library_has_words() -> None:
    describe = nvcomp.load()["nvcompGetStatusString"]
    describe.restype = ctypes.c_char_p
    known = [code for code in (*range(200), 1000, 1001, 10000, 10001) if b"Unrecognized" not in describe(code)]
    assert known == STATUSES == sorted(STATUS_TEXT)


def test_tables_are_frozen_and_whole() -> None:
    assert len(NAMES) == 9
    for table in CODECS.values():
        assert len(table.decompress_options) == len(table.compress_options) == OPTIONS_NBYTES
    with pytest.raises(dataclasses.FrozenInstanceError):
        CODECS["lz4"].symbol = "x"  # type: ignore[misc]


# Loading, in a fresh interpreter without site-packages: gzarr/__init__.py, which needs NumPy, is passed over.
_BARE = """
import ctypes, sys, types
sys.modules["gzarr"] = package = types.ModuleType("gzarr")
package.__path__ = [sys.argv[1] + "/gzarr"]
sys.path[:0] = sys.argv[2:]
from gzarr.errors import DeviceError
from gzarr.gpu.device import nvcomp
try:
    print("loaded", nvcomp.load()._name, nvcomp.version())
except DeviceError as error:
    print("refused", error)
"""


def load_with(*folders: Path) -> str:
    """What `load` says when only these folders are added to a bare interpreter's path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON"))}
    command = [sys.executable, "-I", "-S", "-c", _BARE, str(ROOT), *map(str, folders)]
    return output_of(command, env=env)


def stand_in(folder: Path, version: int, name: str = "libnvcomp.so.6") -> Path:
    """A library of another version, where a wheel would have put it."""
    path = folder / "nvidia" / "libnvcomp" / "lib64" / name
    path.parent.mkdir(parents=True)
    body = f'extern "C" int nvcompGetProperties(unsigned *p) {{ p[0] = {version}; p[1] = 13040; return 0; }}'
    source = folder / "stand_in.cpp"
    source.write_text(body)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `load` says when there is nothing to find."""
    said = load_with(tmp_path_factory.mktemp("empty"))
    if said.startswith("loaded"):
        pytest.skip(f"the system itself has nvCOMP: {said}")
    return said


def test_a_missing_library_is_explained(nothing: str) -> None:
    assert nothing.startswith("refused nvCOMP 6 is needed to decode on the GPU and cannot be loaded (libnvcomp.so.6: ")
    assert "; install it with: pip install 'gzarr[cuda13]', or 'gzarr[cuda12]'" in nothing


@needs_compiler
@pytest.mark.parametrize(("version", "words"), [(5300, "version 5.3.0"), (7001, "version 7.0.1")])
def test_another_version_is_refused(version: int, words: str, nothing: str, tmp_path: Path) -> None:
    path = stand_in(tmp_path, version)
    said = load_with(tmp_path)
    assert said.startswith("refused")
    assert f"{path}: {words}" in said
    assert "gzarr[cuda13]" in said


@needs_compiler
def test_the_right_version_is_found_behind_a_wrong_one_and_a_package_that_hides_it(tmp_path: Path) -> None:
    stand_in(tmp_path / "old", 5300)
    (tmp_path / "hiding" / "nvidia").mkdir(parents=True)
    (tmp_path / "hiding" / "nvidia" / "__init__.py").write_text("")
    right = stand_in(tmp_path / "right", 6000)
    said = load_with(tmp_path / "hiding", tmp_path / "old", tmp_path / "right")
    assert said == f"loaded {right} (6, 0, 0)\n"


def test_other_versions_and_broken_files_are_named(nothing: str, tmp_path: Path) -> None:
    for folder, name in (("old", "libnvcomp.so.5"), ("broken", "libnvcomp.so.6")):
        (tmp_path / folder / "nvidia" / "libnvcomp" / "lib64").mkdir(parents=True)
        (tmp_path / folder / "nvidia" / "libnvcomp" / "lib64" / name).write_text("not a library")
    said = load_with(tmp_path / "old", tmp_path / "broken")
    assert said.startswith("refused")
    assert f"{tmp_path}/old/nvidia/libnvcomp/lib64/libnvcomp.so.5: another version" in said
    assert f"{tmp_path}/broken/nvidia/libnvcomp/lib64/libnvcomp.so.6: " in said


def test_neither_the_tables_nor_the_binding_load_the_library() -> None:
    code = (
        "from gzarr.gpu.device import nvcomp, nvcomp_tables\n"
        "print('libnvcomp' in open('/proc/self/maps').read(), 'cupy' in __import__('sys').modules)"
    )
    if not Path("/proc/self/maps").exists():
        pytest.skip("no /proc/self/maps to look into")
    assert run_python(code).split() == ["False", "False"]
