"""`CudaDevice` calls CuPy and nvCOMP rightly: the suites on a double of CuPy that refuses what CuPy refuses.

Nothing here runs on a GPU. What is checked is argument passing: streams, addresses, tables, conversions, lifetimes.
"""

from __future__ import annotations

import gc
import gzip
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, Zlib, Zstd

import gzarr
from benchmarks import gpu as benchmark
from benchmarks import gpu_questions
from benchmarks.on_gpu import Gpu, Tables
from gzarr.gpu import kernels, nvcomp
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.hostbuild import find_compiler
from tests.contracts.test_backend import *  # noqa: F403
from tests.gpu import fake_cupy
from tests.gpu.hardware.test_hardware_codecs import *  # noqa: F403
from tests.gpu.hardware.test_hardware_device import (  # noqa: F401
    test_results_are_ordered_on_the_callers_stream,
    test_results_may_be_larger_than_a_wave,
    test_threads_read_at_once,
)
from tests.properties import memory
from tests.properties.test_resizing import *  # noqa: F403
from tests.properties.test_selections import *  # noqa: F403

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(scope="module")
def cuda() -> Any:
    """gzarr.gpu.cuda, loaded anew with the double in CuPy's place."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = fake_cupy.module()
    try:
        path = Path(kernels.__file__).parents[1] / "cuda.py"
        spec = importlib.util.spec_from_file_location("cuda_with_a_double", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before
    library = {name: getattr(nvcomp, name) for name in nvcomp.__all__ if hasattr(nvcomp, name)}
    for name in ("decompress_async", "crc32c_async"):
        assert str(inspect.signature(getattr(fake_cupy, name))) == str(inspect.signature(library[name]))
        library[name] = getattr(fake_cupy, name)
    module.nvcomp = SimpleNamespace(**library)
    return module


@pytest.fixture(autouse=True, scope="module")
def gpu_everywhere(cuda: Any) -> Iterator[None]:
    with gzarr.config.set({"device": GpuBackend(cuda.CudaDevice())}), memory.allocated_by(cuda.cupy):
        yield


@pytest.fixture
def backend(cuda: Any) -> GpuBackend:
    return GpuBackend(cuda.CudaDevice())


DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")


@pytest.mark.parametrize(
    "compressor", [None, Blosc("lz4", 5, Blosc.SHUFFLE), Blosc("zstd", 5, Blosc.BITSHUFFLE), Zlib()]
)
def test_arrays_come_back_in_the_memory_of_the_device(cuda, compressor):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=compressor)
    found = stored[3:40:3, ::-2]
    assert isinstance(found, fake_cupy.ndarray)
    np.testing.assert_array_equal(found.get(), DATA[3:40:3, ::-2])
    out = cuda.cupy.empty((53, 82), "f8")[:, ::2]
    assert stored.get_basic_selection(..., out=out) is out
    np.testing.assert_array_equal(out.get(), DATA)
    stored[:10] = found[:10, :1]


def test_raw_streams_are_copied_on_the_device():
    data = np.random.default_rng(0).integers(0, 2**31, (64, 64)).astype("i4")
    stored = gzarr.create_array(data=data, chunks=(32, 32), compressor=Blosc("lz4", 1, Blosc.SHUFFLE))
    fake_cupy.RawKernel.launches.clear()
    np.testing.assert_array_equal(stored[:].get(), data)
    np.testing.assert_array_equal(stored.vindex[[1, 40], [2, 3]].get(), data[[1, 40], [2, 3]])
    assert set(fake_cupy.RawKernel.launches) == {"copy_streams", "place_box", "place_points"}


def test_a_second_device_holds_its_own_results(cuda):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7))
    array = gzarr.open_array(stored.store, mode="r", device=GpuBackend(cuda.CudaDevice(1)))
    found = array[:]
    assert found.device == cuda.cupy.cuda.Device(1)
    np.testing.assert_array_equal(found.get(), DATA)
    with pytest.raises(gzarr.DeviceError, match="cuda:2"):
        cuda.CudaDevice(2)


def test_streams_are_made_once(cuda):
    """CuPy's pool keeps free memory by stream: memory of a stream that is gone is not handed out again."""
    array = gzarr.open_array(gzarr.create_array(data=DATA, chunks=(10, 7)).store, mode="r")
    array[:]
    before = fake_cupy.Stream.made
    for _ in range(5):
        array[:]
    assert fake_cupy.Stream.made == before


def test_a_failure_inside_leaves_no_work_behind(cuda):
    device = cuda.CudaDevice()
    streams = []

    def fail() -> None:
        with device.stream():
            device.upload(device.staging(100))
            streams.append(cuda.cupy.cuda.get_current_stream())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not streams[0].pending
    assert cuda.cupy.cuda.get_current_stream() is fake_cupy.Stream.null


@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_uploads_keep_the_shape(cuda, shape):
    device = cuda.CudaDevice()
    array = np.full(shape, 7, "f4")
    there = device.upload(array)
    assert there.shape == shape
    np.testing.assert_array_equal(device.download(there), array)
    np.testing.assert_array_equal(device.download(device.upload(array.T[::-1] if shape else array)), array.T)


