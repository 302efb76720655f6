from __future__ import annotations

import pytest

from theses.datasets import shakespeare
from theses.datasets.shakespeare import SHAKESPEARE_TEXTS, load_shakespeare, load_speeches, load_word_forms
from theses.resources import CorruptResourceError, Resource


def test_all_texts_are_there_and_in_order():
    texts = load_shakespeare()
    assert list(texts) == sorted(texts) == list(SHAKESPEARE_TEXTS)
    assert len(texts) == 42
    assert "To be, or not to be,--that is the question:--" in texts["hamlet"]
    assert "Shall I compare thee to a summer's day?" in texts["sonnets"]
    assert sum(map(len, texts.values())) > 4_500_000


def test_speeches_are_sets_of_words_within_the_bounds():
    speeches = load_speeches()
    assert len(speeches) == 23_110
    assert all(8 <= len(speech) <= 60 for speech in speeches)
    assert all(word.isascii() and word.isalpha() and word.islower() for speech in speeches for word in speech)
    question = [s for s in speeches if {"mar", "fantasy", "dreaded", "sight"} <= s]
    assert len(question) == 1
    assert {"horatio", "says", "tis", "but", "our", "apparition", "come"} <= question[0]
    longer = load_speeches(61, 200)
    assert longer
    assert min(map(len, longer)) >= 61
    assert len(load_speeches(1, 10**6)) > len(speeches) + len(longer)


def test_word_forms_are_distinct_and_of_some_length():
    words = load_word_forms()
    assert len(words) == len(set(words)) == 23_847
    assert words == sorted(words)
    assert min(map(len, words)) == 3
    assert "honorificabilitudinitatibus" in words
    assert set(words) < set(load_word_forms(1))


def test_words_of_speeches_are_word_forms():
    forms = set(load_word_forms(1))
    assert set().union(*load_speeches()) <= forms


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: load_speeches(0), "min_words"),
        (lambda: load_speeches(9, 8), "max_words"),
        (lambda: load_word_forms(0), "min_length"),
    ],
)
def test_bounds_are_checked(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def test_a_changed_file_is_refused(monkeypatch):
    hamlet = SHAKESPEARE_TEXTS["hamlet"]
    changed = {"hamlet": Resource(hamlet.package, hamlet.path, "0" * 64)}
    monkeypatch.setattr(shakespeare, "SHAKESPEARE_TEXTS", changed)
    with pytest.raises(CorruptResourceError, match="hamlet_gut"):
        load_shakespeare()
