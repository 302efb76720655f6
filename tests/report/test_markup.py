from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.made import ATTACK
from theses.report.markup import Markup, join, json_script, page, tag


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(markup: str) -> Texts:
    reader = Texts()
    reader.feed(markup)
    reader.close()
    return reader


# Carriage returns and NUL are not what a parser gives back.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"))


@given(texts)
def test_text_comes_back_as_it_was_and_adds_no_element(text: str):
    found = read(tag("p", text, title=text))
    assert found.tags == ["p"]
    assert found.text == text
    assert found.attributes == [("title", text)]


@given(texts)
def test_embedded_json_comes_back_and_cannot_end_its_element(text: str):
    element = json_script({"key": [text]})
    assert element.count("<") == 2
    assert json.loads(element.partition(">")[2].rpartition("<")[0]) == {"key": [text]}


def test_an_attack_stays_text():
    assert "<img" not in tag("p", ATTACK, title=ATTACK)
    assert "<" not in json_script(ATTACK).removeprefix("<script").removesuffix("</script>")


def test_markup_is_not_escaped_twice():
    assert join("a & ", tag("b", "c < d"), None, ["e", ["f"]]) == "a &amp; <b>c &lt; d</b>ef"
    assert isinstance(join("a"), Markup)


def test_attributes():
    assert tag("input", required=True, disabled=False, id=None, data_kind="a b", for_="x") == (
        '<input required data-kind="a b" for="x">'
    )
    assert tag("br") == "<br>"


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_script([float("nan")])


def test_page():
    assert page(tag("title", "T"), "body & soul") == (
        '<!doctype html>\n<html lang="en"><head><title>T</title></head><body>body &amp; soul</body></html>\n'
    )
