"""Federated actor-critics beside one learner on all data, each agent alone, and Stable-Baselines3's PPO, at equal total steps.

Every number is the deterministic return of the last params, in the agents' own environments and in those of agents that nobody trained
on. Ours have the presets, or what a task says; Stable-Baselines3 is as in `fedpg.paper.sb3`. A personal policy meets every unseen agent.
"""

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg.paper import sb3, verdict
from fedpg.paper.jobs import cached, parallel
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, exactly, line, over_seeds, row
from fedpg.report.statistics import estimate
from fedpg.runs import evaluation
from fedpg.runs.config import Config
from fedpg.runs.evaluation import Place
from fedpg.runs.policy import Spec
from fedpg.runs.policy_files import make_spec
from fedpg.runs.setup import build, prepare, resolve
from fedpg.runs.training import train

TITLE = "PPO in a federation, pooled, alone, and Stable-Baselines3's, at equal total steps"
FEDAVG, SCAFFOLD, CALM, MOMENTUM = "FedAvg-PPO", "SCAFFOLD-PPO", "CALM-PPO", "heavy-ball PPO"
ALONE, POOLED = "local-only PPO", "pooled PPO"
OURS = {
    FEDAVG: {"algorithm": "pavg"},
    SCAFFOLD: {"algorithm": "scaffold"},
    CALM: {"algorithm": "calm"},
    MOMENTUM: {"algorithm": "heavy-ball", "beta": 0.5},
    ALONE: {"algorithm": "local-only"},
    POOLED: {"algorithm": "pooled"},
}
"""Configurations of ours, besides what a task says. The momentum was chosen on other seeds: docs/data/learner_presets.jsonl."""
SB3_POOLED, SB3_ALONE = "SB3 PPO, pooled", "SB3 PPO, alone"
FEDERATED, THEIRS = (FEDAVG, SCAFFOLD, CALM, MOMENTUM), (SB3_POOLED, SB3_ALONE)
ROOT, UNSEEN_EPISODES = 300, 2
"""The root seed, which no preset was chosen on, and episodes in each unseen environment."""
FASTER = 3.0
"""Our training steps a second are required to be at least this many times theirs."""
SHARE = 0.9
"""The share of the pooled learner's return that identical agents are required to reach."""


@dataclasses.dataclass(frozen=True)
class Task:
    """Agents of a MuJoCo task."""

    name: str
    env: str
    heterogeneity: float = 0.0
    vary: str = "start"
    local_steps: int = 1
    target: float | None = None
    """What federated methods are required to reach on average."""
    methods: tuple[str, ...] = ()
    """Those that are run; () is all of the scale's."""
    seeds: int = 0
    """Of each of our methods; 0 is the scale's number."""
    times: int = 1
    """The scale's number of steps, multiplied."""
    own: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict, hash=False)
    """Of single methods, in place of the preset: each has its best setting of those that were tried on other seeds."""


POOLED_LANES = {"batch": 4, "rollout_steps": 128, "learner_option": {"minibatch": 64, "epochs": 10, "gae_lambda": 0.95}, "discount": 0.99}
"""The best setting that was found for the pooled learner on the robots that fall."""
POOLED_CHEETAH = {"batch": 4, "rollout_steps": 125, "learner_option": {"epochs": 10}}
"""And on the one that does not."""
FEW, TWO = (FEDAVG, POOLED, SB3_POOLED), (FEDAVG, CALM)
CHEETAH = Task("HalfCheetah, identical agents", "halfcheetah", target=3500.0, methods=FEW, own={POOLED: POOLED_CHEETAH})
HOPPER = Task("Hopper, identical agents", "hopper", target=1800.0, methods=FEW, own={POOLED: POOLED_LANES})
WALKER = Task("Walker2d, identical agents", "walker2d", target=1500.0, methods=FEW, own={POOLED: POOLED_LANES})
MILLION = Task("HalfCheetah, a million steps", "halfcheetah", target=4500.0, methods=(FEDAVG,), times=2)
PHYSICS = Task("HalfCheetah, different physics", "halfcheetah", 1.0, "physics", 4, methods=TWO, seeds=16)
SPEED = Task("HalfCheetah, different speeds", "halfcheetah", 1.0, "speed", 4, methods=TWO, seeds=8)
BODY = Task("Walker2d, different bodies", "walker2d", 1.0, "body", 4, methods=TWO, seeds=8)

SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "tasks": (dataclasses.replace(HOPPER, methods=()),), "methods": (FEDAVG, CALM, SB3_POOLED), "agents": 2, "unseen": 2,
        "steps": 4000, "seeds": 1, "together": 1, "their_seeds": 1, "points": 1, "episodes": 1, "speed": 1, "processes": 1,
    },
    "full": {
        "tasks": (CHEETAH, HOPPER, WALKER, MILLION, PHYSICS, SPEED, BODY), "methods": (*OURS, *THEIRS), "agents": 5, "unseen": 5,
        "steps": 500_000, "seeds": 5, "together": 1, "their_seeds": 1, "points": 5, "episodes": 2, "speed": 3, "processes": 2,
    },
}  # fmt: skip


class Trial(NamedTuple):
    """What a method reached on S seeds.

    Attributes:
        steps: environment steps of all agents, (T,).
        curve: mean over agents, (S, T).
        own: of every agent in its environment, at the end, (S, N).
        unseen: on unseen agents, mean over policies, at the end, (S, M).
    """

    steps: np.ndarray
    curve: np.ndarray
    own: np.ndarray
    unseen: np.ndarray


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured; fields as in `run`."""

    agents: int
    unseen: int
    steps: int
    points: int
    episodes: int


def config_of(task: Task, size: Size, seeds: int, root: int, method: str = FEDAVG) -> Config:
    """The resolved configuration of a method of ours on a task; rounds from the total number of steps."""
    given = {"env": task.env, "heterogeneity": task.heterogeneity, "env_option": {"vary": task.vary}, "agents": size.agents}
    given |= {"local_steps": task.local_steps, "learner": "actor-critic", "seeds": seeds, "seed": root, "eval_episodes": size.episodes}
    config = resolve(Config(**given | OURS[method] | task.own.get(method, {}), rounds=1))
    rounds = max(1, round(task.times * size.steps / (size.agents * config.local_steps * config.batch * config.rollout_steps)))
    return dataclasses.replace(config, rounds=rounds, eval_every=max(1, rounds // size.points))


def ours(method: str, task: Task, size: Size, seeds: int, root: int) -> Trial:
    """A method of ours on some seeds side by side."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(config_of(task, size, seeds, root, method), out=Path(folder) / "run")
        trained = evaluation.read(run.folder)
    found = []
    for where, episodes in ((evaluation.place(trained.spec), size.episodes), (unseen(trained.spec, size), UNSEEN_EPISODES)):
        scored = evaluation.evaluate(trained, where, episodes=episodes, how="deterministic")
        found.append(scored.own().mean(2) if where.training else scored.returns.mean((1, 3)))
    curve = np.array([row["return_deterministic_per_seed"] for row in run.rows], float).T
    return Trial(np.array([row["env_steps"] for row in run.rows]), curve, *found)


def spec_of(config: Config) -> Spec:
    """The spec of the policies that a run of this configuration would have before training."""
    problem = prepare(config).problem
    params = jax.tree.map(lambda x: x[None], jax.tree.map(np.asarray, problem.init_params(jax.random.key(0))))
    row = {"round": 0, "return_per_seed": [None] * config.seeds, "return_per_agent": [None] * config.agents}
    return make_spec(config, problem, params, row)


def unseen(spec: Spec, size: Size) -> Place:
    """Agents that the policies of a spec were not trained on."""
    return evaluation.place(spec, agents=size.unseen)


