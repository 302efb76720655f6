"""Bayesian quadrature risk control beside MAPIE's controllers and plain Dirichlet sampling."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from numpy.typing import NDArray

from theses.datasets.mosaics import digit_mosaics
from theses.evidence import Comparison, interleave
from theses.trust.bayesian_quadrature_conformal import (
    RiskController,
    RiskPosterior,
    RiskRule,
    false_negative_rate,
)

ALPHA, BETA = 0.1, 0.95
LARGE_S, LARGE_MB = 10.0, 500.0


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        Calibration on 1,000 mosaics against MAPIE, the exact Beta case against sampling, large samples
        against NumPy's Dirichlet draws.
    """
    return [
        *_against_mapie(),
        *(_exact_against_sampling(n) for n in (200, 1_000, 10_000)),
        _large(10_000, 1_000),
        _large(100_000, 1_000),
        _large(100_000, 10_000, limited=True),
    ]


def _at_least(scores: NDArray[np.float64], lam: float) -> NDArray[np.bool_]:
    return scores >= -lam


def _against_mapie() -> list[Comparison]:
    from mapie.risk_control import MultiLabelClassificationController

    mosaics = digit_mosaics(6_000, random_state=100)
    scores, labels = mosaics.scores[:1_000], mosaics.labels[:1_000]
    rest = mosaics.scores[1_000:]
    truth = labels.astype(int)

    def ours(method: str) -> RiskController:
        controller = RiskController(
            false_negative_rate,
            _at_least,
            ALPHA,
            BETA,
            method=method,
            lam_range=(-1.0, 0.0),
            random_state=0,
        )
        return controller.fit(scores, labels, candidates=-scores[labels])

    def theirs(method: str, **options: object) -> float:
        controller = MultiLabelClassificationController(
            predict_function=lambda cases: cases, method=method, target_level=1 - ALPHA, **options
        )
        return float(controller.calibrate(scores, truth).best_predict_param[0])

    def hoeffding() -> float:
        return theirs("rcps", rcps_bound="hoeffding", confidence_level=BETA)

    rows = []
    controller, threshold = ours("bq"), hoeffding()
    assert controller.risk_posterior_.prob_below(ALPHA) >= BETA
    both = (controller.predict(rest), rest > threshold)
    ours_size, their_size = (np.count_nonzero(sets) / len(rest) for sets in both)
    assert ours_size <= their_size
    ours_s, peer_s = interleave([lambda: ours("bq"), hoeffding], repeats=3)
    rows.append(
        Comparison(
            "MAPIE MultiLabelClassificationController, rcps with Hoeffding's bound",
            "one calibration, 1,000 mosaics, 10 labels",
            ours_s,
            peer_s,
            ">= 1",
            f"both keep the false negative rate below {ALPHA} with probability {BETA}; mean set size on "
            f"5,000 others {ours_size:.2f} against {their_size:.2f}",
        )
    )
    gap = -ours("crc").lambda_ - theirs("crc")
    assert 0 <= gap <= 0.01
    ours_s, peer_s = interleave([lambda: ours("crc"), lambda: theirs("crc")], repeats=3)
    rows.append(
        Comparison(
            "MAPIE MultiLabelClassificationController, crc",
            "one calibration, 1,000 mosaics, 10 labels",
            ours_s,
            peer_s,
            ">= 1",
            f"the same threshold within their grid of 0.01 (ours, exact, is {gap:.4f} higher)",
        )
    )
    return rows


def _exact_against_sampling(n: int) -> Comparison:
    losses = (np.arange(n) < n // 20).astype(np.float64)
    exact = RiskRule("bq", n, ALPHA, BETA, binary=True)

    def beta_quantile() -> float:
        return float(RiskRule("bq", n, ALPHA, BETA, binary=True).bound(losses))

    def sampled() -> float:
        return float(RiskRule("bq", n, ALPHA, BETA, n_samples=1_000, random_state=0).bound(losses))

    difference = sampled() - exact.bound(losses)
    spread = float(np.std(RiskPosterior(losses, random_state=0).samples))
    assert abs(difference) < 0.5 * spread
    ours_s, peer_s = interleave([beta_quantile, sampled], repeats=9, warmup=2)
    return Comparison(
        "sampling with S = 1,000 draws",
        f"0.95-quantile of the bound, {n:,} losses 0 or 1",
        ours_s,
        peer_s,
        ">= 20",
        f"exact, against a sample quantile {difference:+.1e} off (the bound's deviation: {spread:.1e})",
    )


def _large(n: int, n_samples: int, limited: bool = False) -> Comparison:
    losses = np.random.default_rng(0).beta(0.5, 4.0, size=n)
    quantiles = [0.0, 0.0]

    def ours() -> None:
        quantiles[0] = RiskPosterior(losses, n_samples=n_samples, random_state=0).quantile(BETA)

    def plain() -> None:
        generator = np.random.default_rng(0)
        values = np.append(losses, 1.0)
        rows = max(8_000_000 // n, 1)
        bounds = [
            generator.dirichlet(np.ones(n + 1), size=min(rows, n_samples - start)) @ values
            for start in range(0, n_samples, rows)
        ]
        quantiles[1] = float(np.quantile(np.concatenate(bounds), BETA))

    peak_mb = _peak_alone(n, n_samples) if limited else None
    ours_s, peer_s = interleave([ours, plain], repeats=1 if limited else 3, warmup=0)
    if limited:
        assert ours_s[0] <= LARGE_S
    spread = float(np.std(losses)) / np.sqrt(n)
    difference = abs(quantiles[0] - quantiles[1]) / spread
    assert difference < 0.5
    return Comparison(
        "numpy Generator.dirichlet, 64 MB at a time",
        f"0.95-quantile of the bound, {n:,} distinct losses, {n_samples:,} draws",
        ours_s,
        peer_s,
        "",
        f"quantiles differ by {difference:.2f} standard deviations of the bound",
        peak_mb=peak_mb,
    )


def _peak_alone(n: int, n_samples: int) -> float:
    """Peak memory in MB of a process that does this alone."""
    code = (
        "import numpy as np, resource\n"
        "from theses.trust.bayesian_quadrature_conformal import RiskPosterior\n"
        f"losses = np.random.default_rng(0).beta(0.5, 4.0, size={n})\n"
        f"RiskPosterior(losses, n_samples={n_samples}, random_state=0).quantile(0.95)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    peak_mb = float(done.stdout)
    assert peak_mb <= LARGE_MB
    return peak_mb
