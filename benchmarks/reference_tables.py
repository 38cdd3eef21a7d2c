"""Tables of the documentation that need little sampling: writes docs/data/reference_tables.jsonl, one line per line of a table.

python benchmarks/reference_tables.py [TABLE ...]            (all: some minutes on two cores)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpg
from fedpg import policies
from fedpg.gradients import exact
from fedpg.quadratic import bowls, quadratic
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from fedpg.runs.sweep import curves
from fedpg.theory import Constants, prescribe

DATA = Path(__file__).parents[1] / "docs" / "data" / "reference_tables.jsonl"
Rows = Iterator[dict[str, Any]]


def ends(rounds: list[int], **settings: Any) -> tuple[list[float], list[float]]:
    """J and |grad J|^2 after each of some rounds, means over seeds."""
    config = resolve(Config(rounds=rounds[-1], **settings))
    found = curves(build(config), jax.random.key(config.seed), rounds)
    return found.objective.mean((0, 1, 3)).tolist(), found.grad_norm_sq.mean((0, 1)).tolist()


def bowl() -> Rows:
    """|grad J|^2 after 20,000 rounds with exact gradients on five quadratics, and the largest over three values of beta."""
    problem = quadratic(4)

    def rest(factory: Any, **settings: Any) -> float:
        sim = fedpg.simulator(problem, factory(problem, local_steps=8, **settings), lambda key, seed: bowls(key, 5, 1.0))
        return float(sim.evaluate(sim.run(sim.init(jax.random.key(0)), rounds=20_000)[0]).grad_norm_sq[0])

    for rate in (0.01, 0.005):
        row = {"local_lr": rate, "pavg": rest(fedpg.pavg, local_lr=rate), "pooled": rest(fedpg.pooled, local_lr=rate, agents=5)}
        for factory in (fedpg.fedsvrpg_m, fedpg.fedhapg_m, fedpg.heavy_ball):
            row[factory.__name__] = [rest(factory, local_lr=rate, beta=beta) for beta in (0.5, 0.02)]
        yield row


def fapi() -> Rows:
    """J and |grad J|^2 after 600 rounds, for four temperatures and the greedy improvement."""
    given = [{"temperature": temperature} for temperature in (1.0, 3.0, 10.0, 30.0)] + [{"improvement": "greedy"}]
    own = {"reward_heterogeneity": 1.0}
    for task, options in (("conflict", {}), ("random-mdp, own rewards", own), ("random-mdp", {})):
        size = {"env": task.partition(",")[0], "env_option": options, "algorithm": "fapi", "heterogeneity": 1.0, "agents": 5, "seeds": 10}
        each = [ends([0, 600], **size, algorithm_option=option) for option in given]
        row = {"task": task, "start": each[0][0][0], "objective": [objective[1] for objective, _ in each]}
        yield row | {"grad_norm_sq": [gradient[1] for _, gradient in each]}


def fednpg() -> Rows:
    """Mean J and the largest |grad J|^2 of a seed after 400 rounds without a horizon, for both weightings."""
    for kernel, heterogeneity in (("uniform", 0.5), ("uniform", 1.0), ("orthogonal", 1.0), ("bernoulli", 4.0)):
        options = {"kernel": kernel, "reward_heterogeneity": 0.5, "start_heterogeneity": 1.0}
        federation = fedpg.envs.make("random-mdp", agents=5, heterogeneity=heterogeneity, options=options)
        policy = policies.make("softmax", federation.environment)
        problem = fedpg.exact_policy_gradient(federation.environment, policy, discount=0.9)
        row: dict[str, Any] = {"kernel": kernel, "heterogeneity": heterogeneity}
        for weighting in ("mean", "occupancy"):
            sim = fedpg.simulator(problem, fedpg.fednpg(problem, local_lr=0.1, weighting=weighting), federation, seeds=16)
            scores = sim.evaluate(sim.run(sim.init(jax.random.key(0)), 400)[0])
            row[weighting] = [float(np.mean(scores.objective)), float(np.max(scores.grad_norm_sq))]
        yield row


def steps() -> Rows:
    """J of the exact forms after 15 and after 150 rounds, at three step-sizes each."""
    natural = (0.05, 0.2, 0.5)
    swept = {"pavg-softmax": (0.05, 0.5, 2.0), "pavg-npg": natural, "pavg-projected": (0.002, 0.01, 0.05), "fednpg": natural}
    for algorithm, rates in swept.items():
        for env in ("random-mdp", "conflict"):
            each = [ends([15, 150], env=env, algorithm=algorithm, agents=5, seeds=8, local_lr=rate)[0] for rate in rates]
            preset = resolve(Config(env=env, algorithm=algorithm)).local_lr
            early, late = zip(*each, strict=True)
            yield {"algorithm": algorithm, "env": env, "local_lr": rates, "preset": preset, "early": early, "late": late}


def spread() -> Rows:
    """How much agents disagree at the uniform policy, and the constants of CartPoles."""

    def measured(name: str, level: float, key: jax.Array) -> tuple[float, float]:
        family = fedpg.envs.family(name)
        options = family.options()
        policy = policies.make("softmax", family.environment(options))
        mdps = family.agents(key, 5, level, options)
        g = np.asarray(jax.vmap(lambda mdp: exact.gradient(policy, policy.init(key), mdp, 0.9, 50)["logits"])(mdps), float)
        return np.max(np.sum((g - g.mean(0)) ** 2, axis=(1, 2))), np.sum(g.mean(0) ** 2)

    poles = fedpg.envs.family("cartpole")
    for level in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
        row: dict[str, Any] = {"heterogeneity": level}
        for name in ("random-mdp", "conflict"):
            row[name] = np.mean([measured(name, level, key) for key in map(jax.random.key, range(20))], axis=0).tolist()
        constants = poles.agents(jax.random.key(0), 5, level, poles.options())
        for name in ("length", "gravity", "start_range"):
            row[name] = [float(getattr(constants, name).min()), float(getattr(constants, name).max())]
        yield row


def theory() -> Rows:
    """What the theorem of FedSVRPG-M assumes and prescribes, and the same measured on three draws of the paper's random MDPs."""
    given = Constants(agents=20, local_steps=32, rounds=1000)
    assumed = prescribe(given, "fedsvrpg-m")
    federation = fedpg.envs.make("random-mdp", agents=20, heterogeneity=1.0)
    policy = policies.make("softmax", federation.environment)
    flow = fedpg.exact_policy_gradient(federation.environment, policy, discount=0.9, horizon=50)
    sampled = fedpg.policy_gradient(federation.environment, policy, horizon=50, discount=0.9)

    def measured(key: jax.Array) -> dict[str, float]:
        mdps, start = federation.agents(key, 0), policy.init(key)
        one = jax.tree.map(lambda x: x[0], mdps)

        def each(logits: jax.Array) -> jax.Array:
            return jax.vmap(lambda mdp: flow.gradient(mdp, {"logits": logits})["logits"].ravel())(mdps)

        def value(logits: jax.Array) -> jax.Array:
            return jnp.mean(jax.vmap(lambda mdp: flow.evaluate(key, {"logits": logits}, mdp).objective)(mdps))

        def draw(key: jax.Array) -> jax.Array:
            return sampled.gradient(sampled.sample(key, start, one, sampled.init_memory())[0], start)["logits"].ravel()

        at = start["logits"]
        hessian = np.asarray(jax.jacfwd(lambda logits: each(logits).mean(0))(at)).reshape(at.size, at.size)
        climb = jax.jit(lambda logits: logits + 1.6 * each(logits).mean(0).reshape(logits.shape))
        top = at
        for _ in range(100):
            top = climb(top)
        small = 1000 * assumed.global_lr * jnp.sum(each(at).mean(0) ** 2)  # to first order: float32 cannot hold such a step
        return {
            "smoothness": float(np.abs(np.linalg.eigvalsh(hessian)).max()),
            "sigma": float(jnp.sqrt(jnp.sum(jnp.var(jax.jit(jax.vmap(draw))(jax.random.split(key, 4096)), axis=0)))),
            "g0": float(jnp.mean(jnp.sum(each(at) ** 2, axis=1))),
            "gain": float(value(top) - value(at)),
            "small gain": float(small),
        }

    found = [measured(key) for key in map(jax.random.key, range(3))]
    for kind, what, quantity, said in (
        ("constant", "smoothness", "smoothness of J", f"{assumed.smoothness:,.0f}"),
        ("constant", "sigma", "sigma", f"{assumed.constants.sigma:,.0f}"),
        ("constant", "g0", "g0", f"{assumed.constants.g0:,.0f}"),
        ("gain", "small gain", "the theorem's", f"{assumed.global_lr:.1e}, 1000"),
        ("gain", "gain", "the paper's eta K", "1.6, 100"),
    ):
        numbers = [one[what] for one in found]
        yield {"kind": kind, "quantity": quantity, "theory": said, "low": min(numbers), "high": max(numbers)}
    for quantity, used, prescribed in (("lambda", 1.6, assumed.global_lr), ("eta", 0.05, assumed.local_lr)):
        yield {"kind": "ratio", "quantity": quantity, "millions": used / prescribed / 1e6}


TABLES = {table.__name__: table for table in (bowl, fapi, fednpg, steps, spread, theory)}

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(TABLES)
    old = [json.loads(line) for line in DATA.read_text().splitlines()] if DATA.exists() else []
    rows = [row for row in old if row["table"] not in wanted] + [{"table": name} | row for name in wanted for row in TABLES[name]()]
    rows.sort(key=lambda row: list(TABLES).index(row["table"]))
    DATA.write_text("".join(json.dumps(row) + "\n" for row in rows))
