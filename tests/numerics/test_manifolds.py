from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from theses.numerics.manifolds import (
    SPD,
    Euclidean,
    GeodesicBall,
    Hyperbolic,
    Manifold,
    Product,
    WholeManifold,
    comparison_factor,
    frechet_mean,
    from_geoopt,
    from_pymanopt,
)

SPACES = [
    Euclidean(3),
    Hyperbolic(3),
    Hyperbolic(2, -0.01),
    Hyperbolic(4, -25.0),
    SPD(1),
    SPD(3),
    Product(SPD(2), SPD(2), Hyperbolic(2), Euclidean(2)),
]


def drawn(space, seed, n=4, scale=0.5):
    rng = np.random.default_rng(seed)
    # Radii in units of the curvature's own length, where that is short.
    scale /= np.sqrt(max(-space.curvature_lower, 1.0))
    return rng, [space.random(rng, scale) for _ in range(n)]


@pytest.mark.parametrize("space", SPACES, ids=repr)
@given(seed=st.integers(0, 2**20))
@settings(max_examples=15)
def test_a_geometry_is_one(space, seed):
    rng, (x, y, z, _) = drawn(space, seed)
    u, w = (space.random_tangent(x, rng) for _ in range(2))
    v = space.log(x, y)
    d = float(space.dist(x, y))
    np.testing.assert_allclose(space.exp(x, v), y, rtol=1e-8, atol=1e-9)
    assert float(space.norm(x, v)) == pytest.approx(d, rel=1e-7, abs=1e-9)
    assert float(space.dist(y, x)) == pytest.approx(d, rel=1e-9)
    assert d <= float(space.dist(x, z)) + float(space.dist(z, y)) + 1e-9
    # Parallel transport is an isometry, takes the velocity along, and there and back is nothing.
    carried = space.transp(x, y, u)
    assert float(space.inner(y, carried, space.transp(x, y, w))) == pytest.approx(
        float(space.inner(x, u, w)), rel=1e-7, abs=1e-8
    )
    np.testing.assert_allclose(space.transp(x, y, v), -space.log(y, x), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(space.transp(y, x, carried), u, rtol=1e-7, atol=1e-8)
    half = space.geodesic(x, y, 0.5)
    assert float(space.dist(x, half)) == pytest.approx(d / 2, rel=1e-7, abs=1e-9)
    assert space.off(y) < 1e-9


@pytest.mark.parametrize("space", SPACES, ids=repr)
@given(seed=st.integers(0, 2**20))
@settings(max_examples=10)
def test_no_curvature_is_positive(space, seed):
    # The semi-parallelogram law of Bruhat and Tits: half the squared distance is strongly convex, modulus 1.
    _, (x, y, z, _) = drawn(space, seed)
    middle = space.geodesic(x, y, 0.5)
    left = float(space.dist(z, middle)) ** 2
    right = (float(space.dist(z, x)) ** 2 + float(space.dist(z, y)) ** 2) / 2 - float(
        space.dist(x, y)
    ) ** 2 / 4
    assert left <= right + 1e-9


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_gradients_are_those_of_finite_differences(space):
    rng, (x, y, a, _) = drawn(space, 7)
    g, w = space.random_tangent(x, rng), space.random_tangent(y, rng)

    def slope(f):
        h = 1e-5
        return (f(space.exp(y, h * w)) - f(space.exp(y, -h * w))) / (2 * h)

    numeric = slope(lambda p: float(space.inner(x, g, space.log(x, p))))
    exact = float(space.inner(y, space.log_adjoint(x, y, g), w))
    assert exact == pytest.approx(numeric, rel=1e-5, abs=1e-7)
    squared = slope(lambda p: float(space.dist(p, a)) ** 2 / 2)
    assert -float(space.inner(y, space.log(y, a), w)) == pytest.approx(squared, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_batches_are_their_members(space):
    rng, points = drawn(space, 3, n=6)
    xs, ys = np.stack(points[:3]), np.stack(points[3:])
    us = np.stack([space.random_tangent(x, rng) for x in xs])
    for got, want in (
        (space.log(xs, ys), [space.log(x, y) for x, y in zip(xs, ys, strict=True)]),
        (space.exp(xs, 0.3 * us), [space.exp(x, 0.3 * u) for x, u in zip(xs, us, strict=True)]),
        (space.dist(xs, ys), [space.dist(x, y) for x, y in zip(xs, ys, strict=True)]),
        (space.dist(xs[0], ys), [space.dist(xs[0], y) for y in ys]),
        (space.transp(xs, ys, us), [space.transp(*t) for t in zip(xs, ys, us, strict=True)]),
        (space.log_adjoint(xs, ys, us), [space.log_adjoint(*t) for t in zip(xs, ys, us, strict=True)]),
    ):
        np.testing.assert_allclose(got, np.stack(want), rtol=1e-9, atol=1e-10)


def test_positive_definite_matrices_by_matrix_functions():
    rng, (x, y, *_) = drawn(SPD(4), 1)
    root = linalg.sqrtm(x)
    inverse = np.linalg.inv(root)
    seen = linalg.logm(inverse @ y @ inverse)
    space = SPD(4)
    np.testing.assert_allclose(space.log(x, y), root @ seen @ root, atol=1e-9)
    assert float(space.dist(x, y)) == pytest.approx(np.linalg.norm(seen))
    g = rng.normal(size=(4, 4))
    g = g + g.T
    u = space.random_tangent(x, rng)
    # The Riemannian gradient answers for the partial derivatives.
    assert float(space.inner(x, space.egrad2rgrad(x, g), u)) == pytest.approx(np.trace(g @ u))


def test_hyperbolic_distance_keeps_its_digits():
    space = Hyperbolic(2)
    x = space.exp(space.origin(), np.array([0.0, 2.0, 0.0]))
    for d in (1e-9, 1e-6, 1.0):
        y = space.exp(x, d * space.transp(space.origin(), x, np.array([0.0, 0.6, 0.8])))
        assert float(space.dist(x, y)) == pytest.approx(d, rel=1e-5)
    # Curvature -1/R^2 is the unit space, R times as large.
    large = Hyperbolic(2, -0.25)
    a, b = np.array([0.3, -0.2]), np.array([-0.5, 0.9])
    assert float(large.dist(large.lift(2 * a), large.lift(2 * b))) == pytest.approx(
        2 * float(space.dist(space.lift(a), space.lift(b)))
    )
    # One dimension is flat, whatever the curvature is said to be.
    line = Hyperbolic(1)
    points = [line.exp(line.origin(), np.array([0.0, t])) for t in (-1.0, 0.5, 2.0)]
    assert float(line.dist(points[0], points[2])) == pytest.approx(3.0)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_projection_to_a_ball_is_the_nearest_point(space):
    rng, (center, x, *_) = drawn(space, 5)
    radius = float(space.dist(center, x)) / 2
    ball = GeodesicBall(space, center, radius)
    p = ball.project(x)
    assert float(space.dist(center, p)) == pytest.approx(radius, rel=1e-7)
    nearest = float(space.dist(x, p))
    for _ in range(20):
        q = ball.project(space.exp(p, 0.3 * radius * space.random_tangent(p, rng)))
        assert float(space.dist(x, q)) >= nearest - 1e-9
        assert ball.contains(q)
    assert ball.project(p) == pytest.approx(p)
    outward = -space.log(p, center)
    assert float(space.norm(p, ball.cone(p, outward))) < 1e-7 * (1 + radius)
    np.testing.assert_array_equal(ball.cone(center, outward), outward)
    free = WholeManifold(space)
    assert free.contains(x) and free.project(x) is x and free.cone(x, outward) is outward


def test_frechet_mean_has_no_slope_and_takes_weights():
    for space in SPACES:
        _, points = drawn(space, 11, n=5)
        w = np.array([1.0, 2.0, 0.0, 3.0, 0.5])
        mean = frechet_mean(space, np.stack(points), w)
        slope = np.tensordot(w, space.log(mean, np.stack(points)), axes=1)
        assert float(space.norm(mean, slope)) < 1e-8
    line = Euclidean(1)
    assert frechet_mean(line, np.array([[0.0], [3.0]]), [2, 1]).tolist() == pytest.approx([1.0])
    for weights, message in (
        ([1.0], "same length"),
        ([-1.0, 2.0], "nonnegative"),
        ([0.0, 0.0], "positive sum"),
    ):
        with pytest.raises(ValueError, match=message):
            frechet_mean(line, np.array([[0.0], [3.0]]), weights)


def test_geoopt_agrees():
    geoopt = pytest.importorskip("geoopt")
    torch = pytest.importorskip("torch")
    for theirs, shape in (
        (geoopt.Lorentz(k=4.0), (4,)),
        (geoopt.SymmetricPositiveDefinite(), (3, 3)),
        (geoopt.Euclidean(ndim=1), (3,)),
    ):
        theirs = theirs.to(torch.float64)
        ours = from_geoopt(theirs, *shape)
        rng, (x, y, *_) = drawn(ours, 2)
        u = 0.3 * ours.random_tangent(x, rng)
        X, Y, U = (torch.as_tensor(a) for a in (x, y, u))
        np.testing.assert_allclose(ours.exp(x, u), theirs.expmap(X, U).numpy(), atol=1e-7)
        np.testing.assert_allclose(ours.log(x, y), theirs.logmap(X, Y).numpy(), atol=1e-6)
        np.testing.assert_allclose(ours.transp(x, y, u), theirs.transp(X, Y, U).numpy(), atol=1e-6)
        ours.check_point("x", x)
    for wrong in (geoopt.Sphere(), geoopt.SymmetricPositiveDefinite("LEM")):
        with pytest.raises(ValueError, match="Hadamard needed"):
            from_geoopt(wrong, 3, 3)


def test_pymanopt_agrees():
    manifolds = pytest.importorskip("pymanopt").manifolds
    theirs = manifolds.SymmetricPositiveDefinite(3)
    ours = from_pymanopt(theirs)
    _, (x, y, *_) = drawn(ours, 4)
    assert float(ours.dist(x, y)) == pytest.approx(theirs.dist(x, y))
    np.testing.assert_allclose(ours.log(x, y), theirs.log(x, y), atol=1e-9)
    assert repr(from_pymanopt(manifolds.Euclidean(4))) == "Euclidean(4)"
    for wrong in (manifolds.Sphere(3), manifolds.SymmetricPositiveDefinite(3, k=2)):
        with pytest.raises(ValueError, match="Hadamard needed"):
            from_pymanopt(wrong)


def test_points_are_checked_at_the_door():
    sheet = Hyperbolic(2)
    good = sheet.origin()
    for bad, message in (
        (good * 1.001, "must lie on"),
        (-good, "must lie on"),
        (good[:2], "shape"),
        (np.array([np.nan, 0, 0]), "finite"),
    ):
        with pytest.raises(ValueError, match=f"x must|{message}"):
            sheet.check_point("x", bad)
    with pytest.raises(ValueError, match="at index 1"):
        sheet.check_point("x", np.stack([good, 2 * good]), batch=True)
    with pytest.raises(ValueError, match="must lie on"):
        SPD(2).check_point("x", np.diag([1.0, -1.0]))
    with pytest.raises(ValueError, match="must lie on"):
        SPD(2).check_point("x", np.array([[1.0, 0.1], [0.0, 1.0]]))
    far = sheet.lift(np.array([np.sinh(13.0), 0.0]))
    with pytest.warns(UserWarning, match="beyond 12"):
        sheet.check_point("x", far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sheet.check_point("x", sheet.lift(np.array([np.sinh(11.0), 0.0])))
    with pytest.raises(ValueError, match="curvature"):
        Hyperbolic(2, 1.0)
    with pytest.raises(TypeError, match="factors"):
        Product()
    with pytest.raises(NotImplementedError, match="derivative of its logarithm"):
        Manifold.log_adjoint(sheet, good, good, good)


def test_comparison_factor_bounds_the_hessian():
    assert comparison_factor(0.0, -1.0) == 1.0 and comparison_factor(3.0, 0.0) == 1.0
    space = Hyperbolic(2, -4.0)
    a = space.origin()
    x = space.exp(a, np.array([0.0, 1.5, 0.0]))
    u = space.transp(a, x, np.array([0.0, 0.0, 1.0]))
    h = 1e-3
    f = [float(space.dist(space.exp(x, t * u), a)) ** 2 / 2 for t in (-h, 0.0, h)]
    assert (f[0] - 2 * f[1] + f[2]) / h**2 == pytest.approx(comparison_factor(1.5, -4.0), rel=1e-4)
