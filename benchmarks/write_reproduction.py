"""Writes the tables of docs/reproduction.md and docs/robustness.md from the outcomes in docs/data/reproduction, and draws the pictures.

python benchmarks/write_reproduction.py            after `fedpg reproduce all --scale full --out docs/data/reproduction`
python benchmarks/write_reproduction.py --check    exit code 1 if a table is not what the outcomes say

In the document a table stands between `<!-- NAME: WORDS -->` and `<!-- end -->`: the rows of outcome NAME in which WORDS
occur (with `&` between them: all of several). `<!-- table-2: grid LABEL -->` is one column of Table 2 as a grid of beta and kappa,
`<!-- attacks: under WHERE -->` a grid of methods and attacks, `<!-- search: halfcheetah -->` what was tried on HalfCheetah before.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np

from fedpg.paper.attacks import ENOUGH
from fedpg.paper.outcome import Outcome, Row, load
from fedpg.report.figures import panels
from fedpg.report.stats import estimate

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENTS = ("reproduction.md", "robustness.md")
DATA = DOCS / "data" / "reproduction"
TABLE = re.compile(r"<!-- ([a-z0-9-]+): ([^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
CELL = re.compile(r"(.*), kappa ([\d.]+), beta ([\d.]+)")
ATTACKED = re.compile(r"(h = [\d.]+), (.+): ([a-z-]+)")


def number(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.4g}"


def lines(rows: list[Row]) -> list[str]:
    """One line per row; the column of published numbers only where there are some."""
    published = any(row.published is not None for row in rows)
    out = ["| | " + ("published | " if published else "") + "ours | 95 % interval | n | verdict |"]
    out.append("|---|" + ("---|" if published else "") + "---|---|---|---|")
    for row in rows:
        paper = "" if row.published is None else number(row.published) + (f" ± {row.published_error:g}" if row.published_error else "")
        interval = f"{number(row.low)} to {number(row.high)}"
        out.append(f"| {row.what} | {f'{paper} | ' if published else ''}{number(row.ours)} | {interval} | {row.n:,} | {row.verdict} |")
    return [line.replace("|grad J|^2", "\\|grad J\\|^2") for line in out]


def grid(rows: list[Row], label: str) -> list[str]:
    """One column of Table 2: ours, and in brackets the distance from the published cell in its +-."""
    cells = {}
    for row in rows:
        match = CELL.fullmatch(row.what)
        if match and match[1] == label:
            apart = "" if row.published is None else f" ({abs(row.ours - row.published) / row.published_error:.1f})"
            cells[match[3], match[2]] = f"{row.ours:.3f}{apart}"
    betas, kappas = (sorted({key[i] for key in cells}, key=float) for i in (0, 1))
    out = ["| beta | " + " | ".join(f"kappa {kappa}" for kappa in kappas) + " |", "|---|" + "---|" * len(kappas)]
    return out + [f"| {beta} | " + " | ".join(cells[beta, kappa] for kappa in kappas) + " |" for beta in betas]


def under(rows: list[Row], where: str) -> list[str]:
    """Returns of every method under every attack, with half of their intervals; bold below 90 % of the clean return."""
    cells = {match.group(2, 3): row for row in rows if (match := ATTACKED.fullmatch(row.what)) and match[1] == where}
    methods, attacks = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))

    def cell(method: str, attack: str) -> str:
        row, clean = cells[method, attack], cells["fedpg-br" if method == "fedpg-br" else "pavg, mean", "none"]
        text = f"{row.ours:.1f} ± {(row.high - row.low) / 2:.1f}"
        return f"**{text}**" if row.ours < ENOUGH * clean.ours else text

    out = ["| | " + " | ".join(attacks) + " |", "|---|" + "---|" * len(attacks)]
    return out + [f"| {method} | " + " | ".join(cell(method, attack) for attack in attacks) + " |" for method in methods]


def search(by_root: dict[str, dict[str, dict[str, list[list[float]]]]]) -> list[str]:
    """Curves by root, step-size and rule, as what every rule has over PAvg on the same seeds, in the mean of all evaluations."""
    cells: dict[tuple[str, str], list[float]] = {}
    for steps in by_root.values():
        for step, rules in steps.items():
            for rule in rules.keys() - {"pavg"} if "pavg" in rules else ():
                lead = np.mean(rules[rule], axis=1) - np.mean(rules["pavg"], axis=1)
                cells.setdefault((rule, step), []).extend(lead)
    listed = [sorted({key[i] for key in cells}) for i in (0, 1)]

    def cell(rule: str, step: str) -> str:
        if (rule, step) not in cells:
            return ""
        found = estimate(np.array(cells[rule, step]))
        return f"{found.mean:.1f} ± {found.high - found.mean:.1f} (n = {found.seeds})"

    out = ["| | " + " | ".join(listed[1]) + " |", "|---|" + "---|" * len(listed[1])]
    return out + [f"| {rule} | " + " | ".join(cell(rule, step) for step in listed[1]) + " |" for rule in listed[0]]


def table(outcomes: dict[str, Outcome], name: str, words: str) -> str:
    if name == "search":
        found = search(json.loads((DOCS / "data" / "fedsvrpg_s_gates.json").read_text())[words]["curves"])
        return "\n".join([f"<!-- {name}: {words} -->", "", *found, "", "<!-- end -->"])
    rows = outcomes[name].rows
    kind, _, label = words.partition(" ")
    grids = {"grid": grid, "under": under}
    matching = [row for row in rows if all(part in row.what for part in words.split(" & "))]
    found = grids[kind](rows, label) if kind in grids else lines(matching)
    return "\n".join([f"<!-- {name}: {words} -->", "", *found, "", "<!-- end -->"])


def written(text: str, outcomes: dict[str, Outcome]) -> str:
    """The document with every table made anew."""
    return TABLE.sub(lambda match: table(outcomes, match[1], match[2]), text)


def main() -> int:
    outcomes = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}
    before = {DOCS / name: (DOCS / name).read_text() for name in DOCUMENTS}
    after = {path: written(text, outcomes) for path, text in before.items()}
    if "--check" in sys.argv[1:]:
        return int(before != after)
    for path, text in after.items():
        path.write_text(text)
    for name, outcome in outcomes.items():
        if outcome.panels:
            panels(outcome.panels, DOCS / "images" / f"{name}.png", title=outcome.title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
