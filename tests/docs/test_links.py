"""Links of the pages outside the site, such as the README; the build of the site checks those inside."""

from __future__ import annotations

import re
from pathlib import Path

from markdown.extensions.toc import slugify

from helpers.pages import ROOT


def headings(text: str) -> set[str]:
    """The anchors of a page."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def broken(page: Path) -> list[str]:
    """The links to files and headings that do not exist."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        file = page.parent / name if name else page
        if not re.match(r"https?:", link) and not (file.exists() and (not anchor or anchor in headings(file.read_text()))):
            found.append(link)
    return found


def test_links_lead_somewhere():
    pages = sorted(ROOT.glob("*.md"))
    assert len(pages) >= 4
    assert [(page.name, link) for page in pages for link in broken(page)] == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `word` here\n\n[1](#a-word-here) [2](#none) [3](page.md#a-word-here) [4](other.md)\n\n```\n# none\n```\n")
    assert broken(page) == ["#none", "other.md"]
