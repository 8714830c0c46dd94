"""Other implementations of OME-Zarr: what they object to in an image, what they read of it, and images of their own."""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gzarr.errors import MetadataError
from gzarr.images import open_plate

#: Problems that a peer finds in what is stored at a path, in a version of OME-Zarr.
Check = Callable[[Path, str], list[str]]


class Seen(NamedTuple):
    """An image as a peer reads it: scale and translation by axis, and values, of each level."""

    axes: tuple[str, ...]
    levels: list[tuple[dict[str, float], dict[str, float], np.ndarray[Any, Any]]]


# -- what they object to -----------------------------------------------------------------------------------------------


def by_yaozarrs(path: Path, version: str) -> list[str]:
    import yaozarrs

    yaozarrs.validate_zarr_store(path)
    return []


def by_ome_zarr_models(path: Path, version: str) -> list[str]:
    import ome_zarr_models

    ome_zarr_models.open_ome_zarr(str(path), version=version)
    return []


def by_ome_zarr_pyramid(path: Path, version: str) -> list[str]:
    import ome_zarr_pyramid

    return list(ome_zarr_pyramid.validate(path, strict=True))


def by_ome_zarr_io(path: Path, version: str) -> list[str]:
    import ome_zarr_io

    if version != "0.5":  # the only one that it knows
        return []
    return [str(problem) for problem in ome_zarr_io.validate(path, strict=True).errors]


def by_ngff_zarr(path: Path, version: str) -> list[str]:
    import ngff_zarr

    try:
        open_plate(path, "r")
    except MetadataError:
        read_by_ngff_zarr(path, version)
    else:
        ngff_zarr.from_hcs_zarr(path, validate=True)
    return []


CHECKS: Mapping[str, Check] = {
    "yaozarrs": by_yaozarrs,
    "ome_zarr_models": by_ome_zarr_models,
    "ome_zarr_pyramid": by_ome_zarr_pyramid,
    "ome_zarr_io": by_ome_zarr_io,
    "ngff_zarr": by_ngff_zarr,
}


def objections(path: Path, version: str) -> list[str]:
    """What any of them objects to."""
    found = []
    for name, check in CHECKS.items():
        if version == "0.6" and name != "ngff_zarr":  # the only one that validates it
            continue
        try:
            with quiet():
                found += [f"{name}: {problem}" for problem in check(path, version)]
        except Exception as error:  # noqa: BLE001  whatever a peer raises is the finding
            found.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
    return found


# -- what they read ----------------------------------------------------------------------------------------------------


def read_by_ngff_zarr(path: Path, version: str) -> Seen:
    import ngff_zarr

    with quiet():
        found = ngff_zarr.from_ngff_zarr(path, validate=True, version=version)
        levels = [(dict(i.scale), dict(i.translation), np.asarray(i.data)) for i in found.images]
    return Seen(tuple(found.images[0].dims), levels)


def read_by_zarr(path: Path, version: str) -> Seen:
    """With zarr-python and ome-zarr-models."""
    import ome_zarr_models
    import zarr

    with quiet():
        group = zarr.open_group(path, mode="r")
        model: Any = ome_zarr_models.open_ome_zarr(group, version=version)
        attributes = model.attributes if version == "0.4" else model.ome_attributes
        multiscale = attributes.multiscales[0]
        axes = tuple(axis.name for axis in multiscale.axes)
        levels = []
        for dataset in multiscale.datasets:
            moves = {t.type: getattr(t, t.type) for t in dataset.coordinateTransformations}
            scale = dict(zip(axes, moves["scale"], strict=True))
            translation = dict(zip(axes, moves.get("translation", [0.0] * len(axes)), strict=True))
            levels.append((scale, translation, np.asarray(group[dataset.path][...])))
    return Seen(axes, levels)


READERS: Mapping[str, Callable[[Path, str], Seen]] = {"ngff_zarr": read_by_ngff_zarr, "zarr": read_by_zarr}


# -- what they write ---------------------------------------------------------------------------------------------------

SCALE = {"c": 1.0, "z": 2.0, "y": 0.5, "x": 0.25}
UNIT = "micrometer"


def written_by_yaozarrs(path: Path, data: np.ndarray[Any, Any], version: str) -> None:
    from yaozarrs import DimSpec, v05
    from yaozarrs.write.v05 import write_image

    dims = [
        DimSpec(name=name, size=size, scale=SCALE[name], unit=None if name == "c" else UNIT)
        for name, size in zip("czyx", data.shape, strict=True)
    ]
    image = v05.Image(multiscales=[v05.Multiscale.from_dims(dims, n_levels=2)])
    write_image(path, image, [data, data[:, ::2, ::2, ::2]], shards=(2, 4, 32, 32), chunks=(1, 2, 16, 16))


def written_by_ome_zarr_pyramid(path: Path, data: np.ndarray[Any, Any], version: str) -> None:
    from ome_zarr_pyramid import Pyramid, io

    units = [None, UNIT, UNIT, UNIT]
    pyramid = Pyramid().from_array(
        data, axis_order="czyx", unit_list=units, scale=list(SCALE.values()), version=version
    )
    io.write_pyramid(pyramid.downscale(n_layers=2), path)


def written_by_ngff_zarr(path: Path, data: np.ndarray[Any, Any], version: str) -> None:
    """One level: its downsampling compiles WebAssembly for half a minute."""
    import ngff_zarr

    image = ngff_zarr.to_ngff_image(
        data,
        dims=list("czyx"),
        scale=SCALE,
        translation={"c": 0.0, "z": 1.0, "y": 30.0, "x": -7.5},
        axes_units=dict.fromkeys("zyx", UNIT),
    )
    ngff_zarr.to_ngff_zarr(path, ngff_zarr.to_multiscales(image, scale_factors=[]), version=version)


def written_by_ome_zarr_io(path: Path, data: np.ndarray[Any, Any], version: str) -> None:
    from ome_zarr_io import Writer

    scale = {name: SCALE[name] for name in "zyx"}
    units = dict.fromkeys("zyx", UNIT)
    writer = Writer(
        path, data, list("czyx"), units, scale_transformations=scale, downscale_levels=1, channels=["nuclei", "cells"]
    )
    writer.write()


WRITERS: Mapping[tuple[str, str], Callable[[Path, np.ndarray[Any, Any], str], None]] = {
    ("yaozarrs", "0.5"): written_by_yaozarrs,
    ("ome_zarr_pyramid", "0.4"): written_by_ome_zarr_pyramid,
    ("ome_zarr_pyramid", "0.5"): written_by_ome_zarr_pyramid,
    ("ngff_zarr", "0.4"): written_by_ngff_zarr,
    ("ngff_zarr", "0.5"): written_by_ngff_zarr,
    ("ngff_zarr", "0.6"): written_by_ngff_zarr,
    ("ome_zarr_io", "0.5"): written_by_ome_zarr_io,
}


class quiet(warnings.catch_warnings):  # noqa: N801  a function to its callers
    """Leaves out what peers warn of and log about their own ways."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)

    def __exit__(self, *error: object) -> None:
        logging.disable(logging.NOTSET)
        super().__exit__(*error)
