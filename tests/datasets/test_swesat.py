from __future__ import annotations

import numpy as np
import pytest

from theses.datasets.swesat import answer_strings, load_swesat


@pytest.mark.parametrize(("part", "missing"), [("verbal", 1_025), ("quantitative", 4_104)])
def test_answers_and_key_belong_together(part, missing):
    answers, key = load_swesat(part)
    assert answers.shape == (5_000, 80)
    assert answers.dtype == np.int8
    assert (answers == -1).sum() == missing
    assert set(np.unique(answers)) <= set(range(-1, 5))
    assert key.shape == (80,)
    right = answers == key
    # The key says what most who do well choose: each question goes with the rest of the test.
    assert 0.4 < right.mean() < 0.9
    totals = right.sum(axis=1)
    with_rest = [np.corrcoef(right[:, j], totals - right[:, j])[0, 1] for j in range(80)]
    assert np.mean(np.array(with_rest) > 0) > 0.95
    shifted = (answers == (key + 1) % 4).mean()
    assert right.mean() > shifted + 0.1


def test_answer_strings_have_a_symbol_for_each_answer():
    answers, _ = load_swesat()
    strings = answer_strings(answers)
    assert len(strings) == 5_000
    assert {len(string) for string in strings} == {80}
    assert sum(string.count("-") for string in strings) == 1_025
    assert [ord(symbol) - ord("a") for symbol in strings[0]] == answers[0].tolist()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="part must be one of"):
        load_swesat("oral")
    with pytest.raises(ValueError, match="answers must be -1 to 25"):
        answer_strings(np.array([[26]]))
    with pytest.raises(ValueError, match="answers must have 2 dimensions"):
        answer_strings(np.array([1]))
