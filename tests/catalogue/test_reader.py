from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalogue.generated import SMALL, catalogue, write_large, write_small
from theses.catalogue import CardError, UnknownMethodError, card_path, cards, load_card, lookup


@pytest.fixture
def small(tmp_path: Path):
    with catalogue(write_small(tmp_path)):
        yield tmp_path


def test_slug_and_package_follow_from_the_place(small: Path):
    assert {card.slug for card in cards()} == set(SMALL)
    assert lookup("cache-squeeze").package == "lm.inference"
    assert all(card_path(card).is_file() for card in cards())


def test_order_is_that_of_packages_and_slugs(small: Path):
    assert [(card.package, card.slug) for card in cards()] == sorted(
        (card.package, card.slug) for card in cards()
    )


@pytest.mark.parametrize(
    "name",
    [
        "table-distance",
        "TABLE_DISTANCE",
        "s-TD",
        "s-td",
        "Sliced Table Distance",
        "2501.00000",
        "arXiv:2501.00000",
    ],
)
def test_a_method_is_found_by_each_of_its_names(small: Path, name: str):
    assert lookup(name).slug == "table-distance"


@pytest.mark.parametrize(
    ("name", "nearest"), [("tabel-distance", "table-distance"), ("metric mts", "metric-tree")]
)
def test_an_unknown_name_gets_the_nearest(small: Path, name: str, nearest: str):
    with pytest.raises(UnknownMethodError, match=f"no method is called '{name}'; nearest: .*{nearest}"):
        lookup(name)


def test_a_name_like_no_other_gets_the_list(small: Path):
    with pytest.raises(UnknownMethodError, match="`theses list` shows all"):
        lookup("§§§")


@pytest.mark.parametrize(
    ("old", "new", "shared"),
    [
        ('name = "MFC"', 'name = "RidgeCore"', "ridgecore"),
        ('aliases = ["metric MST", ', 'aliases = ["S-TD", ', "s-td"),
        ('aliases = ["metric MST", ', 'aliases = ["2501.00003", ', "2501.00003"),
        ('aliases = ["metric MST", ', 'aliases = ["row_coreset", ', "row-coreset"),
    ],
)
def test_two_methods_may_not_share_a_name(tmp_path: Path, old: str, new: str, shared: str):
    path = write_small(tmp_path) / "graphs" / "metric_tree.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with catalogue(tmp_path), pytest.raises(CardError, match=f"'{shared}' already means") as caught:
        cards()
    assert ".toml" in str(caught.value)


def test_a_method_may_repeat_its_own_name(tmp_path: Path):
    path = write_small(tmp_path) / "graphs" / "metric_tree.toml"
    path.write_text(
        path.read_text().replace('aliases = ["metric MST", ', 'aliases = ["MFC", "metric-tree", ')
    )
    with catalogue(tmp_path):
        assert lookup("mfc").slug == "metric-tree"


@pytest.mark.parametrize("content", [b"name = ", b"name = 'a'\nname = 'b'\n", b"name = '\xff'\n"])
def test_what_is_no_toml_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "data" / "broken.toml"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CardError, match=r"broken\.toml: "):
        load_card(path, tmp_path)


def test_a_large_catalogue_is_read_whole(tmp_path: Path):
    with catalogue(write_large(tmp_path)):
        assert len(cards()) == 95
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.toml")]
    assert sum(sizes) / len(sizes) > 6_000


def test_the_library_s_own_catalogue_is_valid():
    for card in cards():
        assert lookup(card.slug) is card
        assert lookup(card.paper.identifier) is card
