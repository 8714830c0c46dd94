"""Images of labels beside their image."""

from __future__ import annotations

import numpy as np
import pytest

import gzarr
from gzarr.images import Image, create_image
from gzarr.images.label_images import label_names


def test_labels_are_a_mapping_of_images() -> None:
    image = create_image(shape=(4, 4), dtype="u1")
    assert (dict(image.labels), label_names(image.group)) == ({}, [])
    labels = image.group.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["cells", "deep/er"]}})
    for name in ("cells", "deep/er"):
        create_image(labels, np.ones((4, 4), "u4"), path=name)
    assert list(image.labels) == ["cells", "deep/er"]
    assert isinstance(image.labels["deep/er"], Image)
    assert image.labels["cells"].dtype == np.dtype("u4")
    with pytest.raises(KeyError, match="'nuclei' is none of the labels of"):
        image.labels["nuclei"]
    assert isinstance(image.group, gzarr.Group)
