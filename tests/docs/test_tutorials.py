"""Every command and program of the tutorials is run, in order, in an empty folder, and prints what the page shows."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import fedpg
from fedpg.cli import VERBS
from fedpg.cli.help import flags
from fedpg.flower.serving import KILLED
from helpers.documents import FENCE, blocks, first_missing, follow, typed
from helpers.pages import pages

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
LOG = ROOT / "docs" / "data" / "tutorial_eight_buildings.log"
PAGES = ("cartpole", "eight-buildings", "own-algorithm", "own-environment-and-network", "compare")
BUILDINGS = 8
UNIT = "fedpg-join@.service"
SECONDS = 1800.0
"""For a page; on a laptop none takes more than some minutes."""


def page(name: str) -> Path:
    return TUTORIALS / f"{name}.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own-algorithm", "own-environment-and-network", "compare"])
def test_a_tutorial_does_what_it_says(name, tmp_path):
    follow(page(name), tmp_path, SECONDS)


@pytest.mark.slow
def test_cartpole_ends_with_a_policy_in_use(tmp_path):
    follow(page("cartpole"), tmp_path, SECONDS)
    rows = [json.loads(line) for line in (tmp_path / "runs" / "cartpole" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["round"] == 50
    assert min(rows[-1]["return_per_seed"]) > 2.0 * max(rows[0]["return_per_seed"])
    for file in ("runs/cartpole/replay.gif", "report.html", "my-policy/policy.safetensors"):
        assert (tmp_path / file).stat().st_size > 0


@pytest.mark.slow
def test_eight_buildings_end_with_eight_policies(tmp_path):
    """With FEDPG_KEEP_LOG=1 it also keeps what a reader sees, as docs/data/tutorial_eight_buildings.log."""
    screen = follow(page("eight-buildings"), tmp_path, 2 * SECONDS)
    folder = tmp_path / "eight-buildings"
    receipts = [json.loads((folder / f"building-{i}" / "policy" / "delivery.json").read_text()) for i in range(BUILDINGS)]
    assert [receipt["agent"] for receipt in receipts] == list(range(BUILDINGS))
    assert len({receipt["run"] for receipt in receipts}) == 1
    assert all(receipt["round"] == 12 for receipt in receipts)
    assert all(receipt["return_after"] > receipt["return_before"] for receipt in receipts)
    first, *others = (fedpg.load(folder / f"building-{i}" / "policy").params for i in range(BUILDINGS))
    assert all(np.array_equal(first[name], other[name]) for other in others for name in first), "they share one policy"
    assert not list(folder.glob("building-*/server*")), "a building has nothing of the server"
    events = [json.loads(line) for line in (folder / "server" / "run" / "events.jsonl").read_text().splitlines()]
    assert any(KILLED in event["what"] for event in events), "the server was killed, and knows it"
    cheaper_everywhere(screen)
    if os.environ.get("FEDPG_KEEP_LOG") == "1":
        LOG.write_text(lines(screen.replace(str(tmp_path), "~")) + "\n")


def lines(screen: str) -> str:
    """Without empty lines."""
    return "\n".join(line for line in screen.splitlines() if line.strip())


def cheaper_everywhere(screen: str) -> None:
    """Every building's check shows that the learned policy costs less than the thermostat alone."""
    found = re.findall(r"^building-\d: thermostat ([\d.]+), learned policy ([\d.]+)$", screen, re.MULTILINE)
    assert len(found) == BUILDINGS
    assert all(float(learned) < float(thermostat) for thermostat, learned in found)


def test_the_log_is_that_of_the_page():
    """Somebody followed the page as it is now: every step stands in the log, in order, and eight policies were delivered."""
    log = LOG.read_text()
    after = log
    for step in blocks(page("eight-buildings").read_text()):
        _, _, after = after.partition(lines(typed(step)))
        assert after, f"not in the log: line {step.line}. Run this file with -m slow and FEDPG_KEEP_LOG=1"
        assert first_missing(step.shown, after) is None
    cheaper_everywhere(log)


def commands(text: str) -> list[list[str]]:
    """The calls of fedpg in a page, as words; also those that are not run, and those of units."""
    shown = re.sub(r"^(?!\$ ).*\n", "", "\n".join(match[2] for match in FENCE.finditer(text) if match[1] == "console"), flags=re.MULTILINE)
    code = "\n".join([shown, *(match[2] for match in FENCE.finditer(text) if match[1] == "bash")])
    lines = re.findall(rf"(?:^|[\s(=/])fedpg ((?:{'|'.join(VERBS)})\b[^\n>|&;)]*)", code.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(re.sub(r"\s#.*", "", line)) for line in lines]


@pytest.mark.parametrize("name", [name for name in pages() if "fedpg " in (ROOT / name).read_text()])
def test_flags_exist(name):
    """On every page: cheap, and also for commands that are for other machines."""
    found = commands((ROOT / name).read_text())
    assert found or "/tutorials/" not in name
    for verb, *words in found:
        options = getattr(importlib.import_module(f"fedpg.cli.{verb}"), f"{verb.title()}Options")
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= {flag.name for flag in flags(options)}, verb


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_short_and_everything_on_them_is_run(name):
    """What is not run says why: there is one such block, which needs root on another machine."""
    text = page(name).read_text()
    assert len(text.encode()) < 16_000
    assert set(re.findall(r"^```(.*)$", text, re.MULTILINE)[::2]) <= {"bash", "console", "python", "text"}, "it is run, or says why not"
    fences = [match for match in FENCE.finditer(text) if match[1] in ("bash", "console", "python")]
    assert len(fences) - len(blocks(text)) == (1 if name == "eight-buildings" else 0)


def test_the_tutorial_shows_the_example():
    code = next(block.code for block in blocks(page("own-algorithm").read_text()) if block.file == "own_algorithm.py")
    assert code == "# own_algorithm.py\n" + (ROOT / "examples" / "own_algorithm.py").read_text()


def test_the_unit_is_that_of_deploy_without_the_sandbox():
    """What it changes: the name, the constants of the building, and the command."""
    text = next(block.code for block in blocks(page("eight-buildings").read_text()) if UNIT in block.code)
    unit = text.partition("<<'END'\n")[2].partition("END\n")[0]
    deployed = (ROOT / "deploy" / UNIT).read_text().splitlines()
    changed = [line for line in unit.splitlines() if line not in deployed]
    assert [line.partition("=")[0] for line in changed] == ["Description", "EnvironmentFile", "ExecStart"]
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(unit)
    words = parser["Service"]["ExecStart"].split()
    given = {name: words[words.index(name) + 1] for name in ("--agent-id", "--keys", "--folder")}
    assert " ".join(f"{name} {value}" for name, value in given.items()) in " ".join(deployed).replace("--env cartpole ", "")
