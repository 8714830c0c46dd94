"""The block format of N5 as one codec of Zarr v2 metadata: header, big-endian elements, one compressor.

zarr 2 gives it the id "n5_wrapper", and so do the documents that `gzarr.storage.n5` shows of an N5 data set.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gzarr.codecs.fields import check_integers
from gzarr.codecs.spec import CompressorSpec
from gzarr.errors import MetadataError


@dataclass(frozen=True, slots=True)
class N5Codec(CompressorSpec):
    """Store chunks as blocks of N5.

    Parameters
    ----------
    dtype : str
        NumPy name of the elements' type, in the byte order of the array.
    chunk_shape : sequence of int
        Shape of a whole block, in the order of the array's axes; N5 writes it reversed.
    compressor_config : str or mapping, optional
        numcodecs configuration of the compressor, as JSON text or as an object; none by default.

    Raises
    ------
    MetadataError
        If a field has a bad value.

    Notes
    -----
    The id is ``n5_wrapper`` in Zarr v2; Zarr v3 has no such codec. Runs on the CPU only. Arrays of `gzarr.N5Store` show
    it; nothing else should need it.

    Source: https://github.com/saalfeldlab/n5#file-system-specification

    Examples
    --------
    >>> import gzarr
    >>> gzarr.codecs.N5Codec("<i4", (64, 64), {"id": "gzip", "level": 1}).compressor
    {'id': 'gzip', 'level': 1}
    """

    dtype: str
    chunk_shape: tuple[int, ...]
    compressor_config: str = "null"

    name = v2_id = "n5_wrapper"

    def __post_init__(self) -> None:
        config: Any = self.compressor_config
        if not isinstance(config, str):
            if config is not None and not isinstance(config, Mapping):
                raise MetadataError(f"codec {self.name!r}: compressor_config must be an object or null, got {config!r}")
            config = json.dumps(None if config is None else dict(config), sort_keys=True)
        object.__setattr__(self, "compressor_config", config)
        object.__setattr__(self, "chunk_shape", check_integers(self.name, "chunk_shape", self.chunk_shape, 1))
        try:
            np.dtype(self.dtype)
        except TypeError as error:
            raise MetadataError(f"codec {self.name!r}: dtype {self.dtype!r} is not a NumPy data type") from error

    @property
    def compressor(self) -> dict[str, Any] | None:
        """The numcodecs configuration of the compressor; None if there is none."""
        return cast("dict[str, Any] | None", json.loads(self.compressor_config))

    def configuration(self) -> dict[str, Any]:
        """Give all three fields. See `CodecSpec.configuration`."""
        return {"compressor_config": self.compressor, "dtype": self.dtype, "chunk_shape": list(self.chunk_shape)}
