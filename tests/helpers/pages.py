"""The pages of the documentation."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("<!-- Written by ", "<!-- Made by ")
"""How a page that a script writes begins, after its title."""


def hand_written() -> list[str]:
    """The pages that people write, by their path in the repository."""
    pages = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))),
    ]
    return [page for page in pages if not any(mark in (ROOT / page).read_text()[:400] for mark in GENERATED)]
