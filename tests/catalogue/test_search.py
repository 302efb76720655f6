from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalogue.generated import SMALL, catalogue, write_large, write_small
from theses.catalogue import HAVE, WANT, Card, cards
from theses.catalogue.search import THRESHOLD, matches_words, outside_for, rank, stems

ANSWERED = {
    "distance between two labelled tables": "table-distance",
    "how far apart are my two data sets": "table-distance",
    "how similar are these labelled datasets": "table-distance",
    "compare two tables with labels": "table-distance",
    "which month's data differ from the others": "table-distance",
    "minimum spanning tree of strings": "metric-tree",
    "cluster a million strings by edit distance": "metric-tree",
    "single linkage clustering with my own metric": "metric-tree",
    "MST": "metric-tree",
    "spaning tre of points": "metric-tree",
    "risk guarantee from calibration losses": "quadrature-bound",
    "conformal prediction": "quadrature-bound",
    "upper bound on the risk of my model": "quadrature-bound",
    "prediction intervals that are guaranteed": "quadrature-bound",
    "treatment effect with hidden confounders": "latent-effect",
    "causal effect with one proxy": "latent-effect",
    "minimize a black box": "box-search",
    "optimisation without gradients": "box-search",
    "global optimum of an expensive function": "box-search",
    "make the KV cache smaller": "cache-squeeze",
    "compress a language model's cache": "cache-squeeze",
    "LLM runs out of memory on long prompts": "cache-squeeze",
    "sample from a posterior in parallel": "slice-sampler",
    "parallel MCMC": "slice-sampler",
    "predict the next event": "event-forecast",
    "forecast earthquakes": "event-forecast",
    "where in the image is the word dragon": "word-heatmap",
    "subset of rows for regression": "row-coreset",
    "coreset": "row-coreset",
}
# With where to send those who ask it, if we know.
NOT_ANSWERED = {
    "train a random forest": "scikit-learn",
    "train a random forest classifier": "scikit-learn",
    "weather in Paris": "StatsForecast",
    "translate English to German": "sentence-transformers",
    "solve the Navier-Stokes equations": "SciPy",
    "detect faces in photos": "scikit-image",
    "recommend movies to users": "scikit-learn",
    "play chess": "OpenSpiel",
    "fold a protein": "RDKit",
    "reinforcement learning for a robot arm": "Stable-Baselines3",
    "nash equilibrium of a matrix game": "OpenSpiel",
    "read an Excel file": "polars",
    "k-means of customers": "scikit-learn",
    "generate molecules": "NumPyro",
    "named entity recognition in medical documents": "sentence-transformers",
    "object detection in video": "scikit-image",
    "detect fraud in bank transactions": "scikit-learn",
    "fine-tune BERT": "Lightning",
    "impute missing values": "scikit-learn",
    "principal component analysis": "scikit-learn",
    "sort a list of numbers": None,
    "speech recognition": None,
    "plot a histogram": None,
    "quantum circuit simulation": None,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Card, ...]:
    with catalogue(write_small(tmp_path_factory.mktemp("small"))):
        return cards()


