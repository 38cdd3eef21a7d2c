"""Personal policies: a trained common policy, trained further by every agent alone; and the same from scratch, for comparison."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import require
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs import evaluation
from fedpg.runs import policy as files
from fedpg.runs.evaluation import Scored
from fedpg.runs.policy_files import config_of
from fedpg.runs.progress import Progress
from fedpg.runs.training import Run, train

ARMS = ("personal", "scratch")


class Outcome(NamedTuple):
    """Returns of the common policy, of the personal ones, and of those from scratch, on the agents of training.

    Attributes:
        scored: common, personal, scratch.
        trajectories: of each agent, in either of the two.
    """

    scored: dict[str, Scored]
    trajectories: float
    runs: dict[str, Run]

    def gain(self, over: str) -> Estimate:
        """Of the personal policies, mean over agents: over seeds, the difference in each seed."""
        mean = {name: one.own().mean((1, 2)) for name, one in self.scored.items()}
        return estimate(mean["personal"] - mean[over])


def personalize(path: str, out: Path, *, episodes: int = 100, progress: dict[str, Progress] | None = None, **settings: Any) -> Outcome:
    """Trains the policy of `path` further for every agent by itself, and from scratch with as many trajectories.

    Args:
        path: a run whose agents share one policy.
        out: the folder for the two run folders, personal and scratch.
        episodes: of each evaluation, per agent and seed.
        progress: gets reports, by the name of the run folder.
        settings: fields of `Config` that win over those of the run: rounds, local_lr, local_steps, batch.
    """
    spec = files.read(path).spec
    require(not spec.personal, f"every agent of {path} has its own policy already")
    source = config_of(spec)
    # What belongs to the federated algorithm is left out: the presets of local-only take its place.
    own = dict.fromkeys(("beta", "local_lr", "global_lr", "rounds")) | {"algorithm_option": {}, "u0": "auto", "engine": "simulator"}
    shared = {"participation": 1.0, "selection": "random", "aggregation": "mean", "compression": "none", "clip": 0.0, "noise": 0.0}
    base = dataclasses.replace(source, algorithm="local-only", attack="none", **own | shared | {"eval_every": 10**6})
    base = dataclasses.replace(base, **{name: value for name, value in settings.items() if value is not None})
    runs = {}
    for name in ARMS:
        config = dataclasses.replace(base, init_from=path if name == "personal" else "")
        runs[name] = train(config, out=out / name, progress=(progress or {}).get(name))
        if runs[name].round < runs[name].config.rounds:
            raise KeyboardInterrupt
    common = evaluation.read(path)
    where = evaluation.place(common.spec)
    scored = {"common": evaluation.evaluate(common, where, episodes=episodes)}
    scored |= {name: evaluation.evaluate(evaluation.read(run.folder), where, episodes=episodes) for name, run in runs.items()}
    return Outcome(scored, float(np.mean(runs["personal"].rows[-1]["trajectories"])) / source.agents, runs)
