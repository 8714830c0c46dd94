"""Converts other file formats to Zarr and back, in bounded memory: HDF5, NetCDF and TIFF; .npy and FITS to Zarr.

>>> import numpy as np, tempfile, gzarr
>>> folder = tempfile.mkdtemp()
>>> np.save(f"{folder}/a.npy", np.arange(12).reshape(3, 4))
>>> report = gzarr.convert.from_file(f"{folder}/a.npy", f"{folder}/a.zarr", chunks=(2, 4))
>>> gzarr.open(f"{folder}/a.zarr").shape
(3, 4)
"""

from gzarr.convert.files import from_file, recognize
from gzarr.convert.hdf5 import from_hdf5, to_hdf5
from gzarr.convert.netcdf import from_netcdf, to_netcdf
from gzarr.convert.rasters import from_rasterio, to_geotiff
from gzarr.convert.tiff import from_tiff, to_tiff
from gzarr.convert.volumes import from_bioio, from_dicom, from_nifti, to_nifti

__all__ = [
    "from_bioio",
    "from_dicom",
    "from_file",
    "from_hdf5",
    "from_netcdf",
    "from_nifti",
    "from_rasterio",
    "from_tiff",
    "recognize",
    "to_geotiff",
    "to_hdf5",
    "to_netcdf",
    "to_nifti",
    "to_tiff",
]
