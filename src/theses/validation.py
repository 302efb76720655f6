"""Checks at the public door: each error names the parameter, what was expected and what came."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = [
    "as_generator",
    "as_torch_generator",
    "check_array",
    "check_choice",
    "check_integer",
    "check_real",
    "check_same_length",
]


def check_array(
    name: str,
    value: Any,
    *,
    ndim: int | Collection[int],
    dtype: Any = np.float64,
    finite: bool = True,
    min_length: int = 1,
) -> NDArray[Any]:
    """Array of a given rank and type.

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    value : array-like
        What the caller gave: an array, a torch tensor, a table's column, nested sequences.
    ndim : int or collection of int
        Ranks that are allowed.
    dtype : dtype or None, default=float64
        Type of the result; None keeps what came.
    finite : bool, default=True
        Refuse NaN and infinity.
    min_length : int, default=1
        Least length of the first axis.

    Returns
    -------
    ndarray
        ``value`` as an array; not copied where it already fits.

    Raises
    ------
    TypeError
        If it cannot be read as an array of numbers.
    ValueError
        If rank, length or content are not as asked for.

    Examples
    --------
    >>> check_array("losses", [0, 1], ndim=1)
    array([0., 1.])
    >>> check_array("losses", [[0, 1]], ndim=1)
    Traceback (most recent call last):
    ValueError: losses must have 1 dimension, got shape (1, 2)
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    complex_came = getattr(getattr(value, "dtype", None), "kind", "") == "c"
    if complex_came and dtype is not None and np.dtype(dtype).kind != "c":
        raise TypeError(f"{name} must be real, got {value.dtype}")
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {_describe(value)} ({error})") from None
    ranks = {ndim} if isinstance(ndim, int) else set(ndim)
    if array.ndim not in ranks:
        wanted = " or ".join(str(r) for r in sorted(ranks))
        plural = "" if wanted == "1" else "s"
        raise ValueError(f"{name} must have {wanted} dimension{plural}, got shape {array.shape}")
    if array.ndim and len(array) < min_length:
        raise ValueError(f"{name} must have at least {min_length} row(s), got shape {array.shape}")
    if 0 in array.shape[1:]:
        raise ValueError(f"{name} must not have an empty axis, got shape {array.shape}")
    if finite and array.dtype.kind in "fc" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")
    return array


def check_same_length(arrays: Mapping[str, Any]) -> int:
    """Common length of several arrays.

    Parameters
    ----------
    arrays : mapping of str to sized
        Arrays by parameter name.

    Returns
    -------
    int
        Their length.

    Raises
    ------
    ValueError
        If they differ.

    Examples
    --------
    >>> check_same_length({"X": [1, 2], "y": [1, 2]})
    2
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"{' and '.join(lengths)} must have the same length, but {listed}")
    return next(iter(lengths.values()))


def check_integer(name: str, value: Any, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Integer within bounds (both included).

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    value : int
        What the caller gave; booleans are refused.
    minimum, maximum : int or None, default=None
        Bounds.

    Returns
    -------
    int
        The value.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is out of bounds.

    Examples
    --------
    >>> check_integer("n_projections", 0, minimum=1)
    Traceback (most recent call last):
    ValueError: n_projections must be at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {_describe(value)}")
    return int(_check_bounds(name, int(value), minimum, maximum, include=True))


def check_real(
    name: str,
    value: Any,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    include: bool = True,
) -> float:
    """Finite real number within bounds.

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    value : float
        What the caller gave; booleans are refused.
    minimum, maximum : float or None, default=None
        Bounds.
    include : bool, default=True
        Whether the bounds themselves are allowed.

    Returns
    -------
    float
        The value.

    Raises
    ------
    TypeError
        If it is no real number.
    ValueError
        If it is NaN, infinite or out of bounds.

    Examples
    --------
    >>> check_real("alpha", 1.0, minimum=0, maximum=1, include=False)
    Traceback (most recent call last):
    ValueError: alpha must be less than 1, got 1.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {_describe(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return float(_check_bounds(name, float(value), minimum, maximum, include=include))


def _check_bounds(
    name: str, value: float, minimum: float | None, maximum: float | None, *, include: bool
) -> float:
    if minimum is not None and (value < minimum or (value == minimum and not include)):
        raise ValueError(f"{name} must be {'at least' if include else 'greater than'} {minimum}, got {value}")
    if maximum is not None and (value > maximum or (value == maximum and not include)):
        raise ValueError(f"{name} must be {'at most' if include else 'less than'} {maximum}, got {value}")
    return value


def check_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """One of a few values.

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    value : object
        What the caller gave.
    choices : collection
        What is allowed.

    Returns
    -------
    object
        The value.

    Raises
    ------
    ValueError
        If it is none of them.

    Examples
    --------
    >>> check_choice("projection", "fourier", ("linear", "conv"))
    Traceback (most recent call last):
    ValueError: projection must be one of 'linear', 'conv', got 'fourier'
    """
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def as_generator(
    random_state: int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None,
) -> np.random.Generator:
    """NumPy generator from what scikit-learn calls a random state.

    Parameters
    ----------
    random_state : int, numpy Generator, RandomState or SeedSequence, or None
        A generator is used as it is (and moves on); None draws fresh entropy; the legacy global state is
        never touched.

    Returns
    -------
    numpy.random.Generator
        The generator.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If the integer is negative.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    if random_state is None or isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(random_state)
    if isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral):
        raise TypeError(
            "random_state must be an int, a numpy Generator, RandomState or SeedSequence, or None, "
            f"got {_describe(random_state)}"
        )
    return np.random.default_rng(check_integer("random_state", random_state, minimum=0))


def as_torch_generator(
    generator: torch.Generator | int | None, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Torch generator on a device.

    Parameters
    ----------
    generator : torch.Generator, int or None
        A generator is used as it is (and moves on); an int seeds a new one; None draws fresh entropy, without
        touching torch's global generator.
    device : torch.device or str, default="cpu"
        Device of a new generator.

    Returns
    -------
    torch.Generator
        The generator.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    import torch

    if isinstance(generator, torch.Generator):
        return generator
    fresh = torch.Generator(device=device)
    if generator is None:
        fresh.seed()
    elif isinstance(generator, numbers.Integral) and not isinstance(generator, bool):
        fresh.manual_seed(int(generator))
    else:
        raise TypeError(f"generator must be a torch.Generator, an int or None, got {_describe(generator)}")
    return fresh


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
