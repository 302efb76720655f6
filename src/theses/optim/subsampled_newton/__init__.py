"""Debiased sketched inverses and sub-sampled Newton: m rows of a tall matrix in place of all n.

For a tall matrix A (n rows, d columns) and a positive semi-definite C, the inverse of ``A'A + C`` is wanted,
and m sampled, re-weighted rows ``SA`` with ``E[(SA)'SA] = A'A`` are affordable. The inverse of an unbiased
matrix is biased: the mean of ``((SA)'SA + C)^-1`` over many draws stays away from ``(A'A + C)^-1`` by about
``d_eff / (m - d_eff)``, however many are averaged. Another weight for each drawn row, ``1/(m pi_i - l_i)``
in place of ``1/(m pi_i)``, removes nearly all of it at no cost; one scalar for all rows does so only where
the rows are drawn by their leverage l_i, or mixed by a Hadamard transform before. The same weights give
Newton's method on sampled Hessians a local rate that depends on ``d_eff / m`` and not on the conditioning.

The files follow the paper: ``leverage`` holds the scores given C, ``samplers`` the sampled rows and their
weights, ``hadamard`` and ``sketches`` the data-oblivious sketches, ``inverses`` the debiased inverse and its
average, ``equivalent`` the prediction of the bias, ``bias`` its measurement, ``newton`` the optimiser and
``estimators`` its scikit-learn face. ``rows`` is the tall matrix that all of them read.

References
----------
Niu, Liao, Ling and Mahoney: Fundamental Bias in Inverting Random Sampling Matrices with Application to
Sub-sampled Newton, ICML 2025, arXiv 2502.13583.
"""

from theses.optim.subsampled_newton.bias import BiasReport, compare_debiasing, inversion_bias
from theses.optim.subsampled_newton.equivalent import DeterministicEquivalent, deterministic_equivalent
from theses.optim.subsampled_newton.estimators import SubsampledNewtonClassifier, SubsampledNewtonRegressor
from theses.optim.subsampled_newton.hadamard import fwht
from theses.optim.subsampled_newton.inverses import averaged_inverse, debiased_inverse
from theses.optim.subsampled_newton.leverage import effective_dimension, leverage_scores
from theses.optim.subsampled_newton.newton import minimize_ssn
from theses.optim.subsampled_newton.problems import LogisticProblem, QuadraticProblem
from theses.optim.subsampled_newton.samplers import InvalidDebiasError, RowSampler, Sketch
from theses.optim.subsampled_newton.sketches import LESS, SRHT, GaussianSketch

__all__ = [
    "LESS",
    "SRHT",
    "BiasReport",
    "DeterministicEquivalent",
    "GaussianSketch",
    "InvalidDebiasError",
    "LogisticProblem",
    "QuadraticProblem",
    "RowSampler",
    "Sketch",
    "SubsampledNewtonClassifier",
    "SubsampledNewtonRegressor",
    "averaged_inverse",
    "compare_debiasing",
    "debiased_inverse",
    "deterministic_equivalent",
    "effective_dimension",
    "fwht",
    "inversion_bias",
    "leverage_scores",
    "minimize_ssn",
]
