"""Every example runs and shows what it says; so does every block of the README."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import jax
import pytest

import fedpg
from helpers.documents import blocks, follow

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


SLOW = ("compare_algorithms.py", "own_environment.py")
"""Examples that run only in `make test-slow`."""


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else []) for path in EXAMPLES]
)
def test_examples_run_and_are_short(path, capsys):
    """Some check themselves: the tanks must be better afterwards. Policies and the algorithm have tests of their own."""
    assert len(path.read_text().splitlines()) < 60
    runpy.run_path(str(path), run_name="__main__")
    if path.name == "compare_algorithms.py":
        found = {name: float(value) for name, value in re.findall(r"^(\S+)\s+J\s+([\d.]+)", capsys.readouterr().out, re.MULTILINE)}
        assert len(found) == 4
        assert found["local-only"] > 1.2 * max(value for name, value in found.items() if name != "local-only"), (
            "agents want different things"
        )


def test_the_readme_learns():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names: dict = {}
    exec(code, names)
    sim, state = names["sim"], names["state"]
    before, after = (sim.evaluate(one).returns for one in (sim.init(jax.random.key(0)), state))
    assert after.shape == (4, 5)
    assert int(state.round) == 30
    assert after.mean() > 1.3 * before.mean()


def test_the_readme_is_short_and_its_make_targets_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "docs", "docs-serve"} <= set(re.findall(r"make ([a-z-]+)", text)) <= set(targets)


def test_every_block_of_the_readme_is_run():
    """By the test below, but for the one that has targets of make only."""
    fences = re.split(r"^```(.*)\n", README.read_text(), flags=re.MULTILINE)
    found = list(zip(fences[1::4], fences[2::4], strict=True))
    assert [language for language, _ in found] == ["", "bash", "bash", "python"]
    assert all(line.startswith("make ") for line in found[0][1].splitlines())
    assert [block.code for block in blocks(README.read_text())] == [code for _, code in found[1:]]


@pytest.mark.slow
def test_the_readme_does_what_it_says(tmp_path):
    """Its run, its federation of three processes and its program, one after the other in an empty folder; fedpg is installed already."""
    page, folder = tmp_path / "README.md", tmp_path / "empty"
    page.write_text(re.sub(r"^pip install .*\n", "", README.read_text(), flags=re.MULTILINE))
    folder.mkdir()
    assert "95 % interval" in follow(page, folder, 1200.0)
    assert {"policy.safetensors", "policy.json", "README.md"} <= {path.name for path in (folder / "my-policy").iterdir()}
    assert (folder / "report.html").stat().st_size > 0
    for agent in (0, 1):
        assert fedpg.load(folder / f"policy-{agent}").predict([0.0, 0.0, 0.0, 0.0])[0] in (0, 1)
