"""A federation and the simulator: from the same state, the same state after every round."""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from fedpg import named_arrays
from fedpg.flower.protocol import Answer, Task, unpack
from fedpg.flower.server import Rules, Server
from fedpg.flower.server_app import make_server
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from fedpg.simulate import Simulator, State
from helpers.agents import Direct, agents_of

SINGLE, DOUBLE = 1e-5, 1e-10
SMALL = {"agents": 3, "local_steps": 2, "batch": 2, "horizon": 6, "eval_episodes": 2, "rounds": 10}
WALK = {"name": ["one", "two"], "orders": "/nowhere"}
NAMES = itertools.count()


def rarely(often: tuple[str, ...], rest: tuple[str, ...]) -> list[Any]:
    """For `parametrize`: the rest only in `make test-slow`."""
    return [*often, *(pytest.param(name, marks=pytest.mark.slow) for name in rest)]


def assert_close(actual: Any, expected: Any, rtol: float) -> None:
    """Every vector (params, a direction: all layers together) within `rtol` of its largest entry; whole numbers exactly."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    arrays, largest = named_arrays.flatten(expected), {}
    for name, b in arrays.items():
        largest[vector(name)] = max(largest.get(vector(name), 0.0), np.abs(b).max(initial=0.0))
    for (name, a), b in zip(named_arrays.flatten(actual).items(), arrays.values(), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * largest[vector(name)] if b.dtype.kind == "f" else 0, err_msg=name)


def vector(name: str) -> str:
    """What the array is a part of."""
    return re.split(r"\.inner|\[", name)[0]


class Both(NamedTuple):
    """The two engines after their last round, and the way between the parts of one."""

    whole: Simulator
    parts: Server
    link: Direct
    states: tuple[State, State]

    def assert_same_scores(self) -> None:
        assert_close(self.parts.evaluate(self.states[1])[:2], self.whole.evaluate(self.states[0])[:2], SINGLE)


def round_by_round(rtol: float, rounds: int = 10, **settings: Any) -> Both:
    """Both engines through a run; both go on from the federation's server state, agents from states that they hold themselves."""
    # Poles fall after some twenty steps: before that all rewards are alike, and there is nothing to learn.
    config = resolve(Config(**(SMALL | ({"horizon": 40} if settings["env"] == "cartpole" else {}) | settings)))
    link, whole = Direct(agents_of(config)), build(config)
    parts = make_server(config, f"run-{next(NAMES)}", lambda terms, note: link, Rules(deadline=30.0))
    one, other = (engine.init(jax.random.key(config.seed)) for engine in (whole, parts))
    for _ in range(rounds):
        assert_close(other.rows._replace(agents=()), one.rows._replace(agents=()), rtol)
        one = one._replace(rows=one.rows._replace(server=other.rows.server))
        one, _ = whole.run(one, 1, accumulate=True)
        other, _ = parts.run(other, 1, accumulate=True)
    assert_close(other.rows._replace(agents=()), one.rows._replace(agents=()), rtol)
    assert other.rows.latest.direction_sq > 1e-3, "there was something to compare"
    assert parts.communication(other) == whole.communication(one)
    assert_close(parts.params(other), whole.params(one), rtol)
    assert parts.events.take() == []
    return Both(whole, parts, link, (one, other))


@pytest.mark.parametrize("algorithm", rarely(("fedsvrpg-m", "calm"), ("fast-fedpg", "fedhapg-m", "scaffold")))
def test_tabular(algorithm):
    both = round_by_round(SINGLE, env="random-mdp", algorithm=algorithm)
    if algorithm == "calm":
        both.assert_same_scores()


@pytest.mark.parametrize("algorithm", rarely(("fedhapg-m",), ("fedsvrpg-m", "scaffold")))
@pytest.mark.slow
def test_cartpole_with_observations_on_a_running_scale(algorithm):
    round_by_round(SINGLE, env="cartpole", algorithm=algorithm, normalise_observations="running")


@pytest.mark.parametrize("env", rarely(("random-mdp",), ("cartpole",)))
@pytest.mark.parametrize("algorithm", rarely((), ("scaffold", "fedsvrpg-m", "fedhapg-m")))
def test_double_precision(env, algorithm, float64):
    both = round_by_round(DOUBLE, env=env, algorithm=algorithm, seed=64)
    for _, _, packet, answer in both.link.seen:
        assert all(
            array.dtype != np.float32 for data, kind in ((packet, Task), (answer, Answer)) for array in unpack(data, kind)[1].values()
        )


@pytest.mark.slow
def test_some_agents_chosen_by_what_they_report_with_compressed_messages():
    seen = round_by_round(
        SINGLE, rounds=6, env="random-mdp", algorithm="scaffold", compression="float16",
        agents=4, participation=0.5, selection="power-of-choice", candidates=0.75,
    ).link.seen  # fmt: skip
    kinds = [task.kind for _, task, _, _ in seen]
    assert [kinds.count(kind) for kind in ("report", "update")] == [6 * 3, 6 * 2]
    assert len({agent for agent, task, _, _ in seen if task.kind == "update"}) > 2


def test_environments_in_python():
    host = {"env": "helpers.failing_env:make", "env_option": WALK, "agents": 2, "normalise_observations": "running"}
    round_by_round(SINGLE, rounds=3, algorithm="pavg", **host).assert_same_scores()
