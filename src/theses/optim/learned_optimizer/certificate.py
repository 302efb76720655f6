"""PAC-Bayes bounds on the probability of a property, and the certificate made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from theses.optim.learned_optimizer.families import ProblemFamily, Problems
from theses.optim.learned_optimizer.properties import trajectory_properties
from theses.optim.learned_optimizer.solvers import Solver, Trajectory, roll_out
from theses.validation import check_array, check_choice, check_integer, check_real

__all__ = [
    "Certificate",
    "certify",
    "certify_events",
    "clopper_pearson",
    "discrete_kl",
    "maurer_bound",
    "pac_bound",
    "phi_inv",
]

Array = NDArray[np.float64]


def phi_inv(p: ArrayLike, a: ArrayLike) -> Any:
    r"""Catoni's function :math:`\Phi^{-1}_a(p) = (1 - e^{-a p}) / (1 - e^{-a})`.

    Parameters
    ----------
    p : float or array of shape (n,)
        Arguments, at least 0; above 1 the value is above 1 and says nothing.
    a : float or array of shape (n,)
        Positive parameter.

    Returns
    -------
    float or ndarray of shape (n,)
        The values.

    Raises
    ------
    ValueError
        If ``p`` is negative or ``a`` not positive.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, generalization theorem, definition of Phi.

    Examples
    --------
    >>> phi_inv(1.0, 0.3)
    1.0
    >>> round(phi_inv(0.2, 1e-9), 6)
    0.2
    """
    ps = check_array("p", p, ndim=(0, 1))
    scale = check_array("a", a, ndim=(0, 1))
    if (ps < 0).any():
        raise ValueError(f"p must be at least 0, got {ps.min()}")
    if (scale <= 0).any():
        raise ValueError(f"a must be greater than 0, got {scale.min()}")
    if ps.ndim and scale.ndim and len(ps) != len(scale):
        raise ValueError(f"p and a must have the same length, but p has {len(ps)}, a has {len(scale)}")
    # expm1 keeps the digits where a * p is small.
    value = np.expm1(-scale * ps) / np.expm1(-scale)
    return value if value.ndim else float(value)


def pac_bound(p_hat_bad: float, kl: float, n: int, eps: float, lam: ArrayLike) -> Any:
    r"""Upper bound on the probability of a bad run, in [0, 1].

    :math:`\Phi^{-1}_{\lambda/N}\bigl(\hat p + (KL + \log(1/\varepsilon))/\lambda\bigr)` holds with
    probability at least :math:`1 - \varepsilon` for all posteriors at once and one :math:`\lambda` fixed
    beforehand. To choose among ``G`` values afterwards, give ``eps / G``.

    Parameters
    ----------
    p_hat_bad : float
        Share of bad runs on the certification split, averaged over the posterior.
    kl : float
        Divergence of posterior and prior.
    n : int
        Problems of the certification split.
    eps : float
        Probability of error, in (0, 1).
    lam : float or array of shape (n_values,)
        Positive parameter.

    Returns
    -------
    float or ndarray of shape (n_values,)
        The bound for each ``lam``.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] arXiv:2410.07704, theorem on generalization; O. Catoni, PAC-Bayesian Supervised Classification,
       2007, theorem 1.2.6.

    Examples
    --------
    >>> round(pac_bound(0.0, 0.0, n=250, eps=0.05, lam=5000), 4)
    0.0119
    """
    check_real("p_hat_bad", p_hat_bad, minimum=0, maximum=1)
    check_real("kl", kl, minimum=0)
    n = check_integer("n", n, minimum=1)
    check_real("eps", eps, minimum=0, maximum=1, include=False)
    lams = check_array("lam", lam, ndim=(0, 1))
    if (lams <= 0).any():
        raise ValueError(f"lam must be greater than 0, got {lams.min()}")
    value = np.clip(phi_inv(p_hat_bad + (kl + math.log(1 / eps)) / lams, lams / n), 0, 1)
    return value if np.ndim(value) else float(value)


def maurer_bound(p_hat_bad: float, kl: float, n: int, eps: float) -> float:
    r"""Upper bound by inversion of the binary divergence: :math:`kl(\hat p\,\|\,p) \le (KL + \log(2\sqrt N/\varepsilon))/N`.

    Parameters
    ----------
    p_hat_bad : float
        Share of bad runs.
    kl : float
        Divergence of posterior and prior.
    n : int
        Problems of the certification split.
    eps : float
        Probability of error, in (0, 1).

    Returns
    -------
    float
        The largest ``p`` that satisfies it.

    References
    ----------
    .. [1] A. Maurer, "A note on the PAC-Bayesian theorem", arXiv:cs/0411099, theorem 5.

    Examples
    --------
    >>> round(maurer_bound(0.0, 0.0, n=250, eps=0.05), 4)
    0.0255
    """  # noqa: E501
    p_hat = check_real("p_hat_bad", p_hat_bad, minimum=0, maximum=1)
    n = check_integer("n", n, minimum=1)
    check_real("eps", eps, minimum=0, maximum=1, include=False)
    budget = (check_real("kl", kl, minimum=0) + math.log(2 * math.sqrt(n) / eps)) / n

    def divergence(p: float) -> float:
        left = 0.0 if p_hat == 0 else p_hat * math.log(p_hat / p)
        right = 0.0 if p_hat == 1 else (1 - p_hat) * math.log((1 - p_hat) / (1 - p))
        return left + right

    low, high = p_hat, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle < 1 and divergence(middle) <= budget:
            low = middle
        else:
            high = middle
    return high


def clopper_pearson(n_bad: int, n: int, eps: float) -> float:
    """Exact upper bound on the probability of a bad run of one solver fixed beforehand.

    Parameters
    ----------
    n_bad : int
        Bad runs.
    n : int
        All runs.
    eps : float
        Probability of error, in (0, 1).

    Returns
    -------
    float
        The bound.

    References
    ----------
    .. [1] C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits", Biometrika 1934,
       section 3.

    Examples
    --------
    >>> round(clopper_pearson(0, 250, 0.05), 4)
    0.0119
    """
    n = check_integer("n", n, minimum=1)
    n_bad = check_integer("n_bad", n_bad, minimum=0, maximum=n)
    check_real("eps", eps, minimum=0, maximum=1, include=False)
    return 1.0 if n_bad == n else float(beta.ppf(1 - eps, n_bad + 1, n - n_bad))


def discrete_kl(posterior: ArrayLike, prior: ArrayLike) -> float:
    r"""Kullback-Leibler divergence :math:`\sum_k \rho_k \log(\rho_k / \pi_k)` of two discrete laws.

    Parameters
    ----------
    posterior, prior : array of shape (n_samples,)
        Weights.

    Returns
    -------
    float
        The divergence, at least 0.

    Raises
    ------
    ValueError
        If weights are negative, do not sum to 1, or the posterior has mass where the prior has none.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on notation.

    Examples
    --------
    >>> discrete_kl([0.5, 0.5], [0.5, 0.5])
    0.0
    """
    laws = {
        "posterior": check_array("posterior", posterior, ndim=1),
        "prior": check_array("prior", prior, ndim=1),
    }
    for name, law in laws.items():
        if (law < 0).any() or abs(law.sum() - 1) > 1e-9:
            raise ValueError(f"{name} must be weights that sum to 1, got sum {law.sum()}, least {law.min()}")
    rho, pi = laws["posterior"], laws["prior"]
    if len(rho) != len(pi):
        raise ValueError(
            f"posterior and prior must have the same length, but posterior has {len(rho)}, "
            f"prior has {len(pi)}"
        )
    inside = rho > 0
    if (pi[inside] == 0).any():
        raise ValueError("posterior must have no mass where the prior has none")
    return max(0.0, float((rho[inside] * np.log(rho[inside] / pi[inside])).sum()))


@dataclass(frozen=True)
class Certificate:
    """What was certified.

    Parameters
    ----------
    bound : float
        Lower bound on the probability that a new problem's run has the property.
    empirical : float
        Share of the certification split that has it, averaged over the posterior.
    kl : float
        Divergence of posterior and prior.
    lam : float
        Parameter of the bound.
    n : int
        Problems of the certification split.
    eps : float
        Probability of error.
    posterior, prior : tuple of float
        Weights of the samples.
    property : str
        The property in words.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, generalization theorem.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import certify_events
    >>> certify_events([[0] * 50], [[0] * 250]).to_frame().rows()
    [(0, 1.0, 1.0)]
    """

    bound: float
    empirical: float
    kl: float
    lam: float
    n: int
    eps: float
    posterior: tuple[float, ...]
    prior: tuple[float, ...]
    property: str

    def summary(self) -> str:
        """One sentence: what holds, how probably, on how many problems.

        Returns
        -------
        str
            The line.
        """
        return (
            f"With confidence {1 - self.eps:.3g}, a new problem's run has the property '{self.property}' "
            f"with probability at least {self.bound:.3f} ({self.empirical:.3f} of {self.n} certification "
            f"problems; KL {self.kl:.3g}, lambda {self.lam:.4g})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            By name.
        """
        return asdict(self)

    def to_frame(self) -> pl.DataFrame:
        """A row a sample: its weights in prior and posterior.

        Returns
        -------
        polars.DataFrame
            The table.
        """
        return pl.DataFrame(
            {
                "sample": list(range(len(self.prior))),
                "prior": list(self.prior),
                "posterior": list(self.posterior),
            }
        )


