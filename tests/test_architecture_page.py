"""docs/explanation/architecture.md names functions: a traced run goes through exactly these."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import jax

import fedpg
from fedpg.envs import cartpole

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpg"


def listed(heading: str) -> list[tuple[str, str]]:
    """The numbered (file, function) pairs under a heading of the page."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`: `(\w+)`", text, re.MULTILINE)


def stack_at(name: str, path: Path, run: Any) -> list[tuple[str, str]]:
    """The fedpg functions on the stack when `name` in `path` is called for the first time, outermost first."""
    found: list[tuple[str, str]] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or found or frame.f_code.co_name != name or Path(frame.f_code.co_filename) != path:
            return
        while frame is not None:
            place = Path(frame.f_code.co_filename)
            if place.is_relative_to(SOURCE):
                found.insert(0, (str(place.relative_to(SOURCE)), frame.f_code.co_name))
            frame = frame.f_back

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def test_a_local_step_passes_the_functions_that_the_page_lists():
    federation = fedpg.envs.make("cartpole", agents=2)
    policy = fedpg.policies.make("categorical", federation.environment, hidden=(64, 64))  # smaller ones take gradients/lanes.py
    problem = fedpg.policy_gradient(federation.environment, policy, horizon=3, discount=0.9)
    sim = fedpg.simulator(problem, fedpg.fedsvrpg_m(problem, local_lr=0.1, u0_batches=0), federation)
    state = sim.init(jax.random.key(0))
    traced = stack_at("_advance", Path(cartpole.__file__), lambda: sim.run(state, 1))
    page = listed("One local step of `fedpg train`")
    assert traced == [*page, ("envs/base.py", "__call__"), ("envs/cartpole.py", "_advance")]
    assert len(page) <= 10
    assert len({file for file, _ in page} | {"policies/mlp.py", "envs/cartpole.py"}) <= 7


def defined(file: str) -> set[str]:
    """The names of all functions in a file of the library."""
    tree = ast.parse((SOURCE / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_a_message_passes_functions_that_exist():
    page = listed("One message of `fedpg join`")
    assert 15 <= len(page) <= 18
    assert len({file for file, _ in page}) <= 9
    for file, function in page:
        assert function in defined(file), f"{file} has no {function}"
