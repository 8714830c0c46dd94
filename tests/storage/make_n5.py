"""Writes data/zarr2.n5.zip with zarr 2: ``python make_n5.py``, in an environment that has zarr 2.18."""

import tempfile
import warnings
import zipfile
from pathlib import Path

import numcodecs
import numpy as np
import zarr

CODECS = {
    "raw": None,
    "gzip": numcodecs.GZip(5),
    "zlib": numcodecs.Zlib(5),
    "bz2": numcodecs.BZ2(9),
    "xz": numcodecs.LZMA(preset=1),
    "blosc": numcodecs.Blosc("lz4", 5, 1),
}


def main() -> None:
    """Write the container anew."""
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    root = zarr.group(zarr.N5Store(str(folder)), overwrite=True)
    root.attrs["resolution"] = [4, 4, 40]
    values = np.arange(70, dtype="i4").reshape(10, 7) * 1000
    for name, codec in CODECS.items():
        root.array(f"c-{name}", values, chunks=(4, 3), compressor=codec)
    deep = root.create_group("deep")
    for dtype in ("uint8", "int64", "float32", "float64"):
        deep.array(dtype, np.arange(24).reshape(2, 3, 4).astype(dtype), chunks=(2, 2, 3), compressor=numcodecs.GZip(1))
    with zipfile.ZipFile(Path(__file__).parent / "data" / "zarr2.n5.zip", "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(str(path.relative_to(folder)))
                archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
