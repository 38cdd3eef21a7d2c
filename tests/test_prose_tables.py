"""Tables of measurements in hand-written pages name where they come from, in a comment above, and agree with it.

    <!-- tests/algorithms/test_calm.py::test_the_table_of_stability -->                          a test that checks the table
    <!-- reference_tables.jsonl: table=fapi: | {task} | {start:.2f} | -->                         lines of a data file, written in this form
    <!-- presets.jsonl: env=cartpole: {seeds_at_95_last}, {return_late_lowest:.1f} -->           its cells; see `wrong_cells`

Or every number in them has its own source, as in prose. benchmarks/write_reproduction.py makes the tables of its pages. A table is one of
measurements if most cells of a column are numbers, unless the column is the first one or one of settings.
"""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from fedpg.envs.mujoco import TASKS
from helpers.pages import ROOT, hand_written
from helpers.sources import DATA, HIDDEN, SOURCED, chosen, is_test, rows

TABLE = re.compile(r"(?:^<!-- (?P<source>[^>]+?) -->\n\n)?(?P<table>(?:^\|.*\n?)+)", re.MULTILINE)
SETTINGS = ("default", "nominal", "too large", "too small")
MEASURED = re.compile(r"[*(]*-?\d[\d.,e-]*(?![\w/(])(?! [-+*/<^])")


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def measured(table: str) -> bool:
    """Whether most cells of a column are numbers without a source."""
    head, _, *lines = [cells(SOURCED.sub("", line)) for line in table.splitlines()]
    columns = zip(head, *lines, strict=True)
    next(columns)
    filled = [[cell for cell in column if cell] for name, *column in columns if name not in SETTINGS]
    return any(2 * sum(MEASURED.match(cell) is not None for cell in column) > len(column) for column in filled)


def wrong_lines(source: str, table: str) -> list[str]:
    """The lines in which a table differs from its source FILE: FIELD=VALUE; ...: TEMPLATE of a line."""
    name, conditions, template = source.split(": ", 2)
    made = [template.format(**row) for row in chosen(name, [part.strip() for part in conditions.split(";")])]
    shown = table.splitlines()[2:]
    if not made or made == shown:
        return [] if made else [f"nothing in {source}"]
    return sorted(set(made) ^ set(shown)) or ["the lines are in another order"]


def wrong_cells(name: str, env: str, template: str, table: str) -> list[str]:
    """What disagrees in a table whose source is FILE.jsonl: env=ENV: TEMPLATE of a cell, one line each.

    A line of the table is an algorithm, or an algorithm and an option, then its baseline if there is such a column; a column is a local-lr.
    """
    wrong = []
    head, _, *lines = map(cells, table.splitlines())
    for line in lines:
        algorithm, _, option = line[0].partition(", ")
        wanted = {"env": env, "algorithm": algorithm, "algorithm_option": [option] if option else []}
        wanted |= {"baseline": line[1]} if head[1] == "baseline" else {}
        for local_lr, cell in zip(head, line, strict=True):
            if re.fullmatch(r"[\d.]+", local_lr) and cell != "not run":
                keys = wanted | {"local_lr": float(local_lr)}
                found = [template.format(**row) for row in rows(name) if all(row.get(key, value) == value for key, value in keys.items())]
                wrong += [] if found == [cell] else [f"{env}, {line[0]}, {local_lr}: {cell}, but {name} says {found}"]
    return wrong


def wrong_tables(text: str) -> list[str]:
    """Tables of measurements without a source, and what disagrees with one."""
    wrong = []
    for match in TABLE.finditer(HIDDEN.sub("\n", text)):
        source, table = match["source"] or "", match["table"]
        if source.startswith("tests/"):
            wrong += [] if is_test(source) else [f"there is no {source}"]
        elif re.match(r"\S+\.jsonl: [^|]*: \|", source):
            wrong += wrong_lines(source, table)
        elif grid := re.fullmatch(r"(\S+\.jsonl): env=(\S+): (.+)", source):
            wrong += wrong_cells(*grid.groups(), table)
        elif measured(table):
            wrong.append(f"no source: {table.splitlines()[0]}")
    return wrong


@pytest.mark.parametrize("page", hand_written())
def test_tables_of_measurements_have_sources_and_agree_with_them(page):
    assert wrong_tables((ROOT / page).read_text()) == []