def _softmax(potentials: Array) -> Array:
    weights = np.exp(potentials - potentials.max())
    law: Array = weights / weights.sum()
    return law


def _events(name: str, value: ArrayLike) -> Array:
    events = check_array(name, value, ndim=2)
    if not np.isin(events, (0, 1)).all():
        raise ValueError(
            f"{name} must hold only 0 (good) and 1 (bad), got {events[~np.isin(events, (0, 1))][0]}"
        )
    return events


def certify_events(
    prior_bad: ArrayLike,
    cert_bad: ArrayLike,
    *,
    eps: float = 0.05,
    lam: float | str = "prior-split",
    property: str = "the property",  # noqa: A002 - the certificate's own word
) -> Certificate:
    r"""Certificate from the events alone: which run of which sample lacks the property.

    The prior is the softmax of minus the risks on the prior split, the posterior that of minus the sum of the
    risks on both splits; with probability at least :math:`1 - \varepsilon` over the certification problems

    .. math:: \rho P\{A\} \ge 1 - \Phi^{-1}_{\lambda/N}\Bigl(\hat p_\rho
              + \frac{KL(\rho\|\pi) + \log(1/\varepsilon)}{\lambda}\Bigr).

    Parameters
    ----------
    prior_bad : array of shape (n_samples, n_prior)
        1 where a run on the prior split lacks the property, else 0.
    cert_bad : array of shape (n_samples, n)
        The same on the certification split, drawn independently.
    eps : float, default=0.05
        Probability of error.
    lam : float, "prior-split" or "grid", default="prior-split"
        Fixed value; the best of 400 values for the prior split's risk; or the best of 20 values for the
        certification split itself at the price of a union bound, ``log(20 / eps)``.
    property : str, default="the property"
        In words, for the summary.

    Returns
    -------
    Certificate
        The certificate.

    Raises
    ------
    ValueError
        If events are neither 0 nor 1, numbers of samples differ, or ``eps`` or ``lam`` is out of range.

    References
    ----------
    .. [1] arXiv:2410.07704, generalization theorem and section on its evaluation.

    Examples
    --------
    >>> certificate = certify_events([[0] * 100], [[0] * 250])
    >>> round(certificate.bound, 3), certificate.kl
    (0.988, 0.0)
    """
    before, on = _events("prior_bad", prior_bad), _events("cert_bad", cert_bad)
    if len(before) != len(on):
        raise ValueError(
            f"prior_bad and cert_bad must have the same length, but prior_bad has {len(before)}, "
            f"cert_bad has {len(on)}"
        )
    check_real("eps", eps, minimum=0, maximum=1, include=False)
    n = on.shape[1]
    prior_risk, cert_risk = before.mean(1), on.mean(1)
    prior = _softmax(-prior_risk)
    posterior = _softmax(-prior_risk - cert_risk)
    kl = discrete_kl(posterior, prior)
    p_hat = float(np.clip(posterior @ cert_risk, 0, 1))
    if isinstance(lam, str):
        check_choice("lam", lam, ("prior-split", "grid"))
        if lam == "grid":
            values = np.geomspace(1, 20 * n, 20)
            bounds = pac_bound(p_hat, kl, n, eps / len(values), values)
        else:
            # Nothing of the certification split enters the choice.
            values = np.geomspace(1, 20 * n, 400)
            guess = float(np.clip(prior @ prior_risk, 0, 1))
            values = values[[int(np.argmin(pac_bound(guess, 0.0, n, eps, values)))]]
            bounds = pac_bound(p_hat, kl, n, eps, values)
    else:
        values = np.array([check_real("lam", lam, minimum=0, include=False)])
        bounds = pac_bound(p_hat, kl, n, eps, values)
    best = int(np.argmin(bounds))
    return Certificate(
        bound=float(1 - bounds[best]),
        empirical=1 - p_hat,
        kl=kl,
        lam=float(values[best]),
        n=n,
        eps=float(eps),
        posterior=tuple(float(w) for w in posterior),
        prior=tuple(float(w) for w in prior),
        property=property,
    )


