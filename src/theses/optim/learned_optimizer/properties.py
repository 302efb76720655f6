"""Properties of a trajectory from which convergence to a critical point follows (Attouch, Bolte, Svaiter)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from theses.optim.learned_optimizer.solvers import Trajectory
from theses.validation import check_real

__all__ = ["PropertyMask", "trajectory_properties"]


@dataclass(frozen=True)
class PropertyMask:
    """Which runs have which property; each of shape ``(n_problems,)``.

    Parameters
    ----------
    descent : Tensor of bool
        Sufficient descent at each step.
    rel_error : Tensor of bool
        Subgradients small relative to the steps.
    bounded : Tensor of bool
        Points inside a ball.
    A : Tensor of bool
        All three, up to the length of the run.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 4 (the set A).

    Examples
    --------
    >>> good = torch.tensor([True, False])
    >>> PropertyMask(good, good, good, good).to_dict()["A"]
    0.5
    """

    descent: Tensor
    rel_error: Tensor
    bounded: Tensor
    A: Tensor

    def summary(self) -> str:
        """One line: shares of the runs.

        Returns
        -------
        str
            The line.
        """
        shares = self.to_dict()
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())

    def to_dict(self) -> dict[str, Any]:
        """Share of the runs with each property.

        Returns
        -------
        dict
            By name.
        """
        return {
            name: float(getattr(self, name).double().mean())
            for name in ("descent", "rel_error", "bounded", "A")
        }

    def to_frame(self) -> pl.DataFrame:
        """A row a problem.

        Returns
        -------
        polars.DataFrame
            The table.
        """
        return pl.DataFrame(
            {name: getattr(self, name).cpu().numpy() for name in ("descent", "rel_error", "bounded", "A")}
        )


def trajectory_properties(
    traj: Trajectory,
    a: float = 0.0,
    b: float | None = None,
    c: float | None = None,
    tol: float = 1e-16,
    *,
    f_lower: float = 0.0,
) -> PropertyMask:
    r"""Check the conditions of the convergence theorem along each run.

    (i) :math:`\ell(z_{t+1}) + a\|z_{t+1} - z_t\|^2 \le \ell(z_t)`, strictly for ``a = 0``;
    (ii) :math:`\|v_{t+1}\| \le b\,\|z_{t+1} - z_t\|` for the subgradient at :math:`z_{t+1}`;
    (iii) :math:`\|z_t\| \le c`.

    For a function with the Kurdyka-Lojasiewicz property, all three for all
    :math:`t` imply convergence to a critical point. A finite run can only falsify (i): some ``b`` and ``c``
    always exist for it, so that ``None`` takes (ii) and (iii) for granted where the run is finite. A run that
    leaves the finite numbers has none of the properties. O(n_steps * n_problems).

    Parameters
    ----------
    traj : Trajectory
        Runs.
    a : float, default=0.0
        Constant of the descent.
    b : float or None, default=None
        Constant of the relative error.
    c : float or None, default=None
        Radius.
    tol : float, default=1e-16
        From the first loss below ``f_lower + tol`` on, a run is not checked.
    f_lower : float, default=0.0
        Lower bound of the losses.

    Returns
    -------
    PropertyMask
        Which runs.

    Raises
    ------
    ValueError
        If a constant is negative or not finite.

    References
    ----------
    .. [1] arXiv:2410.07704, section 4; H. Attouch, J. Bolte, B. F. Svaiter, Mathematical Programming 2013.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import GradientDescent, QuadraticFamily, roll_out
    >>> family = QuadraticFamily(dim=4)
    >>> traj = roll_out(GradientDescent(lr=1 / 500), family, family.sample(5, generator=0), n_steps=20)
    >>> trajectory_properties(traj).summary()
    'descent 100.0 %, rel_error 100.0 %, bounded 100.0 %, A 100.0 %'
    """
    check_real("a", a, minimum=0)
    check_real("tol", tol, minimum=0)
    check_real("f_lower", f_lower)
    finite = traj.finite
    before, after = traj.losses[:-1], traj.losses[1:]
    solved = (before - f_lower).cummin(0).values < tol
    needed = a * traj.step_norms.square()
    goes_down = (after < before) if a == 0 else (after + needed <= before)
    descent = (goes_down | solved).all(0) & finite
    rel_error, bounded = finite, finite
    if b is not None:
        small = traj.grad_norms[1:] <= check_real("b", b, minimum=0) * traj.step_norms
        rel_error = (small | solved).all(0) & finite
    if c is not None:
        bounded = (traj.point_norms <= check_real("c", c, minimum=0)).all(0) & finite
    return PropertyMask(descent, rel_error, bounded, torch.stack([descent, rel_error, bounded]).all(0))
