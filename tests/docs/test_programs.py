"""The Python programs of pages that are no tutorials run, in an empty folder; so does the first run, with its commands."""

from __future__ import annotations

import pytest

from helpers.documents import blocks, follow
from helpers.pages import ROOT, pages

FIRST = "docs/start/first-run.md"
PROGRAMS = {
    f"{page}:{block.line}": block.code
    for page in pages()
    if page.startswith("docs/") and "/tutorials/" not in page and page != FIRST
    for block in blocks((ROOT / page).read_text())
    if block.language == "python" and not block.file
}


@pytest.mark.slow
@pytest.mark.parametrize("place", PROGRAMS)
def test_a_program_runs(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[place], place, "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_first_run_does_what_it_says(tmp_path):
    screen = follow(ROOT / FIRST, tmp_path)
    assert "push right" in screen or "push left" in screen


def test_programs_are_found():
    assert len(PROGRAMS) >= 15
