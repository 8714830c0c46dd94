"""Delta: differences of neighbouring numbers, and their running sums."""

from __future__ import annotations

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import Step
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.filters import DATA_TYPE, Dtypes, Filter, filter_codec, filter_dtypes


def _decoding(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step)
    if dtypes is None:
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind in "iu" and encoded.kind in "iu":
        return lambda wave, rows: wave.device.xp.cumsum(rows.view(encoded), axis=1, dtype=decoded).view(np.uint8)
    return _why_not_floats(dtypes) or (lambda wave, rows: floats.running_sums(wave, rows, decoded))


def _encoding(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step)
    if dtypes is None:
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind not in "iu" or encoded.kind not in "iu":
        return _why_not_floats(dtypes) or (lambda wave, rows: floats.differences(wave, rows, decoded))
    if not np.can_cast(decoded, encoded, "safe"):
        return "the host refuses a first number that is out of range"

    def encode(wave: Wave, rows: Array) -> Array:
        values = rows.view(decoded)
        steps = wave.device.xp.empty(values.shape, encoded)
        steps[:, :1] = values[:, :1].astype(encoded)
        with np.errstate(over="ignore"):  # as on the host; the emulated device has NumPy's warnings
            steps[:, 1:] = (values[:, 1:] - values[:, :-1]).astype(encoded)
        return steps.view(np.uint8)

    return encode


def _why_not_floats(dtypes: Dtypes) -> str:
    """Why the host runs a delta of floats; empty if the device does."""
    if dtypes[0].str[1:] == "f2":
        return floats.HALF_FLOATS
    if dtypes[0] != dtypes[1] or dtypes[0].kind not in "fc":
        return "the device takes differences of integers, and of floats stored in their own type"
    return ""


CODECS = {"numcodecs.delta": filter_codec(_decoding, _encoding)}
