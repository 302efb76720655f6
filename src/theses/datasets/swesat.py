"""Answers to the Swedish scholastic aptitude test."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from theses.resources import Resource, find
from theses.validation import check_array, check_choice

__all__ = ["SWESAT", "answer_strings", "load_swesat"]

_FOLDER: Final = "irtorch/datasets/swedish_sat"

SWESAT: Final = {
    "verbal": (
        Resource(
            "irtorch",
            f"{_FOLDER}/swesat22b_verb.pt",
            "7fb8226ee90919ce5294f25f7218dc51f7654a6eba16392559c7d1501f3e8163",
        ),
        Resource(
            "irtorch",
            f"{_FOLDER}/swesat22b_verb_correct.txt",
            "0fcbce21dfcf245048c6fca773d78c627f3b646d467c7b034e903d9d3e016187",
        ),
    ),
    "quantitative": (
        Resource(
            "irtorch",
            f"{_FOLDER}/swesat22b_quant.pt",
            "5d1834d8006914305c92b3bfd97d17cd18b36e46ae44ba8dae35ea6759d61538",
        ),
        Resource(
            "irtorch",
            f"{_FOLDER}/swesat22b_quant_correct.txt",
            "3135ff43ff63010c47dbe97bbb3ed1b5386e9644df593883d5fa68b421f95c17",
        ),
    ),
}
"""Answers and key of each part."""


def load_swesat(part: str = "verbal") -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Answers of 5,000 people to 80 multiple-choice questions of the Swedish SAT, autumn 2022.

    Parameters
    ----------
    part : {"verbal", "quantitative"}, default="verbal"
        Part of the test.

    Returns
    -------
    answers : ndarray of int8, shape (5000, 80)
        Option that was chosen, from 0; -1 where the answer is missing (1,025 of the verbal part, 4,104 of the
        quantitative one).
    key : ndarray of int64, shape (80,)
        Right option of each question.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``irtorch`` is missing.
    ValueError
        If there is no such part.

    References
    ----------
    Swedish Council for Higher Education, Högskoleprovet; sample distributed with irtorch.

    Examples
    --------
    >>> answers, key = load_swesat()
    >>> answers.shape, int((answers == -1).sum()), bool((answers == key).mean() > 0.5)
    ((5000, 80), 1025, True)
    """
    import torch

    check_choice("part", part, tuple(SWESAT))
    responses, right = SWESAT[part]
    tensor = torch.load(find(responses), weights_only=True)
    answers = torch.nan_to_num(tensor, nan=-1.0).numpy().astype(np.int8)
    key = np.array([int(digit) for digit in find(right).read_text(encoding="utf-8") if digit.isdigit()])
    return answers, key.astype(np.int64) - 1


def answer_strings(answers: NDArray[np.int8]) -> list[str]:
    """Answers of each person as one string, a symbol a question.

    Parameters
    ----------
    answers : ndarray of int8, shape (n, n_questions)
        Options from 0 to 25, -1 where missing.

    Returns
    -------
    list of str
        Letters from ``"a"`` for option 0; a missing answer is ``"-"``.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> answer_strings(np.array([[0, 3, -1]]))
    ['ad-']
    """
    options = check_array("answers", answers, ndim=2, dtype=np.int64)
    if options.min() < -1 or options.max() > 25:
        raise ValueError(f"answers must be -1 to 25, got {options.min()} to {options.max()}")
    symbols = np.array(list("-abcdefghijklmnopqrstuvwxyz"))
    return ["".join(row) for row in symbols[options + 1]]
