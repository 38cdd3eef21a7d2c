"""One policy for many environments that differ as much as they like, learned without moving a trajectory."""

import importlib
from typing import Any

_PUBLIC = {
    "Algorithm": "fedpg.algorithms",
    "Config": "fedpg.runs.config",
    "Debug": "fedpg.simulate_plain",
    "Environment": "fedpg.envs",
    "Federation": "fedpg.envs",
    "Policy": "fedpg.policies",
    "Problem": "fedpg.problem",
    "Run": "fedpg.runs.training",
    "Simulator": "fedpg.simulate",
    "UserError": "fedpg.errors",
    "agent_key": "fedpg.keys",
    "fedhapg_m": "fedpg.algorithms",
    "fedsvrpg_m": "fedpg.algorithms",
    "heavy_ball": "fedpg.algorithms",
    "local_only": "fedpg.algorithms",
    "pavg": "fedpg.algorithms",
    "policy_gradient": "fedpg.problem",
    "pooled": "fedpg.algorithms",
    "quadratic": "fedpg.quadratic",
    "train": "fedpg.runs.training",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `fedpg --help` does not wait for JAX."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedpg' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
