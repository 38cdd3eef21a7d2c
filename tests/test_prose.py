"""Measured numbers in hand-written pages come from data.

A measured number is followed by a comment that names its source:

    0.949<!-- attacks: quantity=share left; method=FedPG-BR; heterogeneity=2; mean -->    docs/data/reproduction/attacks.json
    98.6<!-- presets.jsonl: env=cartpole; local_lr=0.0001; return_late_lowest -->         docs/data/presets.jsonl
    50.8<!-- demo.txt: against local only on unseen environments: better by -->           the number after these words in docs/data/demo.txt
    19.5<!-- tests/algorithms/test_calm.py::test_the_table_of_stability -->               a test that checks it

The last part is the field that is shown. Exactly one row must match, unless the field is `min FIELD` or `max FIELD`. Settings are no
measurements: they stand after their name (beta 0.2) or are written as code (`0.2`). Tables of presets.md name
their data file and how a cell is written; see `wrong_cells`. benchmarks/write_reproduction.py makes the tables of its pages.
"""

from __future__ import annotations

import json
import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from helpers.pages import hand_written

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data"
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "write_reproduction.py"))
PAGES = hand_written()
COMMENT = r"<!-- (?P<source>[^>]+?) -->"
SOURCED = re.compile(rf"(?P<number>-?\d+(?:\.\d+)?)(?P<percent> ?%)?{COMMENT}")
NUMBER = re.compile(r"(?<![\w.^/-])-?\d+\.\d+(?!\w|\.\d)|(?<![\w.^/-])\d+(?= ?%)")
NOT_PROSE = re.compile(
    r"```.*?```|<!-- [a-z0-9-]+: [^>]*? -->\n.*?<!-- end -->|^(?: {4}|\|)[^\n]*$|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL | re.MULTILINE
)
"""Fenced code, tables of write_reproduction.py, indented code, other tables, inline code, addresses."""
RESULT = re.compile(
    r"\b(?:CALM|PAvg|FedSVRPG-M|FedHAPG-M|SCAFFOLD|MFPO|FedAvg-M|FedProx|FedKL|FedPG-BR|N-HARPG|[Hh]eavy ball|FAPI|FedNPG|returns?|J|ess|"
    r"better|worse|faster|slower|ahead|behind|below|above|reach\w*|ends?|ended|gain\w*|measured|interval|seeds?|against)\b|±"
)
SETTING = re.compile(
    r"\b(?:[Bb]eta|eta|rho|mu|gamma|lambda|discount|local.lr|rate|[Hh]eterogeneity|participation|keep|trim|temperature|mixing|Python|arXiv|section|s|b|"
    r"anchored|\w+_target)\b\W{0,3}(?:of |is |= ?|at )?(?:\(?-?[\d.e-]+(?:,? and |,? or |,? to |, |; ))*\(?$"
)
"""What stands before the value of a setting, or before a number of a list of values."""


@cache
def rows(source: str) -> list:
    """The rows of a data file: `arena` is a result of fedpg reproduce, `presets.jsonl` a file of lines."""
    if source.endswith(".jsonl"):
        return [json.loads(line) for line in (DATA / source).read_text().splitlines()]
    return WRITER["load"](DATA / "reproduction" / f"{source}.json")


def values(source: str) -> list[float]:
    """The numbers that a comment FILE: FIELD=VALUE; ...; FIELD refers to."""
    name, _, rest = source.partition(": ")
    if name.endswith(".txt"):
        return [float(number) for number in re.findall(re.escape(rest) + r" (-?\d+(?:\.\d+)?)", (DATA / name).read_text())]
    *conditions, shown = [part.strip() for part in rest.split(";")]
    which, _, field = shown.rpartition(" ")
    if name.endswith(".jsonl"):
        pairs = [condition.split("=", 1) for condition in conditions]
        found = [row[field] for row in rows(name) if all(str(row.get(key)) == value for key, value in pairs)]
    else:
        found = [getattr(row, field) for row in WRITER["selected"](rows(name), conditions)]
    return [{"min": min, "max": max}[which](found)] if which and found else found


def wrong_numbers(text: str) -> list[str]:
    """What disagrees with its source, one line each."""
    wrong = []
    for match in SOURCED.finditer(text):
        number, source = match["number"], match["source"]
        if source.startswith("tests/"):
            path, _, test = source.partition("::")
            if not (ROOT / path).is_file() or f"def {test}(" not in (ROOT / path).read_text():
                wrong.append(f"{number}: there is no {source}")
            continue
        found = values(source)
        decimals = len(number.partition(".")[2])
        said = [f"{value * (100 if match['percent'] else 1):.{decimals}f}" for value in found]
        if said != [number]:
            wrong.append(f"{number}: {source} says {', '.join(said) or 'nothing'}")
    return wrong


