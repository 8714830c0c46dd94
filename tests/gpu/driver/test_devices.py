"""Two devices in one process: whatever is current, work is on the array's device, and the caller's stays current."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc

import gzarr
import gzarr.images
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from tests.gpu.driver import driver
from tests.support.processes import output_of

DATA = np.random.default_rng(0).integers(0, 1000, (96, 80)).astype("i4")
SECONDS = 4


@pytest.fixture
def backends(cuda: Any) -> Iterator[list[GpuBackend]]:
    made = [GpuBackend(cuda.CudaDevice(number), small_reads=NEVER, small_writes=NEVER) for number in (0, 1)]
    yield made
    for backend in made:
        backend.release()


class Program:
    """What a caller does with an array on each device, and what the arrays hold then."""

    def __init__(self, cuda: Any, backends: list[GpuBackend], rng: np.random.Generator) -> None:
        self.cupy, self.rng = cuda.cupy, rng
        self.wanted = [DATA.copy(), DATA.copy()]
        options = ({"compressor": LZ4()}, {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)})
        self.arrays = [
            gzarr.create_array({}, data=DATA, chunks=(16, 40), zarr_format=2, device=backend, **option)
            for backend, option in zip(backends, options, strict=True)
        ]
        self.loader = gzarr.Loader(self.arrays[0], 16, devices=backends, shuffle=True, transform=lambda x: x + 1)
        self.batches = enumerate(self.loader)
        self.streams = []
        for number in (0, 1):
            with self.cupy.cuda.Device(number):
                self.streams.append(self.cupy.cuda.Stream(non_blocking=True))

    def on(self, number: int) -> Any:
        return self.cupy.cuda.Device(number)

    def check(self, found: Any, number: int, wanted: np.ndarray) -> None:
        assert found.device.id == number
        with self.on(number):
            np.testing.assert_array_equal(found.get(), wanted)

    def read(self, number: int) -> None:
        start, stop = sorted(self.rng.integers(0, len(DATA), 2).tolist())
        self.check(self.arrays[number][start : stop + 1, 3::2], number, self.wanted[number][start : stop + 1, 3::2])

    def read_points(self, number: int) -> None:
        rows = self.rng.integers(0, len(DATA), 9)
        self.check(self.arrays[number].vindex[rows, rows % 80], number, self.wanted[number][rows, rows % 80])

    def read_into(self, number: int) -> None:
        with self.on(number):
            out = self.cupy.zeros(DATA.shape, "i4")
        assert self.arrays[number].get_basic_selection(..., out=out) is out
        self.check(out, number, self.wanted[number])

    def read_on_a_stream(self, number: int) -> None:
        array = self.arrays[number].to(f"cuda:{number}", stream=self.streams[number])
        found = array[:]
        with self.on(number), self.streams[number]:
            np.testing.assert_array_equal(found.get(), self.wanted[number])

    def write(self, number: int) -> None:
        self.wanted[number] = self.rng.permutation(self.wanted[number])
        with self.on(number):
            value = self.cupy.asarray(self.wanted[number])
        self.arrays[number][:] = value

    def write_a_part_from_the_host(self, number: int) -> None:
        self.wanted[number][5:50] += 1
        self.arrays[number][5:50] = self.wanted[number][5:50]

    def write_from_the_other_device(self, number: int) -> None:
        with self.on(1 - number):
            value = self.cupy.asarray(self.wanted[number][::-1].copy())
        self.wanted[number] = self.wanted[number][::-1].copy()
        self.arrays[number][:] = value

    def take_a_batch(self, number: int) -> None:
        step, batch = next(self.batches, (0, None))
        if batch is None:
            self.batches = enumerate(self.loader)
            return
        assert batch.device.id == step % 2
        assert batch.shape == (16, 80)

    def release(self, number: int) -> None:
        self.arrays[number].backend.release()

    @property
    def steps(self) -> list[Callable[[int], None]]:
        own = (self.read, self.read_points, self.read_into, self.read_on_a_stream, self.write, self.release)
        return [*own, self.write_a_part_from_the_host, self.write_from_the_other_device, self.take_a_batch]


def test_the_current_device_is_the_callers(cuda: Any, backends: list[GpuBackend]) -> None:
    runtime, get_stream = cuda.cupy.cuda.runtime, cuda.cupy.cuda.get_current_stream
    end = time.monotonic() + SECONDS
    try:
        for seed in count():
            rng = np.random.default_rng(seed)
            program = Program(cuda, backends, rng)
            for _ in range(40):
                current = int(rng.integers(0, 2))
                cuda.cupy.cuda.Device(current).use()
                stream = get_stream()
                step = program.steps[int(rng.integers(0, len(program.steps)))]
                step(int(rng.integers(0, 2)))
                assert (runtime.getDevice(), get_stream()) == (current, stream), step.__name__
            if time.monotonic() > end:
                break
    finally:
        cuda.cupy.cuda.Device(0).use()
    assert not driver.faults()


def test_a_loader_decodes_on_each_device_what_its_batches_need(cuda: Any, backends: list[GpuBackend]) -> None:
    stored = gzarr.create_array({}, data=DATA, chunks=(8, 80), compressor=LZ4(), zarr_format=2, device="cpu")
    loader = gzarr.Loader(
        gzarr.open_array(stored.store, device=backends[0]), 16, devices=backends, shuffle=True, seed=1
    )
    ids = [loader.batch_ids(step) for step in range(len(loader))]
    for step, batch in enumerate(loader):
        assert batch.device.id == step % 2
        with cuda.cupy.cuda.Device(step % 2):
            np.testing.assert_array_equal(batch.get(), DATA[ids[step]])


@pytest.mark.parametrize("method", ["mean", "function"])
def test_a_pyramid_on_two_devices_is_that_of_one(
    cuda: Any, backends: list[GpuBackend], tmp_path: Path, method: str
) -> None:
    data = np.random.default_rng(0).integers(0, 255, (300, 260), "u1")
    seen: list[int] = []

    def largest(block: Any, factors: tuple[int, ...]) -> Any:
        seen.append(block.device.id)
        assert cuda.cupy.cuda.runtime.getDevice() == block.device.id
        rows, columns = (-(-n // 2) * 2 for n in block.shape)
        padded = cuda.cupy.zeros((rows, columns), "u1")
        padded[: block.shape[0], : block.shape[1]] = block
        return padded.reshape(rows // 2, 2, columns // 2, 2).max((1, 3))

    chosen: Any = {"method": largest} if method == "function" else {}
    image = gzarr.images.create_image(tmp_path / "a.zarr", data, levels=0, chunks=(32, 32), device="cpu")
    built = gzarr.images.build_pyramid(image, 2, max_nbytes=20_000, devices=backends, **chosen)
    wanted = gzarr.images.create_image(data=data, levels=0, chunks=(32, 32), device="cpu")
    wanted = gzarr.images.build_pyramid(wanted, 2, method="max" if chosen else None)
    for one, other in zip(built.levels, wanted.levels, strict=True):
        np.testing.assert_array_equal(one.to("cpu")[...], other[...])
    assert set(seen) == ({0, 1} if chosen else set())
    assert cuda.cupy.cuda.runtime.getDevice() == 0


ONE = """
import json, numpy as np, gzarr
from gzarr.devices import gpu_report
data = np.arange(4000, dtype="i4").reshape(40, 100)
array = gzarr.create_array({}, data=data, chunks=(10, 50), device="cuda")
assert (array[:].get() == data).all()
try:
    gzarr.zeros(3, device="cuda:1")
except gzarr.DeviceError as error:
    print(json.dumps([array.device, [one["uuid"][:4] for one in gpu_report()["devices"]], str(error)]))
"""


@pytest.mark.parametrize(
    ("visible", "uuid"), [("0", "0101"), ("1", "0202"), ("GPU-0202", "0202"), ("MIG-0101", "0101")]
)
def test_a_process_sees_the_devices_that_are_visible(visible: str, uuid: str) -> None:
    said = output_of([sys.executable, "-c", ONE], env=os.environ | {"CUDA_VISIBLE_DEVICES": visible})
    device, uuids, error = json.loads(said.splitlines()[-1])
    assert (device, uuids) == ("cuda:0", ["0202" if visible in ("1", "GPU-0202") else "0101"])
    assert "there is one device, cuda:0" in error


def test_a_process_that_no_device_is_visible_to_says_so() -> None:
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    ask = "import gzarr; gzarr.zeros(3, device='cuda')"
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=False)
    assert "CUDA_VISIBLE_DEVICES does not hide it" in done.stderr
