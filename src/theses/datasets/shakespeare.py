"""Shakespeare's works in modern spelling, as Project Gutenberg has them."""

from __future__ import annotations

import re
from typing import Final

from theses.resources import Resource, find
from theses.validation import check_integer

__all__ = ["SHAKESPEARE_TEXTS", "load_shakespeare", "load_speeches", "load_word_forms"]

_SHA256: Final = {
    "alls_well_that_ends_well": "59fdc8e61c63b960bf9030c0a126204d4c0c8c07e2ae62c9a7343ba51a39f6d4",
    "antony_and_cleopatra": "4ee34c39371d05df790b880f2835521919dff45f7eec183855ff7dae1bac95e9",
    "as_you_like_it": "5954146ea5d9231477fed18ee11e0f22267e4d4d4213a39d56e343047e6d8bdf",
    "comedy_of_errors": "1e5f9faa9879d172aaaaf8828def61ad2a0c0ad1ecee149f634d65c3f67809e4",
    "coriolanus": "c4f748c8d386f98db9d39e6cbac69913c940653a222eb847b608be64e4d66aeb",
    "cymbeline": "7a8a994373868eb84d60c7e4c30a7865ed7fe90c74534cc37c173a3b80f98b21",
    "hamlet": "bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a",
    "henry_iv_part_1": "f40b5de9ca126d9ff1c388d0648a2f19c3e7ad3ac80a9662579954bb2e7589f9",
    "henry_iv_part_2": "2898cb3be5e2691cc0310cc94fe70153e3245c88ec307b1b6d43315ec1ab28b2",
    "henry_v": "336564231a0d5aa8dfb4b27964670fbbe27886a2d429f96facfa35c41dda09b9",
    "henry_vi_part_1": "3598ca5644950f443225b86f4774772d12f12e6b95e33cac4f54d131004c2e19",
    "henry_vi_part_2": "c0d4023b61f2aa672fec92fd107a4a2ca3d79008749e3357efecc6a05ddf6603",
    "henry_vi_part_3": "82738995a59a5f18570f16b45503c3ade9ed7098ad3daa01bc963abf409491ff",
    "henry_viii": "33cea8e4fd0a150ced19d1f08fee6df86bd692c1a41b4cdcfc387c47f1470ada",
    "john": "635af28743587546b71008084f15714c9f4fa0a894766427c9b21c052306bf56",
    "julius_caesar": "ee8ca8e9edb603625af98acb395fdd8c1a1697b064444a989dc21817b73ca7b5",
    "lear": "7ac00e23da6e4874b715b3c3c0c1cdc442bc790eb6ac3f39c0610052e5e636fa",
    "lovers_complaint": "29d51c72dbce8b70ae4afbe8d95f23eefff90649c138586eedab9cb56a6e4e1f",
    "loves_labours_lost": "8858afe4d5b0d80936edc0346957f89aca9929de76c2763e76c10a9adb53b2a2",
    "macbeth": "54e1d8055ffa2aec7e831ec43044dd646cacdfce5bf333fa81e6af9c0363c3b7",
    "measure_for_measure": "373e7bad7682ef155ac631da7a4422b0b73c5e9ca84321ab37dac7cce9ba64d9",
    "merchant_of_venice": "97642a677f13b095c481d712734876908db828624e01024a42f8b5ad93c6c599",
    "merry_wives_of_windsor": "b435e5342e22a3681544b5e3bd65fce730edbb28495681a33a7567ddf9f6e5da",
    "midsummer_nights_dream": "fe198104bcbcfa38bbf24c21073844dcbc5be6b8b7cd1bb76a68099f12667152",
    "much_ado_about_nothing": "d47957039342adc96b4b4a3d3871a980de1193127c768b978d368f3d17625c50",
    "othello": "12c32a0e148c3a2f4d9bb5710198f18cd04a5f8197f8cbeb25ca482174382d3d",
    "passionate_pilgrim": "049824e1ca1ca007fb1f34e7d2d2b8325941d43e5bcf0b4e33a097fa50137e18",
    "pericles": "113765d4bd41dfbd7faba192b4a5a20d53fed0da8544b59e4e6a30c6c45eac30",
    "phoenix_and_the_turtle": "0e6165e3ff24f434a020a9e5a14d2f2eea7e24451a726bf059b0d8ac6cfd46ec",
    "rape_of_lucrece": "4ceec0cde4609846a079dbde54c7bd3f80f3a961f24aa6d814983eeea29dffcc",
    "richard_ii": "8ac6a1bac1b42517b70384a1645af44f2db9052d6b9eb508f1135bf8a29513df",
    "richard_iii": "98140214b31451a5b9e4af8bdae9ec1c24cb0966aeabbcaed21d11c8364fe9d9",
    "romeo_and_juliet": "6a5e0c9ee103a9bd95d8b045f5c53f66779b45b198788db458075f828a0425f4",
    "sonnets": "edb826e5a801c955ab21026b3660306838fbf29ec29ea01886b2854c6d639b55",
    "taming_of_the_shrew": "63952a385bfe626dfc4d1af732582b4c734e4134eaa8470cc85b57984e7e7d36",
    "tempest": "76b1bfcff40ead1585c280a7f14147c2761c7b9e6d6fb8598e7aae6e99509e26",
    "timon_of_athens": "e06be61630cfc3b60aa817034c7eabe0f941c28bf46ad18ad8e0332ff6232d07",
    "tragedy_of_titus_andronicus": "6ebff81eb9567ddcd9184e7bf7f35f4e5bdb75a8b7a02db4fe24bf118f562e84",
    "troilus_and_cressida": "d8900eea5aa6df25f79151994fba50753ad88cec14d825bb0fb1ee88ac7c6772",
    "twelfth_night": "bb5b25bd3fe7a34776cab3f6205b410fa442059657aba082334edc80eea958ef",
    "two_gentlemen_of_verona": "26d11defe685c4c34333ee7772c34a0594a8497307f9e8cfb01dac0811505428",
    "winters_tale": "06b39203a7b376902a73d8539eb9f0de4f4246cee0a9bfc6a30a9256d9250393",
}

