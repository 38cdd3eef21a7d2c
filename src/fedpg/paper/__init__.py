"""The tables and figures of the paper, and our own experiments, beside the published numbers."""

import importlib
from typing import TYPE_CHECKING, Any

from fedpg.errors import choose

if TYPE_CHECKING:
    from fedpg.paper.results import Figure, Result, Tell

EXPERIMENTS = {
    "table-2": "the paper's random MDPs: J for five beta and six kappa, beside the published numbers",
    "figure-1": "CartPole and HalfCheetah, FedSVRPG-M and FedHAPG-M, beta in .2, .5, .8, 1",
    "figure-2": "CartPole, both algorithms, N in 4, 5, 8",
    "table-3": "FedHAPG-M on CartPole and Walker, beside the published numbers",
    "drift": "many local steps on agents that conflict: every algorithm's J, and |grad J|^2 at rest",
    "held-out": "the comparison of `drift` on families that others defined, with a margin written down beforehand",
    "held-out-control": "`held-out` on LunarLander, Acrobot and MuJoCo's robots",
    "speedup": "trajectories per agent to a given |grad J|^2 for N = 1 to 64, and the fitted slope",
    "complexity": "samples against eps, and the fitted slope beside 3/2",
    "cartpole": "trajectories to 95 of 100 under strong heterogeneity, for K = 24 to 128",
    "attacks": "three attackers among ten CartPoles: every robust mean and FedPG-BR under all seven attacks",
    "privacy": "what noise on messages costs the return of CALM and PAvg",
    "table-1": "the paper's Table 1, measured: exactness, local steps, heterogeneity, speed-up in N, floats and trajectories",
    "arena": "every algorithm on random MDPs, conflict MDPs and CartPole at equal numbers of trajectories",
    "personal": "heads of one's own beside learning alone, at equal trajectories, and what an unseen agent needs",
    "peers": "PPO in a federation, pooled and alone, beside Stable-Baselines3's PPO: returns, unseen agents, speed",
}
"""Every experiment that `fedpg reproduce` knows: a module with TITLE, SCALES, `run(tell, **SCALES[scale]) -> Result` and
`figures(result) -> list[Figure]`."""
SCALES = ("smoke", "full")


def module_of(name: str) -> Any:
    """The module of an experiment."""
    choose("experiment", name, EXPERIMENTS)
    return importlib.import_module(f"fedpg.paper.{name.replace('-', '_')}")


def figures(result: "Result") -> "list[Figure]":
    """The figures of a result, made from its rows and points alone."""
    return module_of(result.name).figures(result)


def run(name: str, scale: str, tell: "Tell") -> "Result":
    """Runs one experiment."""
    choose("scale", scale, SCALES)
    module = module_of(name)
    result = module.run(tell, **module.SCALES[scale])
    result.name, result.title, result.scale = name, module.TITLE, scale
    result.settings = module.SCALES[scale] | result.settings
    return result
