"""What a study's ``run`` is given: preset, seed, random generators, stages, progress."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from filelock import FileLock

from theses.evidence.codec import decode, encode
from theses.resources import cache_folder

if TYPE_CHECKING:
    import torch

__all__ = ["Context"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_ONCE_SEED: Final = 100


def _no_progress(fraction: float, message: str) -> None:
    _LOG.debug("%3.0f %% %s", 100 * fraction, message)


@dataclass
class Context:
    """Surroundings of one unit.

    Parameters
    ----------
    preset : {"smoke", "standard", "long", "paper"}
        How large to measure.
    seed : int
        Seed of the unit; all randomness comes from it.
    device : str, default="cpu"
        Torch device.
    data_folder : pathlib.Path or None, default=None
        Local folder with the paper's data, for the ``paper`` preset.
    limit : int or None, default=None
        Cap on samples for a trial run of the ``paper`` preset.
    stages : mutable mapping of str to str
        Encoded results of finished arms; the runner fills it when it resumes a unit, and stores what is put.
    progress : callable
        Takes the finished share of the unit and a message.
    recipe : str, default=""
        Digest of all that decides the unit's result but the seed, under which :meth:`once` keeps results
        from unit to unit; without one it keeps none.

    Examples
    --------
    >>> ctx = Context("smoke", seed=0)
    >>> ctx.stage("arm", lambda: {"value": 1.5})
    {'value': 1.5}
    >>> bool(ctx.rng("draw").random() == ctx.rng("draw").random())
    True
    """

    preset: str
    seed: int
    device: str = "cpu"
    data_folder: Path | None = None
    limit: int | None = None
    stages: MutableMapping[str, str] = field(default_factory=dict)
    progress: Callable[[float, str], None] = _no_progress
    recipe: str = ""

    def integer(self, name: str) -> int:
        """Seed for a library that takes only an integer: below 2**32, set by the unit's seed and a name."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:4], "little")

    def rng(self, name: str) -> np.random.Generator:
        """NumPy generator of a named stream; each call starts the stream anew, so arms do not shift it."""
        return np.random.default_rng([self.seed, self.integer(name)])

    def torch_generator(self, name: str) -> torch.Generator:
        """Torch CPU generator of a named stream; each call starts the stream anew."""
        import torch

        return torch.Generator().manual_seed(self.integer(name))

    def stage(self, name: str, function: Callable[[], T]) -> T:
        """Result of one arm, computed once: a unit that was killed goes on after its last finished stage.

        Parameters
        ----------
        name : str
            Unique within the unit.
        function : callable
            Computes the result, which must be storable (see :func:`theses.evidence.codec.encode`). Draw from
            named streams inside, not from a generator made outside.

        Returns
        -------
        object
            The result as it comes back from the store, the same whether fresh or resumed.
        """
        if name not in self.stages:
            self.stages[name] = encode(function())
        result: T = decode(self.stages[name])
        return result

    def once(self, name: str, function: Callable[[Context], T]) -> T:
        """Result of what is done once a method and not once a seed: tuning, a model that all seeds share.

        The first unit that asks computes it, and keeps it in the cache folder under the recipe; the others
        take it from there, and wait if it is being made. It is a stage of each.

        Parameters
        ----------
        name : str
            Unique among the stages of a unit.
        function : callable
            Takes a context of the same preset with the seed 100, which no unit of a card has, and computes
            the result, which must be storable.

        Returns
        -------
        object
            The result as it comes back from the store.
        """

        def shared() -> Any:
            def made() -> str:
                surroundings = Context(
                    self.preset, _ONCE_SEED, self.device, self.data_folder, self.limit, progress=self.progress
                )
                return encode(function(surroundings))

            if not self.recipe:
                return decode(made())
            key = hashlib.sha256(f"{self.recipe}/{self.preset}/{self.limit}/{name}".encode()).hexdigest()
            path = cache_folder() / "once" / f"{key}.json"
            path.parent.mkdir(exist_ok=True)
            with FileLock(path.with_suffix(".lock")):
                if not path.exists():
                    fresh = path.with_suffix(".part")
                    fresh.write_text(made(), encoding="utf-8")
                    fresh.replace(path)
                return decode(path.read_text(encoding="utf-8"))

        result: T = self.stage(name, shared)
        return result
