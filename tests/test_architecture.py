"""The folders are the architecture: imports go one way, and extras stay in their own files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpg"
# From the ground up: a module may import from its own layer and from those before it in this list.
LAYERS = [
    "errors", "cache", "machine", "trees", "sampling", "native", "moments", "own", "envs", "policies", "gradients", "learners", "problem",
    "quadratic", "keys", "events", "named_arrays", "algorithms", "communication", "memory", "rounds", "simulate", "simulate_plain",
    "theory", "report", "runs", "flower", "paper", "bench", "cli", "__main__",
]  # fmt: skip
UPPER_TIERS = {"flower", "paper", "bench"}
"""Nothing but the verbs in `cli` may import these from outside, and they do not import each other."""
HEAVY = {
    "matplotlib": ["report/figures.py"],
    "gymnasium": ["envs/gym.py", "bench/mujoco.py", "bench/torch_cartpole.py", "paper/sb3.py"],
    "mujoco": ["envs/mujoco/models.py", "envs/mujoco/batch.py", "envs/mujoco/draw.py", "bench/mujoco.py"],
    "onnx": ["runs/onnx.py"],
    "imageio": ["report/video.py"],
    "imageio_ffmpeg": ["report/video.py"],
    "PIL": ["report/figures.py", "report/video.py"],
    "flwr": ["flower/flwr_private.py", "flower/fleet.py", "flower/link.py", "flower/app/fedpg_app/apps.py"],
    "cryptography": ["flower/keys.py"],
    "httpx": ["flower/flwr_private.py", "flower/fleet.py", "flower/connection.py", "flower/greeting.py", "flower/proxy.py"],
    "starlette": ["flower/delivery.py", "flower/proxy.py", "flower/status_page.py", "flower/web.py"],
    "uvicorn": ["flower/proxy.py", "flower/web.py"],
    "tensorboard": ["runs/tensorboard.py"],
    "wandb": ["runs/wandb.py"],
    "mlflow": ["runs/mlflow.py"],
    "torch": ["paper/sb3.py", "bench/mujoco.py", "bench/torch_cartpole.py"],
    "stable_baselines3": ["paper/sb3.py", "bench/mujoco.py"],
}
"""Extras, and the only files that may import them."""
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
            target = name.split(".")[1]
            assert LAYERS.index(target) <= layer, f"{relative} imports {name}"
            own = target == relative.parts[0] or relative.parts[0] == "cli"
            assert own or target not in UPPER_TIERS, f"{relative} imports {name} of another tier"
        extra = name.split(".")[0]
        assert extra not in HEAVY or str(relative) in HEAVY[extra], f"{relative} imports {name}"


def test_no_path_of_this_machine_is_committed():
    for path in (*ROOT.glob("*.*"), *FILES, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*")):
        if path.suffix in (".md", ".toml", ".py", ".cfg"):
            assert "/work" + "/main" not in path.read_text(), path
