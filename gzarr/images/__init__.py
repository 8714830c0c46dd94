"""Large images: OME-Zarr, pyramids in one pass, filters with halos, labels, plates. On the CPU or a GPU."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds
    from gzarr.images.acquisition.writer import ImageWriter
    from gzarr.images.create import create_image
    from gzarr.images.filters.depths import depth_of
    from gzarr.images.filters.intensities import (
        equalize,
        find_threshold,
        flat_field,
        match_histogram,
        rescale_intensity,
        subtract_background,
        threshold,
    )
    from gzarr.images.filters.overlap import map_blocks, map_overlap
    from gzarr.images.filters.reducing import reduce_blocks
    from gzarr.images.filters.tables import Table, tabulate
    from gzarr.images.filters.where import Where
    from gzarr.images.image import Image, open_image
    from gzarr.images.labels.labelling import label
    from gzarr.images.labels.measuring import measure
    from gzarr.images.labels.merging import merge_labels
    from gzarr.images.labels.segmenting import segment
    from gzarr.images.plates import Plate, Well, create_plate, open_plate
    from gzarr.images.pyramid.build_pyramid import build_pyramid
    from gzarr.images.region import Region
    from gzarr.images.scenes import Scene, add_coordinate_system, create_scene, open_scene
    from gzarr.images.transforms.fusing import fuse
    from gzarr.images.transforms.projecting import project
    from gzarr.images.transforms.registering import register, register_tiles
    from gzarr.images.transforms.resampling import affine, deskew, resample, rescale
    from gzarr.images.transforms.reshaping import crop, flip, rotate90
    from gzarr.images.transforms.warping import warp
    from gzarr.images.validation.validate import Validation, validate

# Public names by the module that has them, which is imported when one of them is first asked for.
_NAMES = {
    "acquisition.writer": "ImageWriter",
    "create": "create_image",
    "filters.depths": "depth_of",
    "filters.overlap": "map_blocks map_overlap",
    "filters.reducing": "reduce_blocks",
    "image": "Image open_image",
    "labels.labelling": "label",
    "labels.merging": "merge_labels",
    "plates": "Plate Well create_plate open_plate",
    "pyramid.build_pyramid": "build_pyramid",
    "region": "Region",
    "scenes": "Scene add_coordinate_system create_scene open_scene",
    "transforms.projecting": "project",
    "transforms.resampling": "affine deskew resample rescale",
    "transforms.reshaping": "crop flip rotate90",
    "filters.tables": "Table tabulate",
    "filters.where": "Where",
    "labels.measuring": "measure",
    "labels.segmenting": "segment",
    "transforms.fusing": "fuse",
    "transforms.registering": "register register_tiles",
    "filters.intensities": "equalize find_threshold flat_field match_histogram rescale_intensity "
    "subtract_background threshold",
    "transforms.warping": "warp",
    "validation.validate": "Validation validate",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Image",
    "ImageWriter",
    "Plate",
    "Region",
    "Scene",
    "Table",
    "Validation",
    "Well",
    "Where",
    "add_coordinate_system",
    "affine",
    "build_pyramid",
    "create_image",
    "create_plate",
    "create_scene",
    "crop",
    "depth_of",
    "deskew",
    "equalize",
    "find_threshold",
    "flat_field",
    "flip",
    "fuse",
    "label",
    "map_blocks",
    "map_overlap",
    "match_histogram",
    "measure",
    "merge_labels",
    "open_image",
    "open_plate",
    "open_scene",
    "project",
    "reduce_blocks",
    "register",
    "register_tiles",
    "resample",
    "rescale",
    "rescale_intensity",
    "rotate90",
    "segment",
    "subtract_background",
    "tabulate",
    "threshold",
    "validate",
    "warp",
]

if not TYPE_CHECKING:  # a type checker would take every name to exist

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return getattr(import_module(f"gzarr.images.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
