"""VES-Gamma: one acquisition function between Expected Improvement and Max-value Entropy Search.

Both are a Barber-Agakov bound on the information that an observation at x carries about the maximum y*; they
differ in the family q of densities of y* given y_x. Exponential densities give Expected Improvement
(Theorem 3.2), Gamma densities, of which they are the case k = 1, give VES-Gamma (Section 3.3).

========================= ================================================================
``gamma``                 the Gamma family: its density, its fit (k, beta), :func:`solve_k`
``paths``                 posterior sample paths and their maxima
``acquisition``           :class:`VESGamma`, :class:`VESExp`, :func:`optimize_ves`
``loop``                  :func:`fit_gp`, :func:`suggest`, :func:`run_bo`
========================= ================================================================
"""

try:
    import botorch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'variational_entropy_search needs botorch: pip install "theses[decision]"', name="botorch"
    ) from error

from theses.decision.variational_entropy_search.acquisition import VESExp, VESGamma, optimize_ves
from theses.decision.variational_entropy_search.gamma import fit_gamma, gamma_log_density, solve_k
from theses.decision.variational_entropy_search.loop import BOTrace, fit_gp, observed, run_bo, suggest
from theses.decision.variational_entropy_search.paths import draw_paths, path_maxima

__all__ = [
    "BOTrace",
    "VESExp",
    "VESGamma",
    "draw_paths",
    "fit_gamma",
    "fit_gp",
    "gamma_log_density",
    "observed",
    "optimize_ves",
    "path_maxima",
    "run_bo",
    "solve_k",
    "suggest",
]
