r"""What ambiguity sets need of a conjugate model's posterior.

A family :math:`p_\eta(\xi) = h(\xi)\exp(\langle\eta, s(\xi)\rangle - A(\eta))` with a conjugate prior on
:math:`\eta` has, for every law Q,

.. math:: E_\Pi\,KL(Q \| P_\eta) = KL(Q \| \bar P) + G, \qquad
   \bar\eta = E_\Pi[\eta], \quad G = E_\Pi[A(\eta)] - A(\bar\eta) \ge 0,

since :math:`KL(Q\|P_\eta)` is affine in :math:`\eta` but for :math:`A`. So the nominal law
:math:`\bar P = P_{\bar\eta}` averages natural parameters (a precision, not a variance), and G says how much
the posterior still spreads.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from theses.validation import as_generator, check_array, check_integer

__all__ = ["Array", "ConjugateModel", "Law", "Params", "RandomState", "check_counts"]

_LOG = logging.getLogger(__name__)

Array = NDArray[np.float64]
Params = tuple[Array, ...]
RandomState = int | np.random.Generator | None


@dataclass(frozen=True)
class Law:
    """A law of a model's family.

    Parameters
    ----------
    model : ConjugateModel
        Whose family it is of.
    params : tuple of ndarray
        Its parameters, in the order of ``model.names``.

    References
    ----------
    arXiv:2411.16829, Section 3.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import NormalGamma
    >>> law = NormalGamma(0, 1, 2, 4).eta_bar()
    >>> law.to_dict()
    {'mean': 0.0, 'variance': 2.0}
    >>> law.sample(3, random_state=0).shape
    (3, 1)
    """

    model: ConjugateModel
    params: Params

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Independent draws.

        Parameters
        ----------
        n : int
            How many.
        random_state : int, Generator or None, default=None
            Randomness.

        Returns
        -------
        ndarray of shape (n, dim)
            The draws.
        """
        n = check_integer("n", n, minimum=1)
        batch = tuple(param[None] for param in self.params)
        draws: Array = self.model._draw(batch, n, as_generator(random_state))[0]
        return draws

    def kl_to(self, other: Law) -> float:
        """Kullback-Leibler divergence of this law from another of the same family.

        Parameters
        ----------
        other : Law
            The other law.

        Returns
        -------
        float
            :math:`KL(self \\| other)`.
        """
        return float(self.model.kl(self.params, other.params))

    def to_dict(self) -> dict[str, Any]:
        """Parameters by name.

        Returns
        -------
        dict
            Plain numbers and lists.
        """
        return {name: value.tolist() for name, value in zip(self.model.names, self.params, strict=True)}


