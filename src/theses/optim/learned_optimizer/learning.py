"""Learning the update step: imitation of a solver, segments of trajectories, samples around the result."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
import torch
from torch import Tensor

from theses.optim.learned_optimizer.families import ProblemFamily, Problems
from theses.optim.learned_optimizer.networks import LearnedOptimizer
from theses.optim.learned_optimizer.solvers import AdamSolver, HeavyBall, Solver, State
from theses.validation import as_torch_generator, check_choice, check_integer, check_real

__all__ = ["FitLog", "fit", "sgld_samples"]

_LOG = logging.getLogger(__name__)
_OBJECTIVES: Final = ("log-ratio", "ratio")
_EVERY: Final = 100


@dataclass(frozen=True)
class FitLog:
    """Course of learning.

    Parameters
    ----------
    steps : tuple of int
        Iterations at which the objective was noted.
    objective : tuple of float
        Its mean since the note before.
    restarts : tuple of int
        Problems that were replaced because their run had become non-finite, until then.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments.

    Examples
    --------
    >>> FitLog((100, 200), (0.5, -0.1), (0, 0)).summary()
    '200 iterations: objective 0.5 -> -0.1'
    """

    steps: tuple[int, ...]
    objective: tuple[float, ...]
    restarts: tuple[int, ...]

    def summary(self) -> str:
        """One line: iterations, first and last value of the objective.

        Returns
        -------
        str
            The line.
        """
        if not self.steps:
            return "no iterations"
        return f"{self.steps[-1]} iterations: objective {self.objective[0]:.3g} -> {self.objective[-1]:.3g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            By name.
        """
        return asdict(self)

    def to_frame(self) -> pl.DataFrame:
        """Columns ``step``, ``objective``, ``restarts``.

        Returns
        -------
        polars.DataFrame
            The table.
        """
        return pl.DataFrame(
            {"step": list(self.steps), "objective": list(self.objective), "restarts": list(self.restarts)}
        )


def _above(loss: Tensor, family: ProblemFamily) -> Tensor:
    excess = loss - family.f_lower
    if bool((excess < 0).any()):
        raise ValueError(
            f"f_lower must be a lower bound, got {family.f_lower} and a loss of {float(loss.min())}"
        )
    return excess


def _differentiable(family: ProblemFamily, z: Tensor, params: Problems) -> tuple[Tensor, Tensor, Tensor]:
    """Loss with its first-order dependence on ``z``, its value, and the gradient, from one evaluation."""
    value, grad = family.value_and_grad(z.detach(), params)
    return value + ((z - z.detach()) * grad).sum(-1), value, grad


