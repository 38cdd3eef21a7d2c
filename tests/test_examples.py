"""Every example runs and shows what it says; so does the Python code of the README."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import fedpg

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


def commands(block: str, folder: Path) -> str:
    """Runs a block of shell commands of the README in an empty folder, with this environment's fedpg; returns what they print."""
    lines = [line for line in block.splitlines() if not line.startswith("pip install")]
    assert len(lines) >= len(block.splitlines()) - 1
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, cwd=folder, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_is_short_and_its_make_targets_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "docs", "docs-serve"} <= set(re.findall(r"make ([a-z-]+)", text)) <= set(targets)
    assert len(re.findall(r"^```bash$", text, re.MULTILINE)) == 2  # the two tests below


@pytest.mark.slow
def test_the_run_of_the_readme(tmp_path):
    run = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)[0]
    assert "95 % interval" in commands(run, tmp_path)
    assert {"policy.safetensors", "policy.json", "README.md"} <= {path.name for path in (tmp_path / "my-policy").iterdir()}


@pytest.mark.federation
def test_the_federation_of_the_readme(tmp_path):
    federation = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)[1]
    commands(federation, tmp_path)
    for agent in (0, 1):
        assert fedpg.load(tmp_path / f"policy-{agent}").predict([0.0, 0.0, 0.0, 0.0])[0] in (0, 1)
