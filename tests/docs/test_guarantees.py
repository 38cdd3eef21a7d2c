"""docs/explanation/guarantees.md names tests that exist."""

from __future__ import annotations

import re

from helpers.pages import ROOT

ROWS = re.findall(r"^\| (?!guarantee|---)(.+) \| (.+) \|$", (ROOT / "docs" / "explanation" / "guarantees.md").read_text(), re.MULTILINE)


def test_every_guarantee_names_tests():
    assert len(ROWS) > 20
    for guarantee, where in ROWS:
        named = re.findall(r"`([\w/]+(?:\.py|/))`", where)
        assert named, guarantee
        for name in named:
            found = [ROOT / "tests" / name] if name.endswith(".py") else list((ROOT / "tests" / name).glob("test_*.py"))
            assert found, name
            assert all("\ndef test_" in file.read_text() for file in found), name
