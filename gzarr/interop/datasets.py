"""Samples of a `gzarr.Loader` as an `IterableDataset` of Hugging Face's `datasets`, with its ``map`` and ``filter``."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from operator import itemgetter
from typing import Any

from gzarr.errors import MissingExtraError
from gzarr.loader.loader import Loader
from gzarr.tensors import map_arrays

try:
    from datasets import Features, IterableDataset
except ImportError as error:
    raise MissingExtraError("gzarr.interop.datasets needs datasets of Hugging Face: pip install datasets") from error


def dataset(loader: Loader, *, features: Features | None = None) -> IterableDataset:
    """Return a loader as an `IterableDataset`, whose examples are the samples of its batches, in their order.

    Shuffle, and divide among ranks, by the loader. A place within an epoch is the loader's: `datasets` goes through
    all samples before it again, in the loader's next epoch: before going on, choose it by ``loader.set_epoch``.

    Parameters
    ----------
    loader : Loader
        The loader. Its batches are dicts of arrays; an array without a name becomes ``{"array": ...}``.
    features : datasets.Features, optional
        What examples consist of, if it cannot be told from the first ones.

    Returns
    -------
    datasets.IterableDataset
        The data set. Every iteration is another epoch.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> from gzarr.interop import datasets
    >>> loader = gzarr.Loader({"x": gzarr.array(np.arange(6), chunks=2)}, batch_size=4)
    >>> [example["x"].item() for example in datasets.dataset(loader).filter(lambda example: example["x"] % 2)]
    [1, 3, 5]
    """
    return IterableDataset.from_generator(_examples, features, gen_kwargs={"loader": loader})


def _examples(loader: Loader) -> Iterator[dict[str, Any]]:
    for batch in loader:
        named = batch if isinstance(batch, Mapping) else {"array": batch}
        lengths: set[int] = set()
        map_arrays(lambda values: lengths.add(len(values)), named)  # noqa: B023 - called here
        if len(lengths) > 1:
            raise ValueError(f"a batch has arrays of {sorted(lengths)} rows: let transform make them equally long")
        for number in range(max(lengths, default=0)):
            # Copied: the memory of a batch would be held as long as one of its samples.
            yield deepcopy(map_arrays(itemgetter(number), named))