def theirs(method: str, task: Task, size: Size, seeds: int, root: int) -> Trial:
    """Stable-Baselines3 on the agents that ours have with the same root."""
    spec = spec_of(config_of(task, size, seeds, root))
    where, elsewhere = evaluation.place(spec), unseen(spec, size)
    groups = [list(range(size.agents))] if method == SB3_POOLED else [[agent] for agent in range(size.agents)]
    trials = []
    for seed in range(seeds):
        learned = []
        for agents in groups:
            key = hash_of(root, seed, agents[0])

            def measure(act: Any, agents: list[int] = agents, seed: int = seed, key: int = key) -> np.ndarray:
                return sb3.returns_of(act, where, seed, size.episodes, key)[agents]

            share = task.times * size.steps * len(agents) // size.agents
            learned.append(sb3.train(where, seed, agents, share, key=key, points=size.points, measure=measure))
        new = [sb3.returns_of(one.act, elsewhere, seed, UNSEEN_EPISODES, root) for one in learned]
        own = np.concatenate([one.returns[-1] for one in learned])
        points = min(len(one.steps) for one in learned)
        curve = np.concatenate([one.returns[:points] for one in learned], axis=1).mean(1)
        trials.append(Trial(learned[0].steps[:points] * len(learned), curve, own, np.mean(new, axis=0)))
    least = min(len(one.steps) for one in trials)
    curve, own, new = (np.stack(parts) for parts in zip(*((one.curve[:least], one.own, one.unseen) for one in trials), strict=True))
    return Trial(trials[0].steps[:least], curve, own, new)