@pytest.fixture(scope="module")
def crowded(small: tuple[Card, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[Card, ...]:
    """The small catalogue among ninety-five cards of the same words, shuffled."""
    with catalogue(write_large(tmp_path_factory.mktemp("large"))):
        return small + cards()


def score(catalogue: tuple[Card, ...], words: str, slug: str) -> float:
    return next((match.score for match in rank(catalogue, words) if match.card.slug == slug), 0.0)


@pytest.mark.parametrize(("words", "slug"), ANSWERED.items())
def test_the_method_for_a_question_comes_first(small: tuple[Card, ...], words: str, slug: str):
    assert rank(small, words)[0].card.slug == slug


def test_the_threshold_parts_questions_with_an_answer_from_those_without(
    small: tuple[Card, ...], crowded: tuple[Card, ...]
):
    for catalogue_ in (small, crowded):
        answered = [score(catalogue_, words, slug) for words, slug in ANSWERED.items()]
        not_answered = [score(catalogue_, words, slug) for words in NOT_ANSWERED for slug in SMALL]
        assert min(answered) > THRESHOLD + 0.03
        assert max(not_answered) < THRESHOLD - 0.03


@pytest.mark.parametrize(("words", "library"), NOT_ANSWERED.items())
def test_other_questions_are_sent_to_the_right_library(words: str, library: str | None):
    found = outside_for(words)
    assert (found and found.library) == library


def test_what_a_method_is_not_for_does_not_count(small: tuple[Card, ...]):
    assert score(small, "noisy function", "box-search") < score(small, "deterministic function", "box-search")
    assert not score(small, "drift", "quadrature-bound")


def test_kinds_are_demanded(small: tuple[Card, ...]):
    assert [match.card.slug for match in rank(small, want=["tree"])] == ["metric-tree"]
    assert {match.card.slug for match in rank(small, have=["table"])} == {
        slug for slug, card in SMALL.items() if "table" in card[4]
    }
    assert not rank(small, "distance", have=["molecules"])


def test_files_decide_between_equal_words(small: tuple[Card, ...]):
    words = "clusters or a bound"
    by_strings = rank(small, words, files={"strings": 1.0})
    by_losses = rank(small, words, files={"losses": 1.0})
    assert by_strings[0].card.slug == "metric-tree"
    assert by_strings[0].kinds == ("strings",)
    assert by_losses[0].card.slug == "quadrature-bound"


def test_files_alone_rank_by_what_they_surely_are(small: tuple[Card, ...]):
    ranked = rank(small, files={"strings": 1.0, "table": 0.5})
    assert ranked[0].card.slug == "metric-tree"
    assert {match.score for match in ranked[1:]} == {0.5}


def test_words_that_fit_nothing_find_nothing(small: tuple[Card, ...]):
    assert rank(small, "xylophone") == []
    assert rank((), "distance") == []


def test_no_question_lists_all_in_order(small: tuple[Card, ...]):
    assert [match.card for match in rank(small)] == list(small)


def test_reasons_are_given_in_the_user_s_words(small: tuple[Card, ...]):
    assert rank(small, "clustering of my xylophones and Strings")[0].words == ("clustering", "strings")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("distances", "distance"),
        ("clustering", "clusters"),
        ("labelled", "labels"),
        ("labeled", "label"),
        ("minimise", "minimize"),
        ("optimisation", "optimization"),
        ("data sets", "dataset"),
        ("queries", "query"),
        ("sliced", "slice"),
        ("Bayes'", "bayes"),
        ("model’s", "models"),
    ],
)
def test_forms_of_a_word_are_one(a: str, b: str):
    assert list(stems(a)) == list(stems(b))


@pytest.mark.parametrize(("a", "b"), [("bus", "bu"), ("loss", "los"), ("analysis", "analysi"), ("ring", "r")])
def test_short_words_keep_their_ends(a: str, b: str):
    assert list(stems(a)) != list(stems(b))


@given(st.text(max_size=40))
def test_saying_it_twice_says_nothing_new(text: str):
    found = stems(text)
    assert all(found)
    assert list(stems(f"{text} . {text}")) == list(found)


@given(
    words=st.lists(st.sampled_from(sorted({w for q in ANSWERED for w in q.split()})), min_size=1, max_size=6)
)
def test_scores_are_shares_and_fall(small: tuple[Card, ...], words: list[str]):
    scores = [match.score for match in rank(small, " ".join(words))]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < value <= 1 for value in scores)


def test_words_of_a_list_must_all_be_there(small: tuple[Card, ...]):
    card = next(card for card in small if card.slug == "metric-tree")
    assert matches_words(card, ["spanning", "trees"])
    assert matches_words(card, ["span"])
    assert matches_words(card, [])
    assert not matches_words(card, ["spanning", "molecule"])


def test_every_kind_has_an_outside_library():
    for kind in WANT:
        found = outside_for(want=[kind])
        assert found is not None
        assert found.sentence.endswith(".")
        assert found.install.startswith("pip install ")
        assert found.kind == kind
    for kind in HAVE:
        found = outside_for(have=[kind])
        assert found is not None
        assert found.kind == kind


def test_a_wanted_kind_decides_before_one_that_is_there_and_before_words():
    found = outside_for("play chess", have=["table"], want=["clusters"])
    assert found is not None
    assert found.kind == "clusters"
