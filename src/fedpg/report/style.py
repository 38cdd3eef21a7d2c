"""The look of all figures: one colour, marker and line style for every method, in the paper's figures and in `fedpg report`."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#555555")
"""Okabe and Ito's palette, which colour-blind people can read, with grey in place of yellow. `page.html` has the same."""
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY = range(len(PALETTE))
DASHES = ("-", "--", ":")
MARKERS = "osD^vpX"


class Style(NamedTuple):
    """How a method is drawn: the number of its colour in `PALETTE`, matplotlib's marker, and the number of its line in `DASHES`."""

    colour: int
    marker: str
    dash: int = 0


STYLES = {
    "calm": Style(VERMILLION, "o"),
    "calm-vr": Style(VERMILLION, "D", 1),
    "pavg": Style(BLACK, "s"),
    "pavg-softmax": Style(BLACK, "D", 1),
    "pavg-npg": Style(BLACK, "^", 2),
    "pavg-projected": Style(BLACK, "v", 2),
    "fednpg": Style(GREY, "^", 1),
    "fapi": Style(GREY, "v", 2),
    "local-only": Style(GREY, "X", 2),
    "pooled": Style(GREY, "P", 1),
    "fedpg-br": Style(GREY, "D"),
    "fedsvrpg-m": Style(BLUE, "^"),
    "nharpg": Style(BLUE, "X", 1),
    "authors-svrpg": Style(BLUE, "P", 2),
    "fedhapg-m": Style(SKY, "v"),
    "authors-hapg": Style(SKY, "P", 2),
    "mfpo": Style(SKY, "<", 1),
    "scaffold": Style(GREEN, "D"),
    "fast-fedpg": Style(GREEN, "p", 1),
    "fedavg-m": Style(ORANGE, "^"),
    "fedprox": Style(ORANGE, "s", 1),
    "fedkl": Style(PURPLE, "p", 1),
    "heavy-ball": Style(PURPLE, "v"),
    "fedavg-ppo": Style(BLACK, "p", 1),
    "scaffold-ppo": Style(GREEN, "P", 1),
    "calm-ppo": Style(VERMILLION, "s", 1),
    "ppo": Style(BLUE, "o"),
    "published": Style(BLACK, "*", 2),
    "promised slope": Style(GREY, "", 1),
}
"""By what `--algorithm` calls it."""
ALIASES = {
    "pavg, exact": "pavg-softmax",
    "pavg, natural": "pavg-npg",
    "pavg, projected": "pavg-projected",
    "harpg": "nharpg",
    "n-harpg": "nharpg",
    "authors' svrpg": "authors-svrpg",
    "authors' hapg": "authors-hapg",
    "heavy ball": "heavy-ball",
    "local only": "local-only",
}
"""Other names, in lower case."""
OTHERS = tuple(
    Style(colour, MARKERS[i % len(MARKERS)]) for i, colour in enumerate((BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, VERMILLION, GREY))
)
"""What is no method, in the order of its appearance."""
RC: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "legend.fontsize": 8.5, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6, "axes.linewidth": 0.8, "lines.linewidth": 1.6, "lines.markersize": 4.5, "svg.hashsalt": "fedpg",
    "figure.facecolor": "white", "savefig.facecolor": "white",
}  # fmt: skip
"""matplotlib's settings."""
WIDTH = 8.0
"""Inches: a figure this wide has letters of readable size at the width of a page."""


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """The style of each label: a method's own, also with a remark after a comma or in brackets. Those of one differ in marker and line.

    >>> styles(["CALM", "calm, beta 0.5"])["CALM"].colour == styles(["CALM", "calm, beta 0.5"])["calm, beta 0.5"].colour
    True
    """
    found: dict[str, Style] = {}
    others = iter(OTHERS * len(labels))
    for label in sorted(dict.fromkeys(labels), key=lambda label: ALIASES.get(label.lower(), label.lower()) not in STYLES):  # methods first
        name = label.lower() if label.lower() in ALIASES else re.split(r",| \(", label.lower())[0]
        own = STYLES.get(ALIASES.get(name, name)) or next(others)
        for _ in range(len(MARKERS) * len(DASHES)):
            if own in found.values():
                own = Style(own.colour, MARKERS[(MARKERS.find(own.marker) + 1) % len(MARKERS)], (own.dash + 1) % len(DASHES))
        found[label] = own
    return found
