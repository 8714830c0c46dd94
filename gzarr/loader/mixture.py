"""`gzarr.Mixture`: batches of several loaders in turn, in exact proportions.

Theory of operation. A loader of the share ``p`` of all batches gives its batch number ``k`` between the steps ``k / p``
and ``(k + 1) / p``. Of those whose batch may come, the one that is due first gives it. So after any number of steps
``t``, a loader has given ``p t`` batches, less or more by less than one. Numbers are fractions, which are exact.
Source: Baruah et al., "Proportionate progress", Algorithmica 15, 1996.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil
from numbers import Real
from typing import Any

from gzarr.loader.arguments import integer
from gzarr.loader.loader import Loader


class Mixture:
    """Batches of several loaders, in exact proportions.

    Each step gives a whole batch of one loader, and its name. After ``t`` steps, a loader with the share ``p`` of all
    weights has given ``p * t`` batches, less or more by less than one. A loader whose epoch ends begins its next one.

    Parameters
    ----------
    loaders : mapping
        By name, a loader and its weight.
    steps : int, optional
        Steps of an epoch. By default as many as it takes until every loader has given an epoch of its own.

    Raises
    ------
    ValueError
        If there is no loader, a weight is not above 0, or a loader has no batches.
    TypeError
        If something is not a loader and a number.

    Notes
    -----
    Iterating again gives the next epoch, in which loaders go on where they were, or, after a ``break``, the rest of the
    one that was begun. At each step, all ranks get a batch of the same loader.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> ones, twos = (gzarr.Loader(np.full(6, n), batch_size=2) for n in (1, 2))
    >>> for name, batch in gzarr.Mixture({"ones": (ones, 0.75), "twos": (twos, 0.25)}, steps=4):
    ...     print(name, batch)
    ones [1 1]
    ones [1 1]
    ones [1 1]
    twos [2 2]
    """

    def __init__(self, loaders: Mapping[str, tuple[Loader, float]], *, steps: int | None = None) -> None:
        if not isinstance(loaders, Mapping) or not loaders:
            raise ValueError(f"Mixture: expected loaders and weights by name, got {loaders!r:.100}")
        for name, pair in loaders.items():
            _check(name, pair)
        self._loaders = {name: loader for name, (loader, _) in loaders.items()}
        weights = {name: Fraction(str(weight)) for name, (_, weight) in loaders.items()}
        self._each = {name: sum(weights.values()) / weight for name, weight in weights.items()}  # steps for a batch
        longest = max(ceil(len(loader) * self._each[name]) for name, loader in self._loaders.items())
        self.steps = integer("steps", longest if steps is None else steps)
        if self.steps < 1:
            raise ValueError(f"steps must be 1 or more, got {self.steps}")
        self._counts = dict.fromkeys(self._loaders, 0)
        self._iterators: dict[str, Iterator[Any]] = {}

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return self.steps

    @property
    def epoch(self) -> int:
        """Number of the epoch that is under way, or of the next one, from 0."""
        return sum(self._counts.values()) // self.steps

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        end = (self.epoch + 1) * self.steps
        while sum(self._counts.values()) < end:
            name = self._next_name()
            batch = self._next_batch(name)
            self._counts[name] += 1
            yield name, batch

    def _next_name(self) -> str:
        """The loader that gives the next batch: of those whose turn has come, the one that is due first."""
        step, each, counts = sum(self._counts.values()), self._each, self._counts
        ready = [name for name in self._loaders if counts[name] * each[name] < step + 1]
        return min(ready, key=lambda name: (counts[name] + 1) * each[name])

    def _next_batch(self, name: str) -> Any:
        for _ in range(2):
            if name not in self._iterators:
                self._iterators[name] = iter(self._loaders[name])
            for batch in self._iterators[name]:
                return batch
            del self._iterators[name]  # its epoch has ended; that of a place may have been at its end
        raise ValueError(f"Mixture: the loader {name!r} gives no batches")

    def close(self) -> None:
        """End the iterations of all loaders, and wait for their threads. Each goes on with its next epoch."""
        self._iterators.clear()
        for loader in self._loaders.values():
            loader.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the place: what `load_state_dict` takes, in this process or another one, of any number of ranks.

        Returns
        -------
        dict
            Numbers, texts and lists, which JSON can store.
        """
        loaders = {name: loader.state_dict() for name, loader in self._loaders.items()}
        return {"version": 1, "each": self._told(), "batches": dict(self._counts), "loaders": loaders}

    def _told(self) -> dict[str, str]:
        return {name: str(each) for name, each in self._each.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says.

        Parameters
        ----------
        state : dict
            What `state_dict` gave.

        Raises
        ------
        ValueError
            If it is the state of other loaders or weights.
        """
        if not isinstance(state, Mapping) or state.get("version") != 1 or state.get("each") != self._told():
            got = state.get("each", list(state)) if isinstance(state, Mapping) else state
            raise ValueError(
                f"Mixture: expected a state of these weights, a batch every {self._told()} steps; got {got!r:.200}"
            )
        for name, loader in self._loaders.items():
            loader._place_in(state["loaders"][name])  # noqa: SLF001 - all are checked before one goes there
        for name, loader in self._loaders.items():
            loader.load_state_dict(state["loaders"][name])
        self._iterators.clear()
        self._counts = {name: integer("batches", state["batches"][name]) for name in self._loaders}

    def __repr__(self) -> str:
        shares = ", ".join(f"{name!r} {float(1 / each):.3g}" for name, each in self._each.items())
        return f"<Mixture of {shares}: {self.steps} steps an epoch>"


def _check(name: str, pair: Any) -> None:
    is_pair = isinstance(pair, tuple) and len(pair) == 2
    if not (is_pair and isinstance(pair[0], Loader) and isinstance(pair[1], Real)):
        raise TypeError(f"Mixture: {name!r} must be (loader, weight), got {pair!r:.100}")
    if not 0 < float(pair[1]) < float("inf"):
        raise ValueError(f"Mixture: the weight of {name!r} must be above 0, got {pair[1]}")
    if not len(pair[0]):
        raise ValueError(f"Mixture: the loader {name!r} gives no batches")
