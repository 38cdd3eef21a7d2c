"""Hand-written pages are short, and so are their sentences."""

from __future__ import annotations

import re

import pytest

from helpers.pages import ROOT, generated, hand_written, pages

MOST_WORDS, MOST_BYTES = 40, 16_000


def sentences(text: str) -> list[str]:
    """The sentences of a page: of its paragraphs, headings, items of lists and cells of tables, without code."""
    text = re.sub(r"^( *)```.*?^\1```[^\n]*$|<!--.*?-->|^:::.*$|^ {4}.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[.!?](?=\s)", "", code[0]), text)  # no sentence ends in code
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


def test_only_pages_that_a_script_writes_are_left_out():
    left_out = set(pages()) - set(hand_written())
    appendix = {page for page in pages() if page.startswith("docs/reference/results/")}
    assert left_out == appendix | {"docs/reference/command-line.md"}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/index.md"} <= set(hand_written())
    assert generated("# Title\n\n<!-- Made by tools/write_command_line.py; do not edit. -->\n\nText.")
    assert not generated("# Title\n\n<!-- Made by hand. -->\n\nText.")
    assert not generated("# Title\n\n<!-- Made by tools/nothing.py -->\n\nText.")
    assert not generated("# Title\n\nText.\n\n<!-- Made by tools/write_command_line.py -->")


def test_a_long_sentence_is_found():
    long = "It " + "is " * 39 + "long."
    assert words(long) == 41
    assert (
        sentences(f"# Title\n\nShort. {long} Short again.\n\n- item `a b c`\n- {long}\n\n| a | {long} |\n\n```\n{long}\n```\n").count(long)
        == 3
    )
    assert words("An item `with many words of code` counts 6.") == 5
    for hidden in (long.replace("is", "is <!-- a. --> is", 1), long.replace("is", "`code. b` is", 1)):
        assert max(map(words, sentences(hidden))) > MOST_WORDS, "neither a comment nor code ends a sentence"
