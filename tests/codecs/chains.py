"""Chains of codecs for tests: made ready on the CPU, run over batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Repr
from gzarr.cpu.codecs import factory_for


class CpuChain:
    """A completed and prepared chain."""

    def __init__(self, specs: Sequence[CodecSpec], chunk: ArrayRepr, serializer: CodecSpec | None = None) -> None:
        self.specs = complete(specs, chunk, default_serializer=serializer)
        self.steps = prepare(self.specs, chunk)
        self.codecs = [factory_for(step.spec)(step) for step in self.steps]

    def encode(self, chunks: Sequence[Any]) -> list[Any]:
        for codec in self.codecs:
            chunks = codec.encode(chunks)
        return list(chunks)

    def decode(self, buffers: Sequence[Any]) -> list[Any]:
        for codec in reversed(self.codecs):
            buffers = codec.decode(buffers)
        return list(buffers)


def chain_for(specs: Sequence[CodecSpec], array: np.ndarray, fill: Any = None, **kwargs: Any) -> CpuChain:
    return CpuChain(specs, ArrayRepr(array.dtype, array.shape, fill), **kwargs)


def codec_for(spec: CodecSpec, decoded: Repr):
    """One codec made ready, and its step."""
    from gzarr.codecs.spec import Step

    resolved, encoded = spec.resolve(decoded)
    step = Step(resolved, decoded, encoded)
    return factory_for(resolved)(step)


def sample(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Values that compress a little and use every byte of the element."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape, dtype=int))
    if dtype.kind == "O":
        words = np.array(["", "zarr", "größer", "東京", "x" * 40], dtype=object)
        return words[rng.integers(0, len(words), n)].reshape(shape)
    if dtype.kind == "T":
        return sample(object, shape, seed).astype(dtype)
    if dtype.kind == "f":
        return (rng.integers(-500, 500, n) / 4).astype(dtype).reshape(shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if dtype.kind in "iu":
        return np.cumsum(rng.integers(0, 3, n)).astype(dtype).reshape(shape)
    raw = rng.integers(97, 100, n * dtype.itemsize, dtype=np.uint8)
    if dtype.kind == "U":
        raw = np.repeat(raw[: n * dtype.itemsize // 4].astype(np.uint32), 1).view(np.uint8)
        return np.frombuffer(raw.tobytes(), dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def objects(*items: Any) -> np.ndarray:
    """An array of Python objects, lists and arrays among them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def round_trip(spec: CodecSpec, array: np.ndarray) -> np.ndarray:
    """The array, encoded and decoded by one codec."""
    chain = chain_for([spec], array)
    return chain.decode([bytes(chain.encode([array])[0])])[0]
