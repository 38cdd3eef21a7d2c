"""The report: its numbers, a real browser that opens it without a network, its size, and runs that cannot be shown."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time

import numpy as np
import pytest

import fedpg
from fedpg.cli import main
from fedpg.report import page
from helpers.browser import CHROMIUM, browser

SECTIONS = (
    "curves", "scores", "agents", "improvement", "differences", "communication", "weights", "matrix", "videos", "configuration", "manifest",
)  # fmt: skip
SMALL = {"env": "random-mdp", "agents": 3, "rounds": 4, "local_steps": 2, "horizon": 5, "seeds": 3, "eval_every": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for name in ("fedsvrpg-m", "local-only"):
        fedpg.train(**SMALL, algorithm=name, out=out / name)
    (out / "local-only" / "replay.gif").write_bytes(base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="))
    return out


@pytest.fixture(scope="module")
def written(runs):
    folders = [str(runs / name) for name in ("fedsvrpg-m", "local-only")]
    assert main(["report", *folders, "--out", str(runs / "report.html"), "--title", "</script><b>Two", "--episodes", "0"]) == 0
    return runs / "report.html"


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_the_page_holds_the_numbers_of_the_runs(written, runs):
    data = data_of(written)
    rows = [json.loads(line) for line in (runs / "fedsvrpg-m" / "metrics.jsonl").read_text().splitlines()]
    first, second = data["runs"]
    assert first["x"]["round"] == [0, 1, 2, 3, 4]
    assert first["x"]["floats"][-1] == rows[-1]["floats_up"] + rows[-1]["floats_down"]
    np.testing.assert_allclose(first["curves"]["return"]["mean"], [row["return"] for row in rows], rtol=1e-4)
    np.testing.assert_allclose(first["agents"][1], [row["return_per_agent"][1] for row in rows], rtol=1e-4)
    low, high = (np.array(first["curves"]["return"][name]) for name in ("low", "high"))
    assert (low < high).all()
    assert first["final"]["mean"][0] == pytest.approx(rows[-1]["return"], rel=1e-4)
    assert "ess" in first["curves"]
    assert "ess" not in second["curves"]
    assert second["sent"]["per_round"] == 0
    better = data["improvement"][0][1][0]
    assert better + data["improvement"][1][0][0] == pytest.approx(1.0)
    assert {row["name"] for row in data["settings"] if row["differs"]} >= {"algorithm"}
    assert "transition" in [row[0] for row in data["environments"][0]["rows"]]
    assert [film["name"] for film in data["videos"]] == ["local-only"]


@pytest.mark.slow
def test_policies_in_environments_are_part_of_it(runs, tmp_path):
    folders = [str(runs / name) for name in ("fedsvrpg-m", "local-only")]
    assert main(["report", *folders, "--out", str(tmp_path / "report.html"), "--episodes", "4"]) == 0
    parts = data_of(tmp_path / "report.html")["matrix"]["parts"]
    assert [part["title"] for part in parts] == ["agents of training", "unseen agents of the same family"]
    assert [len(part["rows"]) for part in parts] == [4, 4]  # one policy, and three of local-only


def test_nothing_is_loaded_from_elsewhere(written):
    text = written.read_text()
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", text)
    assert "</script><b>" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_real_browser_opens_it_offline(written, tmp_path):
    with browser(tmp_path / "profile") as shown:
        shown.open(written)
        assert shown.run("document.title") == "</script><b>Two"
        for name in SECTIONS:
            assert shown.run(f"!!document.querySelector('section#{name} h2')"), name
        switch = "const s = document.getElementById('axis'); s.value = 'env_steps'; s.dispatchEvent(new Event('change', {bubbles: true}))"
        shown.run(f"(() => {{ {switch} }})()")
        assert "environment steps" in shown.run("document.querySelector('#curves svg').textContent")
        place = shown.run(
            "(() => { const r = document.querySelector('#curves svg').getBoundingClientRect(); return [r.x + r.width / 2, r.y + 99] })()"
        )
        assert shown.run("document.querySelector('#curves .tip').hidden")
        shown.move_to(*place)
        tip = shown.run("document.querySelector('#curves .tip').textContent")
        assert "fedsvrpg-m:" in tip
        assert "local-only:" in tip
        count = shown.run("document.querySelectorAll('#curves path.curve').length")
        shown.run("document.querySelector('.legend button').click()")
        assert shown.run("document.querySelectorAll('#curves path.curve').length") == count - 1
        for width, dark in ((1100, True), (390, False)):
            shown.open(written, width, dark)
            assert shown.run("document.documentElement.scrollWidth") <= width
        shown.open(written, 720)
        shown.call("Emulation.setEmulatedMedia", media="print")  # nothing is cut off on paper
        assert shown.run("document.documentElement.scrollWidth") <= 720
        assert shown.errors == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"round": "ten"}, "Expected `int`, got `str` - at `$[0].round`"),
        ({"round": -1}, "Expected `int` >= 0"),
        ({"return_per_seed": "good"}, "Expected `array`, got `str`"),
        ({"return_per_seed": ["good"]}, "Expected `float | null`, got `str`"),
        ({"return_per_agent": [1.0]}, "its lines have different numbers of seeds or agents"),
        ({"failed_seeds": [1]}, "Expected `object`, got `array`"),
        ({"env_steps": None}, "Expected `float`, got `null`"),
        ({"objective_per_seed": ["good"]}, "Expected `float | null`, got `str`"),
        ({"drift_sq_per_seed": [1.0]}, "its lines have different numbers of seeds or agents"),
    ],
)
def test_metrics_of_other_types_are_one_line(changes, message, runs, tmp_path, capsys):
    shutil.copytree(runs / "fedsvrpg-m", tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]))
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--episodes", "0"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_runs_that_cannot_be_shown_are_one_line(written, runs, tmp_path, capsys):
    for name, files, message in (
        ("empty", {}, "no run in"),
        ("new", {"config.toml": "agents = 2"}, "has no evaluation yet"),
        ("foreign", {"config.toml": "agents = 2", "metrics.jsonl": '{"loss": 1}\n'}, "not of this version"),
        ("damaged", {"config.toml": "agents = = 2"}, "is not valid TOML"),
        ("half", {"config.toml": "agents = 2", "metrics.jsonl": '{"round": 0, "ret'}, "has no evaluation yet"),
    ):
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        capsys.readouterr()
        assert main(["report", str(tmp_path / name), "--out", str(tmp_path / "page.html")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_one_seed_and_failed_seeds(runs, tmp_path):
    rows = [json.loads(line) for line in (runs / "fedsvrpg-m" / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        for name in [name for name in row if name.endswith("_per_seed")]:
            row[name] = [row[name][0], None]
        row["failed_seeds"] = {"1": 2}
    run = page.RunData("one", {"agents": 3, "algorithm": "fedsvrpg-m"}, {}, rows, ({}, "none"))
    page.write([run], tmp_path / "page.html", title="t", about="", matrices=[], note="")
    (found,) = data_of(tmp_path / "page.html")["runs"]
    assert "low" not in found["curves"]["return"]
    assert found["failed"] == 1


@pytest.mark.slow
def test_eight_runs_of_64_seeds_and_500_rounds_are_small_and_quick(tmp_path):
    fedpg.train(**(SMALL | {"rounds": 500, "seeds": 64, "agents": 5}), algorithm="pavg", out=tmp_path / "run-0")
    folders = [str(tmp_path / f"run-{number}") for number in range(8)]
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder)
    began = time.monotonic()
    assert main(["report", *folders, "--out", str(tmp_path / "report.html")]) == 0
    assert time.monotonic() - began < 15.0
    assert (tmp_path / "report.html").stat().st_size < 5e6