def hash_of(*numbers: int) -> int:
    """A seed from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] % 2**31)


def trial(method: str, task: Task, size: Size, seeds: int, root: int) -> Trial:
    """One job: a method on one group of seeds; its result is kept until the whole experiment has ended."""
    learn = ours if method in OURS else theirs
    return cached(("peers", method, task, size, seeds, root), lambda: learn(method, task, size, seeds, root))


def speeds(task: Task, size: Size, repeats: int) -> dict[str, list[float]]:
    """Training steps a second of FedAvg-PPO and of Stable-Baselines3, in turns, with the same lanes, epochs and minibatches."""
    config = config_of(task, size, 1, ROOT)
    lanes, sim = size.agents * config.batch, build(config)
    settings = {
        "n_steps": config.rollout_steps,
        "n_epochs": config.learner_option["epochs"],
        "batch_size": config.learner_option["minibatch"],
    }
    state, _ = sim.run(sim.init(jax.random.key(ROOT)), 1)  # compiles
    where = evaluation.place(spec_of(config))
    agents, rounds, rates = [n % size.agents for n in range(lanes)], 4, {FEDAVG: [], SB3_POOLED: []}
    for _ in range(repeats):
        began = time.perf_counter()
        state, info = jax.block_until_ready(sim.run(state, rounds))
        rates[FEDAVG].append(float(info.local.usage.env_steps.sum()) / (time.perf_counter() - began))
        count = rounds * lanes * config.rollout_steps
        learned = sb3.train(where, 0, agents, count, key=ROOT, points=1, measure=lambda act: np.zeros(1), **settings)
        rates[SB3_POOLED].append(count / learned.seconds)
    return rates


def rows_of(task: Task, size: Size, found: dict[str, Trial]) -> list[Row]:
    """The table of a task."""
    rows, place = [], {"task": task.name, "N": size.agents, "K": task.local_steps}
    for name, one in found.items():
        reached = over_seeds(one.own.mean(1))
        judged = verdict.at_least(reached, task.target) if task.target and name in FEDERATED and size.steps >= 500_000 else None
        rows.append(row("return", reached, method=name, verdict=judged, **place))
        rows.append(row("worst agent", over_seeds(one.own.min(1)), method=name, **place))
        rows.append(row("unseen agents", over_seeds(one.unseen.mean(1)), method=name, **place))
    for name in (CALM, SCAFFOLD, MOMENTUM):
        if name in found and FEDAVG in found:
            gap = over_seeds(found[name].own.mean(1) - found[FEDAVG].own.mean(1))
            rows.append(row("return", gap, method=name, against=FEDAVG, comparison="-", verdict=verdict.above(gap), **place))
    if POOLED in found and task.heterogeneity == 0.0:
        for name in (name for name in FEDERATED if name in found):
            share = over_seeds(found[name].own.mean(1) / found[POOLED].own.mean(1).mean())
            rows.append(row("share of pooled", share, method=name, verdict=verdict.at_least(share, SHARE), **place))
    return rows


def run(
    tell: Tell, tasks: tuple[Task, ...], methods: tuple[str, ...], agents: int, unseen: int, steps: int, seeds: int, together: int,
    their_seeds: int, points: int, episodes: int, speed: int, processes: int,
) -> Result:  # fmt: skip
    """Runs the experiment.

    Args:
        tasks, methods: what is run, methods where a task names none; Stable-Baselines3 is left out where it is not installed.
        agents, unseen: N, and how many agents are drawn to test on.
        steps: of all agents together.
        seeds, their_seeds: of each of our methods, and of Stable-Baselines3.
        together: our seeds in one job.
        points: evaluations of a run.
        episodes: of every agent in an evaluation.
        speed: measurements of the speed; 0: none.
        processes: jobs at a time.
    """
    size, notes = Size(agents, unseen, steps, points, episodes), []
    if not sb3.installed():
        notes.append(sb3.MISSING)
        tell(sb3.MISSING, 0.0)
    rates = {}
    if speed and sb3.installed():  # first, while nothing else runs
        tell("speed", 0.0)
        rates = cached(("peers speed", tasks[0], size, speed), lambda: speeds(tasks[0], size, speed))
    jobs = []
    for task in tasks:
        for method in task.methods or methods:
            if method in THEIRS and not sb3.installed():
                continue
            count, group = (task.seeds or seeds, together) if method in OURS else (their_seeds, 1)
            jobs += [(method, task, size, min(group, count - first), ROOT + first) for first in range(0, count, group)]
    tell("training", 0.0)
    done = parallel(trial, jobs, processes=processes, tell=lambda share: tell("training", share))
    found: dict[Task, dict[str, list[Trial]]] = {task: {} for task in tasks}
    for (method, task, *_), one in zip(jobs, done, strict=True):
        found[task].setdefault(method, []).append(one)
    rows, curves = [], []
    for task, by_method in found.items():
        whole = {}
        for name, parts in by_method.items():
            least = min(len(part.steps) for part in parts)
            own, new = (np.concatenate([getattr(part, field) for part in parts]) for field in ("own", "unseen"))
            whole[name] = Trial(parts[0].steps[:least], np.concatenate([part.curve[:, :least] for part in parts]), own, new)
            curves += line("return", over_seeds(whole[name].curve.T), "x", whole[name].steps, method=name, task=task.name)
        rows += rows_of(task, size, whole)
    for name, values in rates.items():
        rows.append(exactly("training steps a second", float(np.median(values)), len(values), method=name, task=tasks[0].name))
    if rates:
        ratio = estimate(np.array(rates[FEDAVG]) / np.array(rates[SB3_POOLED]))
        judged = verdict.at_least(ratio, FASTER)
        rows.append(row("speed ratio", ratio, method=FEDAVG, against=SB3_POOLED, comparison="/", task=tasks[0].name, verdict=judged))
    settings = {"tasks": [dataclasses.asdict(task) for task in tasks], "root": ROOT, "ours": OURS}
    return Result(rows=rows, points=curves, settings=settings, notes=notes)


def figures(result: Result) -> list[Figure]:
    """Learning curves of every task."""
    tasks = dict.fromkeys(point.task for point in result.points)
    plots = [Plot(title=task, quantity="return", x="x", where={"task": task}, x_label="environment steps") for task in tasks]
    return [Figure(plots=plots, rows=result.points)]