def _stack(states: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
    fresh, old = states
    return torch.where(mask.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)


def fit(
    opt: LearnedOptimizer,
    family: ProblemFamily,
    params: Problems,
    n_steps: int,
    iters: int,
    lr: float = 1e-3,
    *,
    segment: int = 1,
    imitate: str | None = None,
    baseline: Solver | None = None,
    final_lr: float | None = None,
    batch_size: int = 64,
    clip_norm: float | None = 1.0,
    objective: str = "log-ratio",
    rise_weight: float = 0.0,
    generator: torch.Generator | int | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 1000,
    progress: Callable[[int, float], None] | None = None,
) -> FitLog:
    r"""Learn the weights of ``opt`` in place on the problems of the prior split.

    A batch of runs goes on from iteration to iteration, each started anew on a random problem with
    probability ``segment / n_steps``, so that points from all along a trajectory are seen. Each iteration
    takes ``segment`` steps and descends on the mean of :math:`\log \ell(z_{t+1}) - \log \ell(z_t)` (or of the
    ratio itself); gradients of the loss that enter the network are constants. With ``imitate`` it descends
    instead on the squared distance to the baseline's step from the same point, relative to that step's
    length.
    Gradients of the weights are clipped; steps of the solver never are. O(segment * batch_size * dim) an
    iteration beyond the network.

    Parameters
    ----------
    opt : LearnedOptimizer
        What learns.
    family : ProblemFamily
        Gives losses and gradients.
    params : Problems
        Problems to learn on; they must not be those of the certificate.
    n_steps : int
        Mean length of a run.
    iters : int
        Iterations.
    lr : float, default=1e-3
        Adam's learning rate at the start.
    segment : int, default=1
        Steps through which is differentiated.
    imitate : {None, "hbf", "adam"}, default=None
        Baseline to imitate.
    baseline : Solver or None, default=None
        The baseline with its constants; by default heavy ball for ``family.mu[0]`` and ``family.L[1]``, or
        Adam with rate 0.008.
    final_lr : float or None, default=None
        Rate at the end of a geometric decay; None keeps ``lr``.
    batch_size : int, default=64
        Runs at a time.
    clip_norm : float or None, default=1.0
        Greatest norm of the weights' gradient.
    objective : {"log-ratio", "ratio"}, default="log-ratio"
        Which ratio of losses.
    rise_weight : float, default=0.0
        Weight of the mean positive part of the log-ratio, which punishes steps that go up.
    generator : torch.Generator, int or None, default=None
        Draws problems and restarts.
    checkpoint : path or None, default=None
        File from which learning goes on if it is there, and to which it is written atomically.
    checkpoint_every : int, default=1000
        Iterations between two writes.
    progress : callable or None, default=None
        Called with the iteration and the mean objective every 100 iterations.

    Returns
    -------
    FitLog
        The course.

    Raises
    ------
    ValueError
        If a loss lies below ``family.f_lower``, or a setting is out of range.

    References
    ----------
    .. [1] arXiv:2410.07704, section 5; the schedule is that of the companion paper's pipeline.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import LearnedOptimizer, QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> opt = LearnedOptimizer(generator=0)
    >>> split = family.sample(8, generator=0)
    >>> log = fit(opt, family, split, n_steps=10, iters=100, imitate="hbf", generator=1)
    >>> log.steps
    (100,)
    """
    n_steps = check_integer("n_steps", n_steps, minimum=1)
    iters = check_integer("iters", iters, minimum=1)
    segment = check_integer("segment", segment, minimum=1)
    batch_size = check_integer("batch_size", batch_size, minimum=1)
    checkpoint_every = check_integer("checkpoint_every", checkpoint_every, minimum=1)
    check_real("lr", lr, minimum=0, include=False)
    end = lr if final_lr is None else check_real("final_lr", final_lr, minimum=0, include=False)
    if clip_norm is not None:
        check_real("clip_norm", clip_norm, minimum=0, include=False)
    check_real("rise_weight", rise_weight, minimum=0)
    check_choice("objective", objective, _OBJECTIVES)
    teacher = _teacher(imitate, baseline, family)
    source = as_torch_generator(generator)
    weights = list(opt.parameters())
    for weight in weights:
        weight.requires_grad_(True)
    adam = torch.optim.Adam(weights, lr=lr, foreach=True)
    runs = _Runs(opt, family, params, batch_size, n_steps, source, teacher)
    notes: dict[str, list[Any]] = {"steps": [], "objective": [], "restarts": []}
    path = None if checkpoint is None else Path(checkpoint)
    first, restarts, total = 0, 0, 0.0
    if path is not None and path.exists():
        saved = torch.load(path, weights_only=True)
        opt.load_state_dict(saved["opt"])
        adam.load_state_dict(saved["adam"])
        source.set_state(saved["generator"])
        runs.load(saved["runs"])
        notes, first, restarts, total = saved["notes"], saved["done"], saved["restarts"], saved["total"]
    for done in range(first + 1, iters + 1):
        loss = runs.imitation() if teacher is not None else runs.ratios(segment, objective, rise_weight)
        adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(weights, math.inf if clip_norm is None else clip_norm)
        if bool(torch.isfinite(norm)):
            for group in adam.param_groups:
                group["lr"] = lr * (end / lr) ** ((done - 1) / iters)
            adam.step()
        restarts += runs.renew(segment)
        total += float(loss.detach())
        if done % _EVERY == 0 or done == iters:
            span = done - (notes["steps"][-1] if notes["steps"] else 0)
            notes["steps"].append(done)
            notes["objective"].append(total / span)
            notes["restarts"].append(restarts)
            _LOG.debug("iteration %d: objective %.4g", done, total / span)
            if progress is not None:
                progress(done, total / span)
            total = 0.0
        if path is not None and (done % checkpoint_every == 0 or done == iters):
            fresh = path.with_suffix(".part")
            torch.save(
                {
                    "opt": opt.state_dict(),
                    "adam": adam.state_dict(),
                    "generator": source.get_state(),
                    "runs": runs.dump(),
                    "notes": notes,
                    "done": done,
                    "restarts": restarts,
                    "total": total,
                },
                fresh,
            )
            fresh.replace(path)
    return FitLog(tuple(notes["steps"]), tuple(notes["objective"]), tuple(notes["restarts"]))


def _teacher(imitate: str | None, baseline: Solver | None, family: ProblemFamily) -> Solver | None:
    if imitate is None:
        return None
    check_choice("imitate", imitate, ("hbf", "adam"))
    if baseline is not None:
        return baseline
    if imitate == "adam":
        return AdamSolver(lr=0.008)
    mu, L = getattr(family, "mu", None), getattr(family, "L", None)
    if mu is None or L is None:
        raise ValueError("baseline must be given to imitate heavy ball on a family without mu and L")
    return HeavyBall.worst_case(mu=mu[0], L=L[1])


class _Runs:
    """Batch of runs that go on from iteration to iteration."""

    def __init__(
        self,
        opt: LearnedOptimizer,
        family: ProblemFamily,
        pool: Problems,
        batch_size: int,
        n_steps: int,
        source: torch.Generator,
        teacher: Solver | None,
    ) -> None:
        self.opt, self.family, self.pool, self.n_steps = opt, family, pool, n_steps
        self.source, self.teacher = source, teacher
        # In imitation the baseline walks and the network looks on.
        self.walker: Solver = opt if teacher is None else teacher
        self.index = self._draw(batch_size)
        self.params: Problems = pool[self.index]
        z = family.z0(self.params)
        self.loss, self.grad = family.value_and_grad(z, self.params)
        self.state: State = self.walker.init_state(z, self.loss)

    def _draw(self, n: int) -> Tensor:
        return torch.randint(len(self.pool), (n,), generator=self.source)

    def ratios(self, segment: int, objective: str, rise_weight: float) -> Tensor:
        state, loss, grad = self.state, self.loss, self.grad
        before = _above(loss, self.family).clamp(min=1e-300)
        total = torch.zeros_like(before)
        for _ in range(segment):
            state = self.opt.step(state, loss.detach(), grad)
            linear, loss, grad = _differentiable(self.family, state.z, self.params)
            # A value of exact zero would have no logarithm; its run is renewed below.
            value = _above(loss, self.family).clamp(min=1e-300)
            log_ratio = (linear - loss) / value + value.log() - before.log()
            total = total + (log_ratio.exp() if objective == "ratio" else log_ratio)
            if rise_weight:
                total = total + rise_weight * log_ratio.clamp(min=0)
            before = value
        z, z_before, loss_before, t, _ = state
        self.state = State(z.detach(), z_before.detach(), loss_before.detach(), t.detach())
        self.loss, self.grad = loss.detach(), grad
        good = torch.isfinite(total)
        # Diverged runs say nothing about how to move; they are renewed, and counted in the log.
        return torch.where(good, total, 0.0).sum() / (segment * good.sum().clamp(min=1))

    def imitation(self) -> Tensor:
        assert self.teacher is not None
        ours = self.opt.step(self.state, self.loss, self.grad).z
        self.state = self.teacher.step(self.state, self.loss, self.grad)
        self.loss, self.grad = self.family.value_and_grad(self.state.z, self.params)
        wanted = self.state.z - self.state.z_before
        return ((ours - self.state.z).square().sum(-1) / wanted.square().sum(-1).clamp(min=1e-300)).mean()

    def renew(self, steps: int) -> int:
        """Start runs anew: at random, where solved, and where lost. Returns how many were lost."""
        n = len(self.index)
        at_random = torch.rand(n, generator=self.source) < steps / self.n_steps
        lost = ~torch.isfinite(self.loss) | ~torch.isfinite(self.grad).all(-1)
        solved = self.loss - self.family.f_lower < 1e-16
        renewed = at_random | lost | solved
        drawn = self._draw(n)
        if bool(renewed.any()):
            self.index = torch.where(renewed, drawn, self.index)
            self.params = self.pool[self.index]
            z = _stack((self.family.z0(self.params), self.state.z), renewed)
            loss, grad = self.family.value_and_grad(z, self.params)
            fresh = self.walker.init_state(z, loss)
            self.loss = torch.where(renewed, loss, self.loss)
            self.grad = _stack((grad, self.grad), renewed)
            parts = [_stack(pair, renewed) for pair in zip(fresh[:4], self.state[:4], strict=True)]
            memory = [_stack(pair, renewed) for pair in zip(fresh.memory, self.state.memory, strict=True)]
            self.state = State(parts[0], parts[1], parts[2], parts[3], tuple(memory))
        return int(lost.sum())

    def dump(self) -> dict[str, Any]:
        return {"index": self.index, "loss": self.loss, "grad": self.grad, "state": list(self.state[:4]),
                "memory": list(self.state.memory)}  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        self.index, self.loss, self.grad = saved["index"], saved["loss"], saved["grad"]
        self.params = self.pool[self.index]
        z, z_before, loss_before, t = saved["state"]
        self.state = State(z, z_before, loss_before, t, tuple(saved["memory"]))


def sgld_samples(
    opt: LearnedOptimizer,
    family: ProblemFamily,
    params: Problems,
    n_steps: int,
    *,
    n: int = 10,
    lr: float = 1e-6,
    temperature: float | None = None,
    thin: int = 10,
    batch_size: int = 64,
    rise_weight: float = 0.0,
    constraint: Callable[[LearnedOptimizer], float] | None = None,
    slack: float = 0.02,
    generator: torch.Generator | int | None = None,
) -> list[dict[str, Tensor]]:
    r"""Sample weights around what was learned: the support of prior and posterior.

    Langevin steps :math:`w \leftarrow w - \eta \nabla f(w) + \sqrt{2 \eta \tau}\,\xi` on the objective of
    :func:`fit` over random segments, its gradient clipped to norm 1, of which every ``thin``-th point is
    proposed. A proposal that falls short of the constraint is dropped, and the chain goes back to its last
    sample.

    Parameters
    ----------
    opt : LearnedOptimizer
        What was learned; it is left as it is and is the first sample.
    family : ProblemFamily
        Gives losses and gradients.
    params : Problems
        The prior split.
    n_steps : int
        Mean length of a run.
    n : int, default=10
        Samples.
    lr : float, default=1e-6
        :math:`\eta`.
    temperature : float or None, default=None
        :math:`\tau`; one over the number of problems by default.
    thin : int, default=10
        Langevin steps between two proposals.
    batch_size : int, default=64
        Runs at a time.
    rise_weight : float, default=0.0
        As in :func:`fit`.
    constraint : callable or None, default=None
        Value of a solver, say its share of runs with the property on the prior split; a sample must reach
        that of ``opt`` less ``slack``.
    slack : float, default=0.02
        How much less is let through.
    generator : torch.Generator, int or None, default=None
        Draws noise, problems and restarts.

    Returns
    -------
    list of dict
        ``n`` state dictionaries, rounded to single precision so that they can be shipped without change.

    Raises
    ------
    ValueError
        If a setting is out of range.
    RuntimeError
        If fifty proposals in a row fall short of the constraint.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, appendix on training; after Welling and Teh, ICML 2011, equation 4.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import LearnedOptimizer, QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> opt = LearnedOptimizer(generator=0)
    >>> len(sgld_samples(opt, family, family.sample(8, generator=0), n_steps=5, n=3, generator=1))
    3
    """
    n, thin = check_integer("n", n, minimum=1), check_integer("thin", thin, minimum=1)
    check_real("lr", lr, minimum=0, include=False)
    check_real("slack", slack, minimum=0)
    tau = 1 / len(params) if temperature is None else check_real("temperature", temperature, minimum=0)
    source = as_torch_generator(generator)
    last = _rounded(opt)
    samples = [last]
    least = -math.inf if constraint is None else constraint(opt.with_state(last)) - slack
    refused = 0
    while len(samples) < n:
        chain = opt.with_state(last).requires_grad_(True)
        runs = _Runs(chain, family, params, batch_size, n_steps, source, None)
        for _ in range(thin):
            chain.zero_grad(set_to_none=True)
            runs.ratios(1, "log-ratio", rise_weight).backward()  # type: ignore[no-untyped-call]
            # As in learning: one run at a kink can have a gradient of any size.
            torch.nn.utils.clip_grad_norm_(chain.parameters(), 1.0)
            with torch.no_grad():
                for weight in chain.parameters():
                    slope = torch.zeros(()) if weight.grad is None else weight.grad.nan_to_num()
                    noise = torch.randn(weight.shape, generator=source, dtype=weight.dtype)
                    weight.add_(-lr * slope + math.sqrt(2 * lr * tau) * noise)
            runs.renew(1)
        proposal = _rounded(chain)
        if constraint is not None and constraint(opt.with_state(proposal)) < least:
            refused += 1
            if refused >= 50:
                raise RuntimeError(
                    "fifty proposals in a row fall short of the constraint; lower the temperature"
                )
            continue
        refused = 0
        last = proposal
        samples.append(last)
    return samples


def _rounded(opt: LearnedOptimizer) -> dict[str, Tensor]:
    return {name: value.detach().float() for name, value in opt.state_dict().items()}