def test_a_wrong_table_is_found():
    text = (ROOT / "docs" / "reference" / "presets.md").read_text()
    assert text.count(".jsonl: env=") == 3
    assert wrong_tables(text) == []
    assert len(wrong_tables(text.replace("64, 98.6 |", "64, 98.5 |"))) == 1
    row = rows("presets.jsonl")[0]
    source = f"<!-- presets.jsonl: env={row['env']}; algorithm={row['algorithm']}; local_lr={row['local_lr']}; baseline={row['baseline']}"
    line = f"| {row['algorithm']} | {row['return_last']:.3f} |"
    head = "| algorithm | return |\n|---|---|\n"
    assert wrong_tables(f"{source}: | {{algorithm}} | {{return_last:.3f}} | -->\n\n{head}{line}\n") == []
    assert wrong_tables(f"{source}: | {{algorithm}} | {{return_last:.3f}} | -->\n\n{head}{line.replace('.', '1.')}\n") != []
    assert wrong_tables(f"<!-- presets.jsonl: env=none: | {{algorithm}} | -->\n\n{head}") == [
        "nothing in presets.jsonl: env=none: | {algorithm} |"
    ]
    assert wrong_tables(f"<!-- tests/test_prose.py::test_none -->\n\n{head}{line}\n") == ["there is no tests/test_prose.py::test_none"]


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("| method | return |\n|---|---|\n| PAvg | 96, 80 |\n| CALM | **98** |\n", 1),
        ("| method | return |\n|---|---|\n| PAvg | (15 rounds) 96 |\n", 1),
        ("| method | return |\n|---|---|\n| PAvg | 96<!-- drift: K=1; mean --> |\n", 0),
        ("| flag | default | too large |\n|---|---|---|\n| `--beta` | 0.2 | 1 is PAvg |\n| `--u0` | 1 | costs samples |\n", 0),
        ("| method | up |\n|---|---|\n| PAvg | 2d + 2 |\n| MFPO | 2d |\n", 0),
        ("| method | at | up |\n|---|---|---|\n| PAvg | `0.5` | 1 / (K L) |\n", 0),
        ("```\n| a | 5 |\n|---|---|\n| b | 6 |\n```\n", 0),
        ("<!-- costs -->\n\n| a | b |\n|---|---|\n| b | 6 |\n\n<!-- end costs -->\n", 0),
    ],
)
def test_a_table_without_a_source_is_found(table, found):
    assert len(wrong_tables(f"Text.\n\n{table}\nText.")) == found


def test_the_table_of_the_demo_is_that_of_its_output():
    """docs/start/when-it-pays.md shows the first columns of docs/data/demo.txt."""
    shown = [[cell.strip() for cell in line.split("│")[1:5]] for line in (DATA / "demo.txt").read_text().splitlines() if line[0:1] == "│"]
    page = (ROOT / "docs" / "start" / "when-it-pays.md").read_text()
    table = [cells(line) for line in page.split("| own 8")[1].split("\n\n")[0].splitlines()[2:]]
    assert [row[1:] for row in table] == [row[1:] for row in shown]


def test_the_tables_of_federations_are_those_of_their_data():
    """Scripts write them between two comments of docs/explanation/federation.md; rounds, slow agents, kills and costs are in data files."""
    page = (ROOT / "docs" / "explanation" / "federation.md").read_text()
    names = ("flower_rounds", "slow_agents", "kills", "federation_costs")
    rounds, slow, kills, costs = (json.loads((DATA / f"{name}.json").read_text()) for name in names)
    made = []
    for row in rounds["rows"]:
        times = f"{row['bare']:.2f} s | {row['ours']:.2f} s | {row['ratio']:.2f} | {row['work']:.2f} s"
        made.append(f"| {row['params']} | {row['agents']} | {row['bytes']:,} | {times} |")
    for name, one in slow["runs"].items():
        made.append(f"| {name} | {one['seconds to the goal']:.0f} | {one['curve'][-1][0]:.0f} | {one['late answers']} |")
    places = list(dict.fromkeys(place for column in kills.values() for place in column))
    made += [f"| {place} | {' | '.join(str(column.get(place, '')) for column in kills.values())} |" for place in places]
    for what, processes in costs.items():
        for name, one in processes.items():
            memory = " | ".join(f"{one[key]:.0f} MB" for key in ("mb", "most_mb", "shared_once_mb"))
            made.append(f"| {what} | {name} | {memory} | {100 * one['cpu']:.1f} % |")
    tables = re.findall(r"^<!-- [a-z ]+ -->\n\n((?:\|.*\n)+)\n<!-- end", page, re.MULTILINE)
    shown = [line for table in tables for line in table.splitlines()[2:] if "**server, both**" not in line]
    assert sorted(made) == sorted(shown)


def test_the_presets_of_the_page_are_those_of_the_program():
    """docs/reference/configuration.md has the values of three environments."""
    presets = tomllib.loads((ROOT / "src" / "fedpg" / "runs" / "presets.toml").read_text())
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    head, _, *lines = map(cells, page[page.index("| | cartpole") :].split("\n\n")[0].splitlines())
    for name, *shown in lines:
        if name.strip("`") in presets["any"]:
            values = [(presets["any"] | presets[env])[name.strip("`")] for env in head[1:]]
            assert [str(value).lower() if isinstance(value, bool) else f"{value}" for value in values] == shown, name
    assert len(lines) == 12


def test_the_tasks_of_the_page_are_those_of_the_program():
    """docs/reference/mujoco.md has the constants of the MuJoCo tasks."""
    made = []
    for name, task in TASKS.items():
        (sees,), (acts,) = task.observation_space.shape, task.action_space.shape
        numbers = " | ".join(f"{number:.3g}" for number in (task.dt, task.start_range, task.widest_start, task.speed))
        made.append(f"| `{name}` | {task.gymnasium} | {sees}, {acts} | {numbers} |")
    page = (ROOT / "docs" / "reference" / "mujoco.md").read_text()
    assert all(f"\n{line}" in page for line in made)
