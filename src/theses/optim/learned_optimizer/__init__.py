"""Learned update steps for a family of optimisation problems, certified to converge with probability p.

Who solves thousands of similar problems (one model, other data) can learn the update step itself, without
safeguards, and then ask how often it works on a new problem. A run that goes down enough at each step, whose
gradients are small relative to its steps and that stays in a ball converges to a critical point; how
often that happens on fresh problems is counted, and PAC-Bayes turns the count into a bound for the whole
family. The certificate does not care where the solver comes from: any iteration and any property of its runs
can be certified.

``families`` holds the problems, stacked so that all runs move at once; ``solvers`` what is made by hand, and
the roll-out; ``networks`` the two learned architectures; ``learning`` imitation, segments, samples;
``properties`` the conditions of the convergence theorem; ``certificate`` the bounds; ``shipped`` weights that
were learned once, by ``train``.

References
----------
Sucker and Ochs: A Generalization Result for Convergence in Learning-to-Optimize, ICML 2025, arXiv 2410.07704.
"""

from theses.optim.learned_optimizer.certificate import (
    Certificate,
    certify,
    certify_events,
    clopper_pearson,
    discrete_kl,
    maurer_bound,
    pac_bound,
    phi_inv,
)
from theses.optim.learned_optimizer.families import (
    LassoFamily,
    PolyRegressionFamily,
    ProblemFamily,
    Problems,
    QuadraticFamily,
)
from theses.optim.learned_optimizer.learning import FitLog, fit, sgld_samples
from theses.optim.learned_optimizer.networks import LearnedOptimizer
from theses.optim.learned_optimizer.properties import PropertyMask, trajectory_properties
from theses.optim.learned_optimizer.shipped import load_pretrained, load_trained
from theses.optim.learned_optimizer.solvers import (
    AdamSolver,
    GradientDescent,
    HeavyBall,
    State,
    Trajectory,
    roll_out,
)

__all__ = [
    "AdamSolver",
    "Certificate",
    "FitLog",
    "GradientDescent",
    "HeavyBall",
    "LassoFamily",
    "LearnedOptimizer",
    "PolyRegressionFamily",
    "ProblemFamily",
    "Problems",
    "PropertyMask",
    "QuadraticFamily",
    "State",
    "Trajectory",
    "certify",
    "certify_events",
    "clopper_pearson",
    "discrete_kl",
    "fit",
    "load_pretrained",
    "load_trained",
    "maurer_bound",
    "pac_bound",
    "phi_inv",
    "roll_out",
    "sgld_samples",
    "trajectory_properties",
]
