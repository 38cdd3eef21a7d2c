"""Every example runs and shows what it says; so does every block of the README."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import jax
import pytest

import fedpg
from helpers.documents import bare_machine, blocks, follow

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
    """By the last test."""
    fences = re.split(r"^```(.*)\n", README.read_text(), flags=re.MULTILINE)
    assert fences[1::4] == ["bash", "bash", "bash", "python"]
    assert [(block.language, block.code) for block in blocks(README.read_text())] == list(zip(fences[1::4], fences[2::4], strict=True))


def test_ci_runs_what_the_readme_says(tmp_path):
    """It starts the README's command for tests in the repository, nothing beside it, and fails if that fails."""
    (line,) = re.findall(r"^(make test\b.*)$", blocks(README.read_text())[0].code, re.MULTILINE)
    program, *words = shlex.split(line, comments=True)
    calls = tmp_path / "calls"
    for name in ("make", "git", "pip", "pytest", "python", "python3", "ruff"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$(pwd) {name} $*" >> {calls}\nexit 7\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run([str(ROOT / ".ci" / "run")], cwd=tmp_path, env=os.environ | {"PATH": path}, check=False)
    assert calls.read_text() == f"{ROOT} {program} {' '.join(words)}\n"
    assert ended.returncode == 7


@pytest.mark.slow
def test_the_readme_does_what_it_says(tmp_path, monkeypatch):
    """Every block of it, one after the other, in a clone of the last commit, on a machine that has only Python, pip and make.

    The one change: its `make test` runs the tests of a single file. CI runs them all.
    """
    folder, few = tmp_path / "fedpg", "tests/test_named_arrays.py"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    programs = bare_machine(tmp_path / "bare", monkeypatch)
    monkeypatch.setenv("PYTEST_ADDOPTS", few)
    screen = follow(folder / "README.md", folder, 2400.0, programs)
    demo, tests = re.search(r"\$ make demo.*?(?=^\$ |\Z)", screen, re.DOTALL | re.MULTILINE)[0].split("\nAll checks passed!\n")
    assert "CALM, federated, against local only on unseen environments: better by" in demo
    assert re.search(r"files already formatted\n.*\.venv/bin/pytest .*^=+ [1-9]\d* passed in", tests, re.DOTALL | re.MULTILINE)
    assert "95 % interval" in screen
    assert {"policy.safetensors", "policy.json", "README.md"} <= {path.name for path in (folder / "my-policy").iterdir()}
    assert (folder / "report.html").stat().st_size > 0
    for agent in (0, 1):
        assert fedpg.load(folder / f"policy-{agent}").predict([0.0, 0.0, 0.0, 0.0])[0] in (0, 1)