def certify(
    samples: Sequence[Solver],
    family: ProblemFamily,
    prior_split: Problems,
    cert_split: Problems,
    property_fn: Callable[[Trajectory], Any] | None = None,
    *,
    n_steps: int,
    eps: float = 0.05,
    lam: float | str = "prior-split",
    a: float = 0.0,
    b: float | None = None,
    c: float | None = None,
    property: str | None = None,  # noqa: A002 - the certificate's own word
) -> Certificate:
    r"""Certify solvers on problems that they have not seen.

    Runs each solver on both splits, sees which runs have the property, and applies :func:`certify_events`.
    The constants ``a``, ``b``, ``c`` and ``lam`` must be chosen without the certification split. A finite run
    shows the property up to ``n_steps`` only, and the certificate speaks of that.
    O(n_samples * n_problems * n_steps) solver steps.

    Parameters
    ----------
    samples : sequence of Solver
        Support of prior and posterior; one solver alone gives KL = 0.
    family : ProblemFamily
        Gives losses and gradients.
    prior_split : Problems
        Those used for learning, and for prior and ``lam``.
    cert_split : Problems
        Fresh problems of the same kind.
    property_fn : callable or None, default=None
        From a trajectory to booleans ``(n_problems,)``: which runs are good. By default ``A`` of
        :func:`trajectory_properties`. A run that is not finite is never good.
    n_steps : int
        Length of the runs.
    eps : float, default=0.05
        Probability of error.
    lam : float, "prior-split" or "grid", default="prior-split"
        See :func:`certify_events`.
    a, b, c : float
        Constants of the default property.
    property : str or None, default=None
        In words, for the summary.

    Returns
    -------
    Certificate
        The certificate.

    Raises
    ------
    ValueError
        If the splits share a problem, there is no sample, or a setting is out of range.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, generalization theorem and section on experiments.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import GradientDescent, QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> splits = family.sample(20, generator=0), family.sample(250, generator=1)
    >>> round(certify([GradientDescent(lr=1 / 500)], family, *splits, n_steps=10).bound, 3)
    0.988
    """
    if not samples:
        raise ValueError("samples must hold at least one solver, got none")
    check_real("eps", eps, minimum=0, maximum=1, include=False)
    shared = prior_split is cert_split or not set(prior_split.rows()).isdisjoint(cert_split.rows())
    if shared:
        raise ValueError(
            "prior_split and cert_split must not share a problem: the certificate would not be valid"
        )

    def bad(solver: Solver, split: Problems) -> Array:
        run = roll_out(solver, family, split, n_steps)
        good: Any
        if property_fn is None:
            good = trajectory_properties(run, a, b, c, f_lower=family.f_lower).A
        else:
            good = property_fn(run)
        good = np.asarray(good, dtype=bool)
        if good.shape != (len(split),):
            raise ValueError(f"property_fn must give shape ({len(split)},), got {good.shape}")
        bad_runs: Array = (~(good & run.finite.cpu().numpy())).astype(np.float64)
        return bad_runs

    words = property or ("the given property" if property_fn is not None else "sufficient descent")
    return certify_events(
        np.stack([bad(solver, prior_split) for solver in samples]),
        np.stack([bad(solver, cert_split) for solver in samples]),
        eps=eps,
        lam=lam,
        property=f"{words}, up to step {n_steps}",
    )
