"""A head of one's own: agents that share all layers but the last, beside agents that learn alone, at equal numbers of trajectories.

The tasks, budgets, scores and seeds are those of `arena`. REINFORCE alone and with common params says what a score of 1 is. The
actor-critic draws as many trajectories, horizon by horizon, and stops when its budget is spent.

Unseen agents start from the layers of a trained federation, and use at most a quarter of the steps of agents that learn alone in the same
environments. CartPoles resemble each other. On conflicting MDPs every unseen agent wants other actions than the agents before it, so no
head serves it that was trained for others. Returns are in units of an agent's largest reward.
"""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies
from fedpg.algorithms import make as make_algorithm
from fedpg.algorithms.personal import deploy_own, keep_own
from fedpg.envs.tabular import MDP
from fedpg.errors import require
from fedpg.learners.actor_critic import Settings
from fedpg.paper import arena, verdict
from fedpg.paper.arena import CARTPOLE, FINITE, PARTS, Played, Scored, mean_score
from fedpg.paper.jobs import cached
from fedpg.paper.method import METHODS
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, over_seeds, row, select
from fedpg.paper.task import Task
from fedpg.problem import actor_critic
from fedpg.rounds import HEALTHY
from fedpg.runs import evaluation, heads
from fedpg.runs.config import Config
from fedpg.runs.evaluation import Trained
from fedpg.runs.setup import make_problem, resolve
from fedpg.runs.training import train
from fedpg.simulate import simulator

TITLE = "Personal heads beside local-only, and what an unseen agent needs"
COMMON = ("PAvg", "heavy ball", "FedAvg-M", "SCAFFOLD", "pooled")
"""The best of these, at any step-size, is a score of 1."""
ALONE = "local only"
PPO = {"PPO, personal heads": ("pavg", True), "PPO, local only": ("local-only", False), "FedAvg-PPO": ("pavg", False)}
"""Algorithm, and whether the last layer is every agent's own."""
ETAS = (0.003, 0.01, 0.03)
"""Adam's step-sizes."""
SETTINGS = Settings(schedule="constant", critic=(16,))
POLICY = (16,)
"""Hidden layers on finite MDPs; on CartPole the policy is that of all methods."""
UNSEEN: dict[str, dict[str, Any]] = {
    "unseen CartPoles": {"env": "cartpole", "share": "critic", "seed": 9100},
    "unseen conflict MDPs": {
        "env": "conflict", "policy": "categorical", "horizon": 50, "rollout_steps": 50, "batch": 2, "local_lr": 0.003, "seed": 9000,
    },
}  # fmt: skip
"""What is trained, with personal heads; what is left out is from the presets."""
COMMON_TO_UNSEEN = {
    "heterogeneity": 1.0, "learner": "actor-critic", "algorithm": "pavg", "personal": "heads", "normalise_observations": "off",
    "eval_episodes": 4,
}  # fmt: skip
LEAST = {"unseen CartPoles": 0.0, "unseen conflict MDPs": -0.5}
"""Where the interval of the lead over agents alone must start. On conflicting MDPs they end at the highest return, 50; 1 % less passes."""
QUARTER = 4
EPISODES = 32
"""Behind the return of an unseen agent."""
MEAN_HEAD, BEST, FITTED = "mean of the trained heads", "best head on the training agents", "fitted to the trained layers"
BRIEFLY, LONG = "alone, a quarter of the steps", "alone"
WAYS = MEAN_HEAD, BEST, FITTED, BRIEFLY, LONG

SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"budgets": {FINITE.name: 64}, "tuning": 2, "seeds": 3, "rounds": 68, "unseen_seeds": 2, "unseen": 2},
    "full": {"budgets": {FINITE.name: 480, CARTPOLE.name: 1920}, "tuning": 4, "seeds": 16, "rounds": 100, "unseen_seeds": 20, "unseen": 5},
}


