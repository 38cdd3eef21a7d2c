"""Personal policies: a trained common policy, trained further by every agent alone; and the same from scratch, for comparison.

An agent keeps the common policy unless its own has the higher return in a few further episodes, about one round's worth for the two.
Training from scratch gets as many steps more.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import require
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs import evaluation
from fedpg.runs import policy as files
from fedpg.runs.evaluation import Scored, Trained
from fedpg.runs.folder import RunFolder
from fedpg.runs.policy_files import config_of, names
from fedpg.runs.progress import Progress
from fedpg.runs.setup import resolve
from fedpg.runs.training import Run, train

ARMS = ("personal", "scratch")


class Outcome(NamedTuple):
    """Returns of the common policy, of the personal ones, and of those from scratch, on the agents of training.

    Attributes:
        scored: common, personal, scratch.
        trajectories: of each agent for its personal policy, those of the choice included; training from scratch had at least as many.
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
    common, runs = evaluation.read(path), {}
    where = evaluation.place(common.spec)
    for name, start in (("personal", path), ("scratch", "")):
        config = resolve(dataclasses.replace(base, init_from=start))
        steps = config.local_steps * config.batch * (config.rollout_steps or config.horizon)  # of a round
        tries = max(1, steps // (2 * config.horizon))
        more = 0 if start else math.ceil(2 * tries * config.horizon / steps)
        config = dataclasses.replace(config, rounds=config.rounds + more)
        runs[name] = train(config, out=out / name, progress=(progress or {}).get(name))
        if runs[name].round < runs[name].config.rounds:
            raise KeyboardInterrupt
    trained = {"common": common} | {name: evaluation.read(run.folder) for name, run in runs.items()}
    trained["personal"] = evaluation.better(common, trained["personal"], where, episodes=tries, how="stochastic")
    scored = {name: evaluation.evaluate(one, where, episodes=episodes) for name, one in trained.items()}
    _write(runs["personal"], trained["personal"], scored["personal"])
    return Outcome(scored, float(np.mean(runs["personal"].rows[-1]["trajectories"])) / source.agents + 2 * tries, runs)


def _write(run: Run, chosen: Trained, scored: Scored) -> None:
    """Puts the chosen policies, and their returns, in the place of those at the end of training."""
    own = scored.own()
    returns = {"returns": tuple(own.mean((1, 2)).tolist()), "returns_per_agent": tuple(own.mean((0, 2)).tolist())}
    arrays = {name: np.asarray(array) for name, array in names(chosen.params).items()}
    files.write(RunFolder(run.folder).policy, dataclasses.replace(chosen.spec, **returns), arrays)
