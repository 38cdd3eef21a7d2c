"""Every method has one look, colour-blind people can tell the colours apart, and the report's page has the same."""

import importlib.resources
import itertools
import re

import numpy as np
import pytest

from fedpg import algorithms
from fedpg.paper.method import METHODS
from fedpg.report.page import RunData, looks
from fedpg.report.style import ALIASES, DASHES, PALETTE, STYLES, styles

DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear sRGB as seen; Machado, Oliveira and Fernandes, 2009, severity 1."""
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) / [[0.9505], [1.0], [1.089]]


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(seen) @ linear, 0.0, 1.0)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_can_be_told_apart(deficiency):
    seen = [lab(colour, DEFICIENCIES[deficiency]) for colour in PALETTE]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 15.0


def test_every_method_has_a_look_of_its_own():
    assert set(algorithms.ALGORITHMS) <= set(STYLES)
    assert len(set(STYLES.values())) == len(STYLES)
    for name, method in METHODS.items():
        own = ALIASES.get(name.lower(), name.lower().partition(",")[0])
        assert own == method.algorithm, name


def test_a_method_has_its_colour_in_every_company():
    everything = styles([*METHODS, "beta = 0.2", "CALM, beta 0.5", "FedSVRPG-M, truncated"])
    for name in METHODS:
        assert styles([name])[name].colour == everything[name].colour
    assert len(set(everything.values())) == len(everything)
    assert everything["CALM, beta 0.5"].colour == everything["CALM"].colour
    assert everything["CALM"] == STYLES["calm"]


def run(name, algorithm):
    return RunData(name, {"algorithm": algorithm}, {}, [], ({}, ""))


def test_runs_in_a_report_look_like_their_methods():
    found = looks([run("a", "pavg"), run("b", "calm"), run("c", "calm")])
    assert [look["colour"] for look in found] == [STYLES["pavg"].colour, *[STYLES["calm"].colour] * 2]
    assert found[1]["dash"] != found[2]["dash"]


@pytest.mark.parametrize("count", [2, 9, 24])
def test_runs_of_one_method_can_be_told_apart(count):
    found = looks([run(str(i), "calm") for i in range(count)])
    assert len({tuple(look.values()) for look in found}) == count
    mixed = looks([run("p", "pavg"), *(run(str(i), "calm") for i in range(count - 1))])
    assert len({tuple(look.values()) for look in mixed}) == count


def test_the_page_has_the_same_palette():
    page = importlib.resources.files("fedpg.report").joinpath("page.html").read_text()
    light, dark, printed = ([found[i] for i in range(len(PALETTE))] for found in by_number(page))
    assert tuple(light) == tuple(printed) == PALETTE
    assert len(set(dark)) == len(PALETTE)
    assert page.count('"7 4", "2 3"') == 1 == len(DASHES) - 2


def by_number(page: str) -> list[dict[int, str]]:
    """The colours --c0, --c1, ... of each block of the page's style."""
    return [
        {int(number): colour for number, colour in re.findall(r"--c(\d): (#[0-9a-f]{6})", block)}
        for block in re.findall(r"--c0:[^}]*}", page)
    ]
