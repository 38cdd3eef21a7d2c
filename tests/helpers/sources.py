"""Where the numbers of hand-written pages come from: data files and tests, named in comments."""

from __future__ import annotations

import json
import re
import runpy
from functools import cache

import numpy as np

from helpers.pages import ROOT

DATA = ROOT / "docs" / "data"
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "write_reproduction.py"))

COMMENT = r"<!-- (?P<source>[^>]+?) -->"
SOURCED = re.compile(rf"(?P<number>-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?P<percent> ?%)?{COMMENT}")
HIDDEN = re.compile(r"```.*?```|<!-- [a-z0-9 -]+(?:: [^>]*?)? -->\n.*?<!-- end[^>]*-->|^ {4}[^\n]*$", re.DOTALL | re.MULTILINE)
"""Fenced code, tables that a script writes between two comments, indented code."""


@cache
def rows(source: str) -> list:
    """The rows of a data file: `arena` is a result of fedpg reproduce, `presets.jsonl` a file of lines.

    Lines with `return_per_seed` have its `mean` and `lowest` too, and `millions` of steps.
    """
    if source.endswith(".jsonl"):
        return [with_mean(json.loads(line)) for line in (DATA / source).read_text().splitlines()]
    return WRITER["load"](DATA / "reproduction" / f"{source}.json")


def with_mean(row: dict) -> dict:
    seeds = [value for value in row.get("return_per_seed", ()) if value is not None]
    return row | ({"mean": float(np.mean(seeds)), "lowest": min(seeds), "millions": row.get("env_steps", 0.0) / 1e6} if seeds else {})


def chosen(name: str, conditions: list[str]) -> list[dict]:
    """The lines of a file whose fields have these values."""
    pairs = [condition.split("=", 1) for condition in conditions]
    return [row for row in rows(name) if all(str(row.get(key)) == value for key, value in pairs)]


def values(source: str) -> list[float]:
    """The numbers that a comment FILE: FIELD=VALUE; ...; FIELD refers to."""
    name, _, rest = source.partition(": ")
    if name.endswith(".txt"):
        return [float(number) for number in re.findall(re.escape(rest) + r" (-?\d+(?:\.\d+)?)", (DATA / name).read_text())]
    *conditions, shown = [part.strip() for part in rest.split(";")]
    which, _, field = shown.rpartition(" ")
    if name.endswith(".jsonl"):
        found = [row[field] for row in chosen(name, conditions)]
    else:
        found = [getattr(row, field) for row in WRITER["selected"](rows(name), conditions)]
    return [{"min": min, "max": max}[which](found)] if which and found else found


def is_test(source: str) -> bool:
    """Whether a source FILE::NAME is a test of this repository."""
    path, _, name = source.partition("::")
    return (ROOT / path).is_file() and f"def {name}(" in (ROOT / path).read_text()