SHAKESPEARE_TEXTS: Final = {
    work: Resource("shakespeare", f"shksprdata/texts/{work}_gut.txt", digest)
    for work, digest in _SHA256.items()
}
"""Files of the 42 texts by work: 37 plays and 5 books of poems."""

_WORD: Final = re.compile("[a-z]+")
_BLANK_LINES: Final = re.compile(r"\n\s*\n")


def load_shakespeare() -> dict[str, str]:
    """All 42 texts in modern spelling, 37 plays and 5 books of poems.

    Returns
    -------
    dict of str to str
        Text by work, such as ``"hamlet"``, in alphabetical order.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``shakespeare`` is missing.

    References
    ----------
    Project Gutenberg's texts, in the public domain, distributed with the package ``shakespeare``.

    Examples
    --------
    >>> texts = load_shakespeare()
    >>> len(texts), "Denmark" in texts["hamlet"]
    (42, True)
    """
    return {work: find(resource).read_text(encoding="utf-8") for work, resource in SHAKESPEARE_TEXTS.items()}


def load_speeches(min_words: int = 8, max_words: int = 60) -> list[frozenset[str]]:
    """Speeches, and stanzas of the poems, as sets of their distinct words.

    A speech is what stands between two blank lines; a stage direction or a cast is one too if it is of that
    length, and the name of who speaks is a word of it. A word is a run of the letters a to z in the text in
    lower case, so that ``reliev'd`` gives ``reliev`` and ``d``.

    Parameters
    ----------
    min_words, max_words : int, default=8 and 60
        Bounds on the number of distinct words, both included.

    Returns
    -------
    list of frozenset of str
        In the order of the works and of their lines; 23,110 of them with the default bounds.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``shakespeare`` is missing.
    ValueError
        If the bounds are no positive integers or cross.

    Examples
    --------
    >>> speeches = load_speeches()
    >>> len(speeches), min(map(len, speeches)), max(map(len, speeches))
    (23110, 8, 60)
    """
    check_integer("min_words", min_words, minimum=1)
    check_integer("max_words", max_words, minimum=min_words)
    speeches = (
        frozenset(_WORD.findall(block))
        for text in load_shakespeare().values()
        for block in _BLANK_LINES.split(text.lower())
    )
    return [speech for speech in speeches if min_words <= len(speech) <= max_words]


def load_word_forms(min_length: int = 3) -> list[str]:
    """Distinct word forms: runs of the letters a to z in the texts in lower case.

    Parameters
    ----------
    min_length : int, default=3
        Least number of letters.

    Returns
    -------
    list of str
        In alphabetical order; 23,847 of them with 3 letters and more.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``shakespeare`` is missing.
    ValueError
        If ``min_length`` is no positive integer.

    Examples
    --------
    >>> words = load_word_forms()
    >>> len(words), words[1]
    (23847, 'aaron')
    """
    check_integer("min_length", min_length, minimum=1)
    words = {word for text in load_shakespeare().values() for word in _WORD.findall(text.lower())}
    return sorted(word for word in words if len(word) >= min_length)
