"""Hand-written pages are short, and so are their sentences."""

from __future__ import annotations

import re

import pytest

from helpers.pages import ROOT, hand_written

MOST_WORDS, MOST_BYTES = 40, 16_000


def sentences(text: str) -> list[str]:
    """The sentences of a page: of its paragraphs, headings, items of lists and cells of tables, without code."""
    text = re.sub(r"^( *)```.*?^\1```[^\n]*$|<!--.*?-->|^:::.*$|^ {4}.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^#.*$|^\|.*$", lambda line: "\n" + line[0].replace("|", "\n\n") + "\n", text, flags=re.MULTILINE)
    blocks = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    return [one for block in blocks for one in re.split(r"(?<!\bal\.)(?<!e\.g\.)(?<=[.!?])[*)\"]*\s+", " ".join(block.split())) if one]


def words(sentence: str) -> int:
    """The words of a sentence; code counts as one."""
    return len([word for word in re.sub(r"`[^`]*`", "code", sentence).split() if re.search(r"\w", word)])


@pytest.mark.parametrize("page", hand_written())
def test_no_sentence_is_long(page):
    assert [one for one in sentences((ROOT / page).read_text()) if words(one) > MOST_WORDS] == []


@pytest.mark.parametrize("page", hand_written())
def test_no_page_is_long(page):
    assert len((ROOT / page).read_bytes()) <= MOST_BYTES


def test_a_long_sentence_is_found():
    long = "It " + "is " * 39 + "long."
    assert words(long) == 41
    assert (
        sentences(f"# Title\n\nShort. {long} Short again.\n\n- item `a b c`\n- {long}\n\n| a | {long} |\n\n```\n{long}\n```\n").count(long)
        == 3
    )
    assert words("An item `with many words of code` counts 6.") == 5
