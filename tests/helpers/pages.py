"""The pages of the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE_BY = re.compile(r"\A# [^\n]+\n\n<!-- (?:Written|Made) by ((?:tools|benchmarks)/\w+\.py)\b")
"""How a page that a script writes begins."""


def generated(text: str) -> bool:
    """Whether a page says that a script of this repository writes it. What such a script writes is compared with it by other tests."""
    found = MADE_BY.match(text)
    return found is not None and (ROOT / found[1]).is_file()


def pages() -> list[str]:
    """All pages, by their path in the repository."""
    return [str(page.relative_to(ROOT)) for folder in (ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md")) for page in sorted(folder)]


def hand_written() -> list[str]:
    """The pages that people write."""
    return [page for page in pages() if not generated((ROOT / page).read_text())]