class ConjugateModel(ABC):
    """A family with a conjugate prior; the attributes that end in ``_n`` are the posterior's.

    Before :meth:`fit` the posterior is the prior. Subclasses state the update, the expected natural
    parameter, G, draws and the divergence of their family.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import GammaExponential
    >>> issubclass(GammaExponential, ConjugateModel)
    True
    """

    #: Parameters of the family, and their ranks.
    names: ClassVar[tuple[str, ...]]
    ranks: ClassVar[tuple[int, ...]]
    #: Whether a cost that grows linearly has an infinite exponential moment under the predictive law.
    heavy_predictive: ClassVar[bool] = False
    #: Whether the family is normal, so that a linear cost has a closed form.
    gaussian: ClassVar[bool] = False

    dim: int = 1
    n_samples: int = 0

    def fit(self, data: Any) -> Self:
        """Posterior given observations, from the prior anew.

        Parameters
        ----------
        data : array-like of shape (n,) or (n, dim)
            Observations; none at all leaves the prior.

        Returns
        -------
        ConjugateModel
            A fitted copy; the model itself stays as it was.

        Raises
        ------
        ValueError
            If they are not finite, of another dimension, or outside the family's support.
        """
        ranks = (1, 2) if self.dim == 1 else (2,)
        values = check_array("data", data, ndim=ranks, min_length=0) if np.size(data) else np.empty((0, 1))
        rows: Array = values.reshape(len(values), -1) if len(values) else np.empty((0, self.dim))
        if rows.shape[1] != self.dim:
            raise ValueError(f"data must have {self.dim} column(s), got shape {values.shape}")
        self._check_support(rows)
        fitted: Self = self._prior()
        fitted.n_samples = len(rows)
        if len(rows):
            fitted._update(rows)
        else:
            _LOG.info("no observations: the posterior of %s is its prior", type(self).__name__)
        return fitted

    def sample_posterior(self, n: int, random_state: RandomState = None) -> Params:
        """Draws of the family's parameters from the posterior.

        Parameters
        ----------
        n : int
            How many.
        random_state : int, Generator or None, default=None
            Randomness.

        Returns
        -------
        tuple of ndarray
            Parameters in the order of ``names``, each with a first axis of length ``n``.
        """
        return self._sample_posterior(check_integer("n", n, minimum=1), as_generator(random_state))

    def predictive(self, n: int, random_state: RandomState = None) -> Array:
        """Draws from the posterior predictive law: a parameter each, then an observation.

        Parameters
        ----------
        n : int
            How many.
        random_state : int, Generator or None, default=None
            Randomness.

        Returns
        -------
        ndarray of shape (n, dim)
            The draws.
        """
        generator = as_generator(random_state)
        return self._draw(self.sample_posterior(n, generator), 1, generator)[:, 0]

    def draw(self, params: Params, n: int, random_state: RandomState = None) -> Array:
        """Draws from laws of the family.

        Parameters
        ----------
        params : tuple of ndarray
            Parameters in the order of ``names``, each with a first axis of length k.
        n : int
            Draws from each law.
        random_state : int, Generator or None, default=None
            Randomness.

        Returns
        -------
        ndarray of shape (k, n, dim)
            The draws.
        """
        batch = self._check_params("params", params, batched=True)
        return self._draw(batch, check_integer("n", n, minimum=1), as_generator(random_state))

    def eta_bar(self) -> Law:
        r"""Nominal law :math:`\bar P`: the one whose natural parameter is the posterior's mean of it.

        Returns
        -------
        Law
            The law at the centre of the ambiguity set of posterior expectation.
        """
        return Law(self, tuple(np.asarray(value, dtype=np.float64) for value in self._eta_bar()))

    def G(self) -> float:  # noqa: N802 - the paper's symbol
        """Least radius: what the expected divergence of every law exceeds that from the nominal law by.

        Returns
        -------
        float
            :math:`G = E[A(\\eta)] - A(E[\\eta])`, at least 0.
        """
        return float(self._least_radius())

    def kl(self, q_params: Params, p_params: Params) -> Any:
        r"""Kullback-Leibler divergence :math:`KL(Q\|P)` of two laws of the family, or of many.

        Parameters
        ----------
        q_params, p_params : tuple of ndarray
            Parameters in the order of ``names``; a first axis makes them many.

        Returns
        -------
        float or ndarray of shape (k,)
            The divergences.
        """
        q = self._check_params("q_params", q_params)
        p = self._check_params("p_params", p_params)
        lengths = {len(v[0]) for v in (q, p) if v[0].ndim > self.ranks[0]}
        if len(lengths) > 1:
            raise ValueError(
                f"q_params and p_params must have the same length, got {len(q[0])} and {len(p[0])}"
            )
        return self._kl(q, p)

    def _check_params(self, name: str, params: Any, *, batched: bool | None = None) -> Params:
        if not isinstance(params, tuple) or len(params) != len(self.names):
            raise TypeError(f"{name} must be a tuple of {', '.join(self.names)}, got {type(params).__name__}")
        values = tuple(
            check_array(name, value, ndim=(rank + 1,) if batched else (rank, rank + 1))
            for rank, value in zip(self.ranks, params, strict=True)
        )
        many = {value.ndim - rank for rank, value in zip(self.ranks, values, strict=True)}
        lengths = {len(value) for rank, value in zip(self.ranks, values, strict=True) if value.ndim > rank}
        if len(many) > 1 or len(lengths) > 1:
            shapes = ", ".join(str(value.shape) for value in values)
            raise ValueError(f"{name} must have the same length in all entries, got shapes {shapes}")
        for rank, value in zip(self.ranks, values, strict=True):
            wanted = (self._width(),) * rank
            if rank and value.shape[-rank:] != wanted:
                raise ValueError(f"{name} must end in shape {wanted}, got {value.shape}")
        self._check_domain(name, values)
        return values

    def _width(self) -> int:
        return self.dim

    def _check_support(self, rows: Array) -> None:
        """Refuse observations that the family cannot produce."""
        return

    def _check_domain(self, name: str, params: Params) -> None:
        """Refuse parameters that no law of the family has."""
        if (params[-1] <= 0).any():
            raise ValueError(f"{name} must have a positive {self.names[-1]}, got {params[-1].min()}")

    @abstractmethod
    def _prior(self) -> Any:
        """A copy whose posterior is the prior."""

    @abstractmethod
    def _update(self, rows: Array) -> None: ...

    @abstractmethod
    def _least_radius(self) -> float: ...

    @abstractmethod
    def _eta_bar(self) -> tuple[Any, ...]: ...

    @abstractmethod
    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params: ...

    @abstractmethod
    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array: ...

    @abstractmethod
    def _kl(self, q: Params, p: Params) -> Any: ...


def check_counts(rows: Array) -> None:
    """Refuse observations that are no whole numbers from 0."""
    if (rows < 0).any() or (rows != np.round(rows)).any():
        bad = rows[(rows < 0) | (rows != np.round(rows))][0]
        raise ValueError(f"data must be whole numbers from 0, got {bad}")