def unsourced_numbers(text: str) -> list[str]:
    """Decimals and percentages of prose near a word of results, with what stands around them, that are no settings and have no source."""
    prose = SOURCED.sub("", text)
    prose = NOT_PROSE.sub(lambda match: "`" if match[0].startswith("`") and not match[0].startswith("```") else "\n", prose)
    found = []
    for match in NUMBER.finditer(prose):
        before, after = prose[: match.start()].split("\n\n")[-1], prose[match.end() :].split("\n\n")[0]
        if SETTING.search(before[-90:]) or re.match(r" ?% (?:confidence )?interval", after):
            continue
        if RESULT.search(before[-60:]) or RESULT.search(after[:60]):
            found.append(f"{before[-40:]}{match[0]}{after[:20]}".replace("\n", " "))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_measured_numbers_have_sources_and_agree_with_them(page):
    text = (ROOT / page).read_text()
    assert wrong_numbers(text) == []
    assert unsourced_numbers(text) == [], "source the number, write a setting as `code`, or leave it out"


def wrong_cells(text: str) -> list[str]:
    """What disagrees in tables that are preceded by a comment FILE.jsonl: env=ENV: TEMPLATE of a cell, one line each.

    A line of the table is an algorithm, or an algorithm and an option, then its baseline if there is such a column; a column is a local-lr.
    """
    wrong = []
    for name, env, template, table in re.findall(r"^<!-- (\S+\.jsonl): env=(\S+): (.+?) -->\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        for line in lines:
            algorithm, _, option = line[0].partition(", ")
            wanted = {"env": env, "algorithm": algorithm, "algorithm_option": [option] if option else []}
            wanted |= {"baseline": line[1]} if head[1] == "baseline" else {}
            for local_lr, cell in zip(head, line, strict=True):
                if re.fullmatch(r"[\d.]+", local_lr) and cell != "not run":
                    keys = wanted | {"local_lr": float(local_lr)}
                    found = [
                        template.format(**row) for row in rows(name) if all(row.get(key, value) == value for key, value in keys.items())
                    ]
                    wrong += [] if found == [cell] else [f"{env}, {line[0]}, {local_lr}: {cell}, but {name} says {found}"]
    return wrong


def test_tables_of_presets_hold_what_the_data_say():
    text = (ROOT / "docs" / "reference" / "presets.md").read_text()
    assert text.count(".jsonl: env=") == 3
    assert wrong_cells(text) == []
    assert len(wrong_cells(text.replace("64, 98.6 |", "64, 98.5 |"))) == 1


def test_the_table_of_the_demo_is_that_of_its_output():
    """docs/start/when-it-pays.md shows the first columns of docs/data/demo.txt."""
    shown = [[cell.strip() for cell in line.split("│")[1:5]] for line in (DATA / "demo.txt").read_text().splitlines() if line[0:1] == "│"]
    page = (ROOT / "docs" / "start" / "when-it-pays.md").read_text()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.split("| own 8")[1].split("\n\n")[0].splitlines()[2:]]
    assert [row[1:] for row in table] == [row[1:] for row in shown]


def test_the_costs_of_a_round_are_those_that_were_measured():
    found = json.loads((DATA / "flower_rounds.json").read_text())["rows"]
    ratio = next(row["ratio"] for row in found if (row["params"], row["agents"]) == ("5 thousand", 2))
    assert f"takes {ratio:.2f}<!--" in (ROOT / "docs" / "start" / "when-it-pays.md").read_text()


def test_a_wrong_number_is_found():
    one = "attacks: quantity=share left; method=FedPG-BR; heterogeneity=2; mean"
    (value,) = values(one)
    assert wrong_numbers(f"It keeps {value:.3f}<!-- {one} --> or {100 * value:.0f} %<!-- {one} -->.") == []
    assert wrong_numbers(f"It keeps {value + 0.01:.3f}<!-- {one} -->.") == [f"{value + 0.01:.3f}: {one} says {value:.3f}"]
    assert wrong_numbers("9<!-- attacks: quantity=nonsense; mean -->") == ["9: attacks: quantity=nonsense; mean says nothing"]
    assert wrong_numbers("9<!-- tests/test_prose.py::test_none -->")
    several = values("attacks: quantity=return; method=PAvg, mean; mean")
    assert values("attacks: quantity=return; method=PAvg, mean; min mean") == [min(several)]
    assert len(values("presets.jsonl: env=cartpole; algorithm=fedsvrpg-m; baseline=time; local_lr=0.0001; return_last")) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("PAvg ends at 19.79 there.", 1),
        ("CALM needs 45 % of its trajectories.", 1),
        ("J is 7.1 ± 0.2 at beta 0.5.", 2),
        ("With beta 0.2 and eta = 0.05, 0.1 and 0.3 PAvg is ahead.", 0),
        ("PAvg ends at `0.003`, with a 95 % interval.", 0),
        ("PAvg\n\n    J = 3.5\n\n| PAvg | 3.5 |\n", 0),
        ("PAvg ends at 19.79<!-- drift: x=1; mean -->.", 0),
    ],
)
def test_an_unsourced_number_is_found(text, found):
    assert len(unsourced_numbers(text)) == found
