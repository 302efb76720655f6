"""The centre of points that an adversary may move."""

from __future__ import annotations

from typing import Any

import numpy as np

from theses.numerics.manifolds import GeodesicBall, Manifold, comparison_factor, frechet_mean
from theses.problems.geodesic import RobustKarcherGame
from theses.validation import check_real

__all__ = ["RobustKarcherMean"]


class RobustKarcherMean:
    """Centre of points whose adversary may move each of them, at a price.

    Parameters
    ----------
    gamma : float
        Price, see :class:`theses.problems.geodesic.RobustKarcherGame`.
    radius : float or None, default=None
        Both players stay within this radius of the points' Frechet mean (each moved point of its own); None
        takes ``gamma / (gamma - 1)`` times the largest distance of a point to it, which constrains no
        solution.
    eps : float, default=1e-6
        Duality gap to reach.
    max_outer : int, default=1000
        Rounds at most.

    Attributes
    ----------
    center_ : ndarray, shape ``manifold.shape``
        The centre.
    moved_ : ndarray, shape (m,) + ``manifold.shape``
        Where the adversary puts the points.
    result_ : MinMaxResult
        The solver's answer with its gap.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import SPD
    >>> points = np.stack([np.diag([np.exp(v), 1.0]) for v in (-1.0, 0.0, 1.0)])
    >>> robust = RobustKarcherMean(gamma=4.0).fit(SPD(2), points)
    >>> np.allclose(robust.center_, np.eye(2), atol=1e-3), robust.result_.gap <= 1e-6
    (True, True)

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381, min-max section.
    """

    def __init__(
        self, gamma: float, *, radius: float | None = None, eps: float = 1e-6, max_outer: int = 1000
    ) -> None:
        self.gamma = gamma
        self.radius = radius
        self.eps = eps
        self.max_outer = max_outer

    def fit(self, manifold: Manifold, points: Any) -> RobustKarcherMean:
        """Solve the game.

        Parameters
        ----------
        manifold : Manifold
            Where the points lie.
        points : array-like, shape (m,) + ``manifold.shape``
            Points.

        Returns
        -------
        RobustKarcherMean
            Itself.

        Raises
        ------
        ValueError
            If gamma is too small for the game to be concave in y on the ball; the least that will do is
            named.
        """
        from theses.decision.riemannian_optimism.minmax import solve_minmax

        game = RobustKarcherGame(manifold, points, self.gamma)
        center = frechet_mean(manifold, game.points)
        spread = float(manifold.dist(center, game.points).max())
        radius = game.gamma / (game.gamma - 1) * spread if self.radius is None else self.radius
        radius = max(check_real("radius", radius, minimum=0), 1e-6)
        least = comparison_factor(2 * radius, manifold.curvature_lower)
        if game.gamma < least:
            raise ValueError(
                f"gamma must be at least {least:.4g} for the game to be concave in y within radius "
                f"{radius:.4g}, got {game.gamma:g}"
            )
        ball = GeodesicBall(manifold, center, radius)
        y_ball = GeodesicBall(
            game.y_manifold,
            np.tile(center, (game.m,) + (1,) * center.ndim).reshape(-1),
            radius * float(np.sqrt(game.m)),
        )
        self.result_ = solve_minmax(
            game,
            manifold,
            game.y_manifold,
            center,
            game.points.reshape(-1),
            game.smoothness(2 * radius),
            ball,
            y_ball,
            # Strongly convex in x, and concave in y by what the price exceeds the curvature's share.
            mu=min(2.0, 2 * (game.gamma - least) / game.m),
            eps=self.eps,
            max_outer=self.max_outer,
        )
        self.center_ = self.result_.x
        self.moved_ = self.result_.y.reshape(game.points.shape)
        return self