def learn(name: str, task: Task, budget: int, seeds: int) -> dict[str, Played]:
    """An actor-critic at every step-size on `seeds` seeds of each part of a task, with at most `budget` trajectories per agent."""
    algorithm, own_heads = PPO[name]
    federation, parts = task.federation(), PARTS[task.name]
    environment, lanes = federation.environment, task.local_steps * task.batch
    finite = task.name == FINITE.name
    policy = policies.make("categorical", environment, hidden=POLICY if finite else None, critic=SETTINGS.critic)
    problem = actor_critic(
        federation, policy, SETTINGS, horizon=task.horizon, discount=task.discount, rollout_steps=task.horizon, lanes=lanes,
        eval_episodes=task.eval_episodes,
    )  # fmt: skip
    own = frozenset() if algorithm == "local-only" else frozenset({"critic", "heads"} if own_heads else {"critic"})
    problem = keep_own(problem, own)

    def make(setting: dict[str, Any]) -> Any:
        return deploy_own(make_algorithm(algorithm, problem, local_lr=setting["local_lr"]), own)

    sim = simulator(problem, make, federation, seeds=seeds * len(parts), settings={"local_lr": jnp.asarray(ETAS, float)})
    state = sim.init(jax.random.key(arena.ROOT))

    def worth() -> np.ndarray:
        scores = sim.evaluate(state)
        return np.asarray(scores.objective if finite else scores.returns).mean(axis=1)

    start, spent, most, rounds = worth(), 0.0, 0.0, 0
    # How many episodes end in a round depends on how long they are: a round begins if the costliest so far can be paid.
    while spent + most <= budget * task.agents:
        state, info = sim.run(state, 1)
        cost = max(float(info.local.usage.trajectories.max()), 1.0)
        spent, most, rounds = spent + cost, max(most, cost) if rounds else cost, rounds + 1
    final = np.where(np.asarray(state.rows.failed) == HEALTHY, worth(), np.nan)
    final, start = (values.reshape(-1, seeds, len(parts)) for values in (final, start))
    return {part: Played(start[0, :, at], final[..., at], spent, rounds) for at, part in enumerate(parts)}


def board_of(task: Task, budget: int, tuning: int, seeds: int, tell: Tell) -> tuple[dict[str, dict[str, Scored]], dict[str, Any]]:
    """Scores of the reported seeds by part and method, and what each method spent."""
    asked = budget, tuning + seeds
    played = {}
    for name in (*COMMON, ALONE):
        tell(f"{task.name}, {name}", 0.0)
        key = ("arena", METHODS[name], task, *asked, arena.ETAS[task.name])
        played[name] = cached(key, lambda n=name: arena.play(METHODS[n], task, *asked))
    for name in PPO:
        tell(f"{task.name}, {name}", 0.5)
        played[name] = cached(("personal", name, task, *asked), lambda n=name: learn(n, task, *asked))
    board = {}
    for part in PARTS[task.name]:
        references = {name: played[name][part] for name in (*COMMON, ALONE)}
        best = np.max([np.nanmax([*references[name].final, references[name].start], axis=0) for name in COMMON], axis=0)
        most = float(task.horizon) if part == CARTPOLE.name else best
        board[part] = arena.score(references, arena.ETAS[task.name], tuning, most)
        board[part] |= arena.score({name: played[name][part] for name in PPO}, ETAS, tuning, most)
    return board, {f"{name}, {task.name}": next(iter(parts.values()))[2:] for name, parts in played.items()}


class Newcomers(NamedTuple):
    """What unseen agents reach in some way: the mean return of each seed, (S,), and the most steps that an agent used."""

    returns: np.ndarray
    steps: int


