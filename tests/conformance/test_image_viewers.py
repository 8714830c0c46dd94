"""Viewers of OME-Zarr in a real browser show the pixels that gzarr wrote: ome-zarr.js and neuroglancer."""

import base64
import io
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image as Picture

from gzarr.images import Image, create_image
from tests.support.chromium import Browser

VIEWERS = Path(__file__).parents[1] / "support/node"
HEIGHT, WIDTH = 96, 128
#: Voxels of the images, in micrometers; their edges are those of neuroglancer's pixels.
SCALE = {"z": 2.0, "y": 0.5, "x": 0.5}
CHANNELS = [
    {"label": "rows", "color": "FF8000", "window": {"start": 100, "end": 900}},
    {"label": "columns", "color": "0000FF", "window": {"start": 0, "end": 1270}},
]
LABEL_COLORS = {1: "#ff0000", 2: "#00ff80", 70_000: "#4080ff"}
TIMEOUT_S = 300


class Served(NamedTuple):
    url: str
    image: Image


def pixels() -> np.ndarray[Any, Any]:
    """Two channels, three planes: one brighter with every row, one with every column."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [[9 * y + 100 * z, 9 * x + 100 * z] for z in range(3)]
    return np.moveaxis(np.array(planes), 0, 1).astype("u2")


def labelled() -> np.ndarray[Any, Any]:
    """Three objects on the middle plane, with holes between them."""
    labels = np.zeros((3, HEIGHT, WIDTH), "u4")
    labels[1, 8:40, 16:48] = 1
    labels[1, 8:40, 64:120] = 2
    labels[1, 56:88, 16:120] = 70_000
    return labels


FORMS: dict[str, dict[str, Any]] = {
    "0.4": {"version": "0.4", "chunks": (1, 1, 32, 32)},
    "0.5": {"version": "0.5", "chunks": (1, 1, 32, 32)},
    "0.5-sharded": {"version": "0.5", "chunks": (1, 1, 16, 16), "shards": (1, 3, 64, 64)},
}


@pytest.fixture(scope="module")
def served(http_server: tuple[str, Path]) -> dict[str, Served]:
    """Images with two levels and labels, in each form."""
    url, root = http_server
    found = {}
    for form, options in FORMS.items():
        path = root / f"viewed-{form}.zarr"
        levels = {"levels": 1, "factors": {"y": 2, "x": 2}}
        named = {"scale": SCALE, "units": "micrometer", "channels": CHANNELS}
        image = create_image(path, pixels(), axes="czyx", **options, **named, **levels)
        image.write_label("objects", labelled())
        found[form] = Served(f"{url}/{path.name}", image)
    return found


def channel_colors(image: Image, level: int, z: int) -> np.ndarray[Any, Any]:
    """What a viewer shows: colours of channels, brightened within their windows and added."""
    total = np.zeros((*image[level].shape[-2:], 3))
    for plane, channel in zip(image[level][:, z], CHANNELS, strict=True):
        start, end = channel["window"]["start"], channel["window"]["end"]
        color = np.frombuffer(bytes.fromhex(channel["color"]), "u1")
        total += np.clip((plane - float(start)) / (end - start), 0, 1)[..., None] * color
    return np.clip(total, 0, 255)


def decode(png: bytes) -> np.ndarray[Any, Any]:
    with Picture.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


# -- ome-zarr.js -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(browser: Browser, http_server: tuple[str, Path]) -> Browser:
    """A page that can import ome-zarr.js."""
    modules = VIEWERS / "node_modules"
    if not modules.is_dir():
        pytest.skip("no ome-zarr.js: tools/install_services.sh installs it by npm")
    url, root = http_server
    (root / "node_modules").symlink_to(modules)
    shutil.copy(VIEWERS / "page.html", root)
    browser.open(f"{url}/page.html")
    return browser


@pytest.mark.parametrize("form", FORMS)
def test_ome_zarr_js_shows_every_level(form: str, served: dict[str, Served], page: Browser) -> None:
    url, image = served[form]
    for level in range(len(image)):
        options = json.dumps({"arrayPathOrIndex": level, "slices": {"z": 1}})
        shown = page.run(
            f"import('ome-zarr.js').then(m => m.NgffImage.load({url!r})).then(image => image.render({options}))",
            TIMEOUT_S,
        )
        assert len(image) == 2
        seen = decode(base64.b64decode(shown.partition(",")[2]))
        expected = channel_colors(image, level, 1)
        assert seen.shape == expected.shape
        assert np.abs(seen - expected).max() <= 2  # each channel is rounded


# -- neuroglancer ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def viewer(browser: Browser) -> Iterator[Any]:
    neuroglancer = pytest.importorskip("neuroglancer")
    neuroglancer.set_server_bind_address("127.0.0.1")
    shown = neuroglancer.Viewer()
    with shown.config_state.txn() as config:
        config.show_ui_controls = config.show_panel_borders = False
    browser.open(shown.get_viewer_url())
    yield shown
    browser.open("about:blank")
    neuroglancer.stop()


def show(viewer: Any, layers: dict[str, Any], zoom: float = 1) -> np.ndarray[Any, Any]:
    """The middle plane, as large as it is: one pixel for ``zoom`` voxels of level 0."""
    import neuroglancer

    height, width = int(HEIGHT / zoom), int(WIDTH / zoom)
    with viewer.txn() as state:
        state.layers.clear()
        for name, layer in layers.items():
            state.layers[name] = layer
        voxel = [SCALE[name] * 1e-6 for name in "xyz"]
        state.dimensions = neuroglancer.CoordinateSpace(names=["x", "y", "z"], units="m", scales=voxel)
        state.position = [(WIDTH - 1) / 2, (HEIGHT - 1) / 2, 1]  # coordinates are those of voxels' centres
        state.cross_section_scale = zoom
        state.layout = "xy"
        state.show_axis_lines = state.show_scale_bar = state.show_default_annotations = False
    with viewer.config_state.txn() as config:
        config.viewer_size = [width, height]
    done, found = threading.Event(), []

    def keep(state: Any) -> None:
        found.append(state.screenshot)
        done.set()

    viewer.async_screenshot(keep)
    assert done.wait(TIMEOUT_S)
    assert (found[0].width, found[0].height) == (width, height)
    return decode(found[0].image)


def image_layer(url: str, channel: int) -> Any:
    """A channel in grey, black at 0, as bright as a byte holds at 1,275."""
    import neuroglancer

    shader = "void main() { emitGrayscale(float(getDataValue().value) / 1275.0); }"
    return neuroglancer.ImageLayer(source=f"zarr://{url}", shader=shader, local_position=[channel], opacity=1)


@pytest.mark.parametrize("form", FORMS)
def test_neuroglancer_shows_level_0(form: str, served: dict[str, Served], viewer: Any) -> None:
    url, image = served[form]
    for channel in range(2):
        seen = show(viewer, {"image": image_layer(url, channel)})
        assert np.abs(seen - image[0][channel, 1][..., None] / 5).max() <= 1


@pytest.mark.parametrize("form", ["0.4", "0.5-sharded"])
def test_neuroglancer_puts_level_1_where_level_0_lies(form: str, served: dict[str, Served], viewer: Any) -> None:
    url, image = served[form]
    seen = show(viewer, {"image": image_layer(url, 0)}, zoom=2)
    assert np.abs(seen - image[1][0, 1][..., None] / 5).max() <= 1


@pytest.mark.parametrize("form", ["0.4", "0.5-sharded"])
def test_neuroglancer_shows_labels_over_the_image(form: str, served: dict[str, Served], viewer: Any) -> None:
    import neuroglancer

    url, image = served[form]
    labels = neuroglancer.SegmentationLayer(
        source=f"zarr://{url}/labels/objects",
        segments=list(LABEL_COLORS),
        segment_colors=LABEL_COLORS,
        selected_alpha=1,
        saturation=1,
    )
    seen = show(viewer, {"image": image_layer(url, 1), "labels": labels})
    expected = np.repeat(image[0][1, 1][..., None] / 5, 3, axis=-1)
    for label, color in LABEL_COLORS.items():
        expected[labelled()[1] == label] = np.frombuffer(bytes.fromhex(color[1:]), "u1")
    assert np.abs(seen - expected).max() <= 1


# -- napari ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_the_reader_of_napari_gives_layers(form: str, served: dict[str, Served]) -> None:
    reader = pytest.importorskip("napari_ome_zarr", reason="no napari-ome-zarr, which brings napari: 400 MB")
    _, image = served[form]
    path = str(image.group.store).removeprefix("file://")
    layers = {kind: (data, meta) for data, meta, kind in reader.napari_get_reader(path)(path)}
    data, meta = layers["image"]
    assert meta["channel_axis"] == 0
    assert list(meta["scale"]) == list(SCALE.values())
    assert [name.rpartition(": ")[2] for name in meta["name"]] == ["rows", "columns"]
    assert meta["contrast_limits"] == [[100, 900], [0, 1270]]
    for level, found in enumerate(data):
        np.testing.assert_array_equal(np.asarray(found), image[level][...])
    labels, meta = layers["labels"]
    assert list(meta["scale"]) == list(SCALE.values())
    np.testing.assert_array_equal(np.asarray(labels[0]), labelled())
