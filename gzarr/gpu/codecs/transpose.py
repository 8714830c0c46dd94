"""Transposes behind other filters. The placement and gathering kernels do those at the beginning of a chain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import ArrayRepr, Repr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.filters import DATA_TYPE, Filter, filter_codec


def _decoding(step: Step) -> Filter | str:
    return _transposing(step, step.encoded, inverse=True)


def _encoding(step: Step) -> Filter | str:
    return _transposing(step, step.decoded, inverse=False)


def _transposing(step: Step, given: Repr, *, inverse: bool) -> Filter | str:
    if not isinstance(given, ArrayRepr) or not isinstance(step.spec, TransposeCodec):
        return DATA_TYPE
    axes: Sequence[int] = step.spec.permutation(len(given.shape))
    if inverse:
        axes = np.argsort(axes).tolist()
    shape, itemsize = given.shape, given.dtype.itemsize
    order = (0, *(axis + 1 for axis in axes), len(shape) + 1)

    def run(wave: Wave, rows: Array) -> Array:
        n = rows.shape[0]
        return wave.device.xp.ascontiguousarray(rows.reshape(n, *shape, itemsize).transpose(order)).reshape(n, -1)

    return run


CODECS = {"transpose": filter_codec(_decoding, _encoding)}
