"""The folders are the architecture: imports go one way, files can be read in one sitting, extras stay in their place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpg"
# From the ground up: a module may import from its own layer and from those above it in this list.
LAYERS = [
    "errors", "machine", "trees", "sampling", "moments", "envs", "policies", "gradients", "problem", "quadratic",
    "keys", "events", "named_arrays", "algorithms", "communication", "memory", "rounds", "simulate", "simulate_plain",
    "theory", "runs", "flower", "report", "paper", "cli", "__main__",
]  # fmt: skip
HEAVY = {
    "matplotlib": ["report/figures.py"],
    "gymnasium": ["envs/python/gym.py", "paper/peers.py"],
    "mujoco": ["envs/mujoco/models.py", "envs/mujoco/fleet.py", "envs/mujoco/mjx.py", "paper/peers.py"],
    "flwr": ["flower/executor.py", "flower/link.py", "flower/relay.py", "flower/app/fedpg_app/server.py"],
    "cryptography": ["flower/certificates.py"],
    "httpx": ["flower/gate.py"],
    "starlette": ["flower/gate.py"],
    "uvicorn": ["flower/gate.py"],
    "tensorboard": ["runs/tensorboard.py"],
    "wandb": ["runs/wandb.py"],
    "mlflow": ["runs/mlflow.py"],
    "torch": [],
}
FILES = sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path):
    relative = path.relative_to(SOURCE)
    if relative == Path("__init__.py"):
        return
    layer = LAYERS.index(relative.parts[0].removesuffix(".py"))
    for name in imported(path):
        if name.startswith("fedpg."):
            assert LAYERS.index(name.split(".")[1]) <= layer, f"{relative} imports {name}"
        extra = name.split(".")[0]
        assert extra not in HEAVY or str(relative) in HEAVY[extra], f"{relative} imports {name}"


def test_files_can_be_read_in_one_sitting():
    lengths = {path: len(path.read_text().splitlines()) for path in (*FILES, *(ROOT / "tests").rglob("*.py"))}
    assert max(lengths.values()) <= 250
    assert sum(length > 150 for length in lengths.values()) <= 0.15 * len(lengths)


def test_tests_are_about_as_long_as_the_source():
    source, tests = (sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py")) for folder in (SOURCE, ROOT / "tests"))
    assert 0.7 <= tests / source <= 1.5


def test_every_source_folder_has_tests():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= {path.name for path in (ROOT / "tests").iterdir()}


def test_no_path_of_this_machine_is_committed():
    for path in (*ROOT.glob("*.*"), *FILES, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*")):
        if path.suffix in (".md", ".toml", ".py", ".cfg"):
            assert "/work" + "/main" not in path.read_text(), path