def newcomers(task: str, rounds: int, seeds: int, count: int) -> dict[str, Newcomers]:
    """A federation of five learns; others fit policies to its layers with at most a quarter of the steps that agents alone have."""
    config = resolve(Config(**UNSEEN[task] | COMMON_TO_UNSEEN, rounds=rounds, seeds=seeds, eval_every=rounds))
    with tempfile.TemporaryDirectory() as folder:
        trained = evaluation.read(train(config, out=Path(folder) / "run").folder)
    where = evaluation.place(trained.spec, agents=count)
    batch = config.batch * config.rollout_steps
    left = rounds * batch // QUARTER - 2 * heads.TRIES * config.horizon
    require(left >= batch, f"a quarter of {rounds} rounds is too little for {heads.TRIES} episodes with each of two policies and a batch")
    fit = heads.fit(trained, where, left // batch)

    def alone(batches: int) -> tuple[Trained, int]:
        return heads.learned(trained, where, batches, make_problem(config, where.federation, "off", batches), config.seed)

    found = {MEAN_HEAD: (heads.mean_head(trained), 0), BEST: (heads.best_head(trained), 0), FITTED: (fit.trained, fit.steps)}
    found |= {BRIEFLY: alone(rounds // QUARTER), LONG: alone(rounds)}
    largest = where.agents.reward.max((2, 3)) if isinstance(where.agents, MDP) else 1.0  # that of a CartPole is 1

    def worth(policies: Trained) -> np.ndarray:
        returns = evaluation.evaluate(policies, fit.place, episodes=EPISODES, how="deterministic").own().mean(2)
        return (returns / largest).mean(1)

    return {name: Newcomers(worth(policies), steps) for name, (policies, steps) in found.items()}


def rows_of(found: dict[str, Newcomers], **place: Any) -> list[Row]:
    """The table of the newcomers of a task; each difference is between policies of the same agents, and its interval is over seeds."""
    rows = [row("return", over_seeds(each.returns), method=name, x=float(each.steps), **place) for name, each in found.items()]
    for against in (LONG, BRIEFLY, MEAN_HEAD, BEST):
        gap = over_seeds(found[FITTED].returns - found[against].returns)
        judged = verdict.above(gap, LEAST[place["task"]]) if against == LONG else None
        rows.append(row("return", gap, method=FITTED, against=against, comparison="-", verdict=judged, **place))
    return rows


def run(tell: Tell, budgets: dict[str, int], tuning: int, seeds: int, rounds: int, unseen_seeds: int, unseen: int) -> Result:
    """Runs the experiment.

    Args:
        budgets: trajectories per agent, by program of `arena`.
        tuning, seeds: seeds for choosing a step-size, and those that are reported.
        rounds: of the federation that unseen agents start from, and of agents alone.
        unseen_seeds, unseen: seeds there, and unseen agents of each.
    """
    board, spent = {}, {}
    for task in (FINITE, CARTPOLE):
        if task.name in budgets:
            parts, costs = board_of(task, budgets[task.name], tuning, seeds, tell)
            board, spent = board | parts, spent | costs
    rows = []
    joint = {name: mean_score([board[part][name].scores for part in board]) for name in next(iter(board.values()))}
    upper = float(joint[ALONE].high)
    for name in sorted(joint, key=lambda name: -float(joint[name].mean)):
        judged = verdict.above(joint[name], upper) if name == "PPO, personal heads" else None
        rows.append(row("score", joint[name], method=name, task="all tasks", verdict=judged))
        for part, scored in board.items():
            own = scored[name]
            flags = ("edge of the grid",) if own.edge else ()
            rows.append(row("score", mean_score([own.scores]), method=name, task=part, eta=own.eta, ratio=own.ratio, flags=flags))
    for task in UNSEEN:
        tell(task, 0.9)
        asked = task, rounds, unseen_seeds, unseen
        found = cached(("newcomers", COMMON_TO_UNSEEN, UNSEEN[task], *asked), lambda asked=asked: newcomers(*asked))
        rows += rows_of(found, task=task, N=unseen)
    unseen_settings = {"common": COMMON_TO_UNSEEN, **UNSEEN, "least": LEAST}
    return Result(
        rows=rows,
        settings={"trajectories and rounds": spent, "ppo": dataclasses.asdict(SETTINGS), "etas": ETAS, "unseen": unseen_settings},
    )


def figures(result: Result) -> list[Figure]:
    """Scores by task."""
    scores = select(result.rows, quantity="score")
    tasks = list(dict.fromkeys(each.task for each in scores))
    look = {"quantity": "score", "names": "method", "series": (), "x_label": "score", "guides": (1.0,)}
    plots = [Plot(title=task, where={"task": task}, **look) for task in tasks]
    return [Figure(plots=plots, rows=scores, height=2.2)]
