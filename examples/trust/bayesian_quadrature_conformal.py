"""How late will a flight be? Intervals whose miscoverage is bounded given this calibration set."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LinearRegression

from theses.datasets.flights import load_flights
from theses.trust.bayesian_quadrature_conformal import BQRegressor, crc_bound, hoeffding_bound

flights = load_flights().sample(41_000, seed=1)
X = flights.select("dep_delay", "distance", "hour").to_numpy().astype(float)
y = flights["arr_delay"].to_numpy()
train, calibration, rest = slice(0, 20_000), slice(20_000, 21_000), slice(21_000, None)

model = LinearRegression().fit(X[train], y[train])
alpha, beta = 0.1, 0.95
intervals = BQRegressor(model, alpha, beta).fit(X[calibration], y[calibration])
bound = intervals.risk_posterior_
print(f"Arrival delay = prediction +- {intervals.lambda_:.1f} minutes.")
print(f"At most {alpha:.0%} of flights arrive outside, with probability {bound.prob_below(alpha):.3f}.")
print(f"The bound in full: {bound.summary()}.")

low, high = intervals.predict_interval(X[rest]).T
print(f"On {len(low)} other flights, {((y[rest] < low) | (y[rest] > high)).mean():.2%} arrive outside.")

# What the same data give under other guarantees.
residuals = np.abs(y[calibration] - model.predict(X[calibration]))
grid = np.sort(residuals)
losses = (residuals[:, None] > grid).astype(float)
for name, bounds in (
    ("conformal risk control (on average only)", crc_bound(losses)),
    ("Hoeffding's bound (with probability 0.95)", hoeffding_bound(losses, 1 - beta)),
):
    print(f"{name}: +- {grid[np.argmax(bounds <= alpha)]:.1f} minutes")