def test_pinned_memory_of_similar_sizes_is_the_same_to_the_pool(cuda, monkeypatch):
    """CuPy's pinned pool hands a block out again only for the very same size, and never frees."""
    asked: list[int] = []
    alloc = cuda.cupy.cuda.alloc_pinned_memory
    monkeypatch.setattr(cuda.cupy.cuda, "alloc_pinned_memory", lambda size: asked.append(size) or alloc(size))
    device = cuda.CudaDevice()
    for nbytes in range(100_000, 130_000, 1000):
        assert device.staging(nbytes).nbytes == nbytes
    assert len(set(asked)) == 1
    assert device.staging(0).nbytes == 0


def test_the_double_notices_memory_that_is_freed_too_early(cuda):
    device = cuda.CudaDevice()
    with device.stream():
        staging = device.staging(100)
        staging[:] = 7
        there = device.upload(staging)
        del staging
        gc.collect()
        assert set(device.download(there).tolist()) == {fake_cupy.FREED}
        staging = device.staging(100)
        staging[:] = 7
        assert set(device.download(device.upload(staging)).tolist()) == {7}


def test_the_double_refuses_what_cupy_refuses(cuda):
    there = cuda.cupy.asarray(DATA)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(there)
    with pytest.raises(TypeError):
        there + DATA
    with pytest.raises(TypeError):
        there[:3] = DATA[:3]
    with pytest.raises(ValueError):
        cuda.cupy.empty(3, "M8[s]")


# -- the questions put to hardware -----------------------------------------------------------------------------------


@pytest.fixture
def gpu(cuda: Any) -> Gpu:
    return Gpu(cuda.CudaDevice(), cuda.cupy, cuda.nvcomp)


def test_questions_are_asked_rightly(gpu: Gpu) -> None:
    """The double decodes with host libraries: their answers to sound streams are known."""
    rows = gpu_questions.temp_sizes(gpu)["rows"]
    assert {row[0] for row in rows} == set(nvcomp.CODECS)
    assert all(asked == formula for *_, asked, formula in rows)
    frames = gpu_questions.zstd_frames(gpu)
    assert frames["plain"] == {"statuses": [0], "sizes": [65536], "right": [True], "wrote_past_end": False}
    assert frames["checksum"]["right"] == [True]
    assert frames["no content size"]["right"] == [True]
    assert frames["wrong checksum"]["statuses"] == [12]
    dummies = gpu_questions.dummy_streams(gpu)
    assert dummies["zstd, room 1"]["right"] == [True] * 3
    for codec in ("lz4", "zstd", "deflate"):
        assert gpu_questions.damaged(codec)(gpu)["works_afterwards"]
        assert gpu_questions.truncated(codec)(gpu)["works_afterwards"]
    tables = Tables(gpu, "deflate", [gpu_questions.bare("deflate", gpu_questions.TEXT)] * 3, [1 << 16] * 3, shift=4)
    tables.decode(gpu)
    assert tables.result().outputs == [gpu_questions.TEXT] * 3
    misaligned = Tables(gpu, "deflate", [b"\3\0"], [1], shift=1)
    misaligned.decode(gpu)
    with pytest.raises(gzarr.DeviceError, match="not aligned"):
        misaligned.result()


def test_members_of_gzip_are_what_they_are_called() -> None:
    member = gpu_questions.gzip_with(12, b"\x03\0abcname\0")
    assert gzip.decompress(member) == gpu_questions.TEXT
    assert gzip.decompress(gpu_questions.gzip_with(4, b"\x03\0abc")) == gpu_questions.TEXT
    with pytest.raises(RuntimeError):  # numcodecs finds the content size missing and streams
        Zstd().decode(gpu_questions.zstd_without_size(gpu_questions.TEXT)[:-1])
    assert bytes(Zstd().decode(gpu_questions.zstd_without_size(gpu_questions.TEXT))) == gpu_questions.TEXT


@pytest.mark.parametrize("name", ["bandwidths", "launch_costs", "crc32c_rate", "place_box_variants"])
def test_measurements_run_through(gpu: Gpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_questions, "COPY_NBYTES", 1 << 21)
    monkeypatch.setattr(gpu_questions, "CRC_NBYTES", 1 << 24)
    monkeypatch.setattr(gpu_questions, "SIDE", 64)
    found = gpu_questions.QUESTIONS[name](gpu)
    assert json.loads(json.dumps(found))
    assert len(found) >= 3


@pytest.mark.parametrize("codec", ["lz4", "zstd", "deflate"])
def test_streams_are_counted(gpu: Gpu, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_questions, "STREAMS", (10, 100))
    found = gpu_questions.QUESTIONS[f"streams_per_second {codec}"](gpu)
    assert [row["failed"] for row in found.values()] == [0, 0]


def test_the_benchmark_runs_through(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its branches for CUDA, on the double; the file stays in a temporary folder."""
    monkeypatch.setattr(benchmark, "open_gpu", lambda: gpu)
    some = [benchmark.Case("blosc-lz4", 16 << 10, "sharded"), benchmark.Case("zstd", 4 << 10, "plain")]
    monkeypatch.setattr(benchmark, "cases", lambda *, small: some)
    result = json.loads(benchmark.run(tmp_path, "cuda", 60, small=True).read_text())
    assert result["machine"]["gpu"] == "no GPU: a double"
    own = [row for row in result["rows"] if row["contender"] == "gzarr"]
    assert len(own) == 2 * 5
    assert all(row["bare_nvcomp_seconds"] > 0 for row in own if row["table"] == "resident")
    missing = {"raw KvikIO", "zarr-python, GPU mode", *benchmark.PEERS}
    assert {row["contender"] for row in result["failed"]} <= missing - {"gzarr on the CPU, upload"}
