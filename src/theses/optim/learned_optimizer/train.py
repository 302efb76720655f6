"""Make the shipped weights again: ``python -m theses.optim.learned_optimizer.train quadratic FOLDER``."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from theses.optim.learned_optimizer.families import (
    PolyRegressionFamily,
    ProblemFamily,
    Problems,
    QuadraticFamily,
)
from theses.optim.learned_optimizer.learning import FitLog, fit, sgld_samples
from theses.optim.learned_optimizer.networks import LearnedOptimizer
from theses.optim.learned_optimizer.solvers import roll_out

__all__ = ["RECIPES", "Recipe", "main", "pack", "train"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """All that decides the shipped weights.

    Parameters
    ----------
    family : str
        ``"quadratic"`` (dimension 50) or ``"network"`` (degree 5, 50 hidden units).
    seed : int
        Seed of initial weights, prior split and training.
    n_prior : int
        Problems of the prior split.
    imitation : int
        Iterations of imitation at rate 1e-3.
    iters : int
        Iterations of learning, Adam's rate falling geometrically from ``lr`` to ``final_lr``.
    lr, final_lr : float
        Rates.
    batch_size : int
        Runs at a time.
    n_steps : int
        Mean length of a run.
    segment : int
        Steps through which is differentiated.
    rise_weight : float
        Weight on steps that go up.
    clip_norm : float
        Greatest norm of the weights' gradient, in training only.
    n_samples : int
        Langevin samples.
    sgld_lr, temperature : float
        Their step, and the temperature of their noise.
    horizon : int
        Steps of the property that the samples have to keep on the prior split.
    """

    family: str
    seed: int = 100
    n_prior: int = 500
    imitation: int = 1000
    iters: int = 10_000
    lr: float = 1e-3
    final_lr: float = 1e-5
    batch_size: int = 64
    n_steps: int = 200
    segment: int = 1
    rise_weight: float = 0.0
    clip_norm: float = 1.0
    n_samples: int = 10
    sgld_lr: float = 1e-6
    temperature: float = 2e-3
    horizon: int = 100

    def problem_family(self) -> ProblemFamily:
        """The family of problems."""
        return (
            QuadraticFamily(dim=50)
            if self.family == "quadratic"
            else PolyRegressionFamily(degree=5, hidden=50)
        )

    def prior_split(self, family: ProblemFamily) -> Problems:
        """The problems on which is learned."""
        return family.sample(self.n_prior, torch.Generator().manual_seed(self.seed))

    def digest(self) -> str:
        """SHA-256 of the recipe."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


RECIPES: Final[dict[str, Recipe]] = {
    "quadratic": Recipe("quadratic", iters=120_000, lr=3e-4, rise_weight=3.0),
    "network": Recipe("network", iters=12_000, n_steps=100, segment=5),
}


def train(recipe: Recipe, folder: Path | None = None) -> tuple[LearnedOptimizer, FitLog]:
    """Imitate, then learn; with a folder it goes on from the checkpoints there."""
    family = recipe.problem_family()
    split = recipe.prior_split(family)
    opt = LearnedOptimizer(
        recipe.family, family.dim if recipe.family == "network" else None, generator=recipe.seed
    )

    def at(name: str) -> Path | None:
        return None if folder is None else folder / f"{recipe.family}-{name}.pt"

    def told(done: int, objective: float) -> None:
        if done % 1000 == 0:
            _LOG.info("%s %d/%d objective %.4f", recipe.family, done, recipe.iters, objective)

    fit(
        opt,
        family,
        split,
        recipe.n_steps,
        recipe.imitation,
        1e-3,
        imitate="hbf" if recipe.family == "quadratic" else "adam",
        batch_size=recipe.batch_size,
        clip_norm=recipe.clip_norm,
        generator=recipe.seed + 1,
        checkpoint=at("imitation"),
        progress=told,
    )
    log = fit(
        opt,
        family,
        split,
        recipe.n_steps,
        recipe.iters,
        recipe.lr,
        final_lr=recipe.final_lr,
        segment=recipe.segment,
        rise_weight=recipe.rise_weight,
        batch_size=recipe.batch_size,
        clip_norm=recipe.clip_norm,
        generator=recipe.seed + 2,
        checkpoint=at("learning"),
        progress=told,
    )
    return opt, log


def pack(opt: LearnedOptimizer, recipe: Recipe) -> list[dict[str, Tensor]]:
    """Langevin samples around the learned weights that keep their share of descending runs."""
    family = recipe.problem_family()
    split = recipe.prior_split(family)

    def descending(solver: LearnedOptimizer) -> float:
        losses = roll_out(solver, family, split, recipe.horizon).losses
        solved = losses[:-1] < 1e-16
        return float(((losses[1:] < losses[:-1]) | solved).all(0).double().mean())

    return sgld_samples(
        opt,
        family,
        split,
        recipe.n_steps,
        n=recipe.n_samples,
        lr=recipe.sgld_lr,
        temperature=recipe.temperature,
        rise_weight=recipe.rise_weight,
        constraint=descending,
        generator=recipe.seed + 3,
    )


def save(samples: Sequence[dict[str, Tensor]], recipe: Recipe, done: int, path: Path) -> str:
    """Write samples and recipe to a safetensors file; returns its SHA-256."""
    from safetensors.torch import save_file

    names = list(samples[0])
    stacked = {name: torch.stack([sample[name] for sample in samples]).contiguous() for name in names}
    note: dict[str, Any] = {**asdict(recipe), "iterations_done": done}
    fresh = path.with_suffix(".part")
    save_file(stacked, fresh, metadata={"recipe": json.dumps(note, sort_keys=True)})
    fresh.replace(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: train (or go on), sample, write ``FAMILY.safetensors`` and its hash.

    Parameters
    ----------
    arguments : sequence of str or None, default=None
        The command line's by default.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=sorted(RECIPES))
    parser.add_argument("folder", type=Path, help="for checkpoints and the result")
    parser.add_argument("--freeze", action="store_true", help="take the checkpoint, train no further")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options.folder.mkdir(parents=True, exist_ok=True)
    recipe = RECIPES[options.family]
    done = recipe.iters
    if options.freeze:
        saved = torch.load(options.folder / f"{recipe.family}-learning.pt", weights_only=True)
        done = saved["done"]
        dim = recipe.problem_family().dim if recipe.family == "network" else None
        opt = LearnedOptimizer(recipe.family, dim, generator=0)
        opt.load_state_dict(saved["opt"])
    else:
        opt, log = train(recipe, options.folder)
        _LOG.info("%s", log.summary())
    target = options.folder / f"{recipe.family}.safetensors"
    digest = save(pack(opt, recipe), recipe, done, target)
    _LOG.info("%s: %d iterations, SHA-256 %s", target, done, digest)


if __name__ == "__main__":
    main()
