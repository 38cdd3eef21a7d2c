"""Measured numbers in hand-written pages come from data.

A measured number is followed by a comment that names its source:

    0.949<!-- attacks: quantity=share left; method=FedPG-BR; heterogeneity=2; mean -->    docs/data/reproduction/attacks.json
    98.6<!-- presets.jsonl: env=cartpole; local_lr=0.0001; return_late_lowest -->         docs/data/presets.jsonl
    50.8<!-- demo.txt: against local only on unseen environments: better by -->           the number after these words in docs/data/demo.txt
    19.5<!-- tests/algorithms/test_calm.py::test_the_table_of_stability -->               a test that checks it

The last part is the field that is shown. Exactly one row must match, unless the field is `min FIELD` or `max FIELD`. Settings are no
measurements: they stand after their name (beta 0.2) or are written as code (`0.2`). For tables see test_prose_tables.py.
"""

from __future__ import annotations

import json
import re

import pytest

from helpers.pages import ROOT, hand_written
from helpers.sources import DATA, HIDDEN, SOURCED, is_test, values

PAGES = hand_written()
NUMBER = re.compile(r"(?<![\w.^/-])-?\d+\.\d+(?!\w|\.\d)|(?<![\w.^/-])\d+(?= ?%)")
CELL = re.compile(r"(?<=\|) *(?:(?:\\\||[^|\s])+ +){4,}(?:\\\||[^|\s])+ *(?=\|)")
"""A cell of a table that is prose: of five words or more."""
WHOLE = re.compile(
    r"\b(?:(?:ends?|ended|rests?|settles?|arrives?) (?:at|with|near|above|below)"
    r"|(?:better|worse|lower|higher|less|more|gains?|los\w+|wins?) (?:by|in)"
    r"|(?<!to )(?<!than )a return of|(?<!at )a J of)(?: about| around| J =)? -?\d[\d,]*(?!\w|\.\d|\s*%)"
    r"|\b\d[\d,]* (?:thousand |million |billion )?times (?:as|faster|slower|smaller|larger|longer|shorter|fewer|more|less)\b"
    r"|\b\d[\d,]* of (?:the |all )?\d[\d,]* (?:\w+ )?(?:seeds|runs|tasks|cells|pairs|pages|settings)\b|\bfactor of \d[\d,]*"
    r"|\b\d[\d,]* (?:environment )?(?:steps|trajectories|rounds|lanes) (?:a|per) second\b"
)
"""Whole numbers that are results wherever they stand: what a run ends at, by how much, how many times, how many of how many, how fast."""
RESULT = re.compile(
    r"\b(?:CALM|PAvg|FedSVRPG-M|FedHAPG-M|SCAFFOLD|MFPO|FedAvg-M|FedProx|FedKL|FedPG-BR|N-HARPG|[Hh]eavy ball|FAPI|FedNPG|returns?|J|ess|"
    r"better|worse|faster|slower|ahead|behind|below|above|reach\w*|ends?|ended|gain\w*|measured|interval|seeds?|against)\b|±"
)
SETTING = re.compile(
    r"\b(?:[Bb]eta|eta|rho|mu|gamma|lambda|discount|local.lr|rate|[Hh]eterogeneity|participation|keep|trim|temperature|mixing|Python|arXiv|section|s|b|"
    r"anchored|\w+_target)\b\W{0,3}(?:of |is |= ?|at )?(?:\(?-?[\d.e-]+(?:,? and |,? or |,? to |, |; ))*\(?$"
)
"""What stands before the value of a setting, or before a number of a list of values."""


def as_written(value: float, number: str, percent: bool) -> str:
    """A value with as many digits, and in the form, of a number of a page."""
    value, mantissa = value * (100 if percent else 1), number.partition("e")[0]
    decimals = len(mantissa.partition(".")[2])
    if "e" in number:
        return re.sub(r"e([+-])0*(\d)", lambda match: f"e{match[1].strip('+')}{match[2]}", f"{value:.{decimals}e}")
    return f"{value:{',' if ',' in number else ''}.{decimals}f}"


def wrong_numbers(text: str) -> list[str]:
    """What disagrees with its source, one line each."""
    wrong = []
    for match in SOURCED.finditer(text):
        number, source = match["number"], match["source"]
        if source.startswith("tests/"):
            wrong += [] if is_test(source) else [f"{number}: there is no {source}"]
            continue
        said = [as_written(value, number, bool(match["percent"])) for value in values(source)]
        if said != [number]:
            wrong.append(f"{number}: {source} says {', '.join(said) or 'nothing'}")
    return wrong


def unsourced_numbers(text: str) -> list[str]:
    """Numbers of results without a source, with their neighbours: decimals and percentages near a word of results, and `WHOLE` ones."""
    text = HIDDEN.sub("\n", SOURCED.sub("", text))
    prose = "\n\n".join([re.sub(r"^\|.*$", "\n", text, flags=re.MULTILINE), *CELL.findall(text)])
    prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "`", prose)
    found = [match[0].replace("\n", " ") for match in WHOLE.finditer(prose)]
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
        ("It ends at 1111 there, 3 times faster, with 12 of 32 seeds and a return of 49.", 4),
        ("It stops before a return of at least `95`, in 2 of 3 rounds.", 0),
        ("| method | note |\n|---|---|\n| PAvg | after five rounds it ends at 45.2 or so |\n", 1),
        ("PAvg ends at `0.003`, with a 95 % interval.", 0),
        ("PAvg\n\n    J = 3.5\n\n| PAvg | 3.5 |\n", 0),
        ("PAvg ends at 19.79<!-- drift: x=1; mean -->.", 0),
    ],
)
def test_an_unsourced_number_is_found(text, found):
    assert len(unsourced_numbers(text)) == found
