"""Every example runs and shows what it says; so does the Python code of the README."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]
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
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names: dict = {}
    exec(code, names)
    sim, state = names["sim"], names["state"]
    before, after = (sim.evaluate(one).returns for one in (sim.init(jax.random.key(0)), state))
    assert after.shape == (4, 5)
    assert int(state.round) == 30
    assert after.mean() > 1.3 * before.mean()
