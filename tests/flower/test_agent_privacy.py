"""What an agent gives away: its own noise for every message, an account of all of them, a budget that no server can talk it out of."""

from __future__ import annotations

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedpg import named_arrays
from fedpg.flower.agent import AgentSettings
from fedpg.flower.protocol import FIRST_STATE, Answer, Task, pack, unpack
from fedpg.flower.server_app import to_agents
from fedpg.keys import Purpose
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from helpers.agents import agent_of, prepare

NOISE, DELTA = 2.0, 1e-6
SMALL = {"env": "random-mdp", "algorithm": "pavg", "agents": 2, "rounds": 9, "local_steps": 2, "batch": 2, "horizon": 6}
CONFIG = resolve(Config(**SMALL, clip=1.0, noise=NOISE, privacy_delta=DELTA))
LOUDER = dataclasses.replace(CONFIG, noise=5.0)
OPEN = resolve(Config(**SMALL))
MESSAGE = "message['logits']"


def ask(agent, config=CONFIG, kind="update", run="run-0", **fields):
    asked = prepare(config)
    shared = asked.algorithm_of({}).init(asked.problem.init_params(jax.random.key(0)))[0].shared
    task = Task(kind, run, to_agents(config), purpose=int(Purpose.TRAIN), **({"from_state": FIRST_STATE, "to_state": 0} | fields))
    return unpack(agent.answer(pack(task, named_arrays.flatten(shared))), Answer)


def epsilon(mu: float, delta: float) -> float:
    """Of Gaussian noise, solved from the formula of Balle and Wang as it is printed."""

    def excess(e: float) -> float:
        return norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2) - delta

    return brentq(excess, 0.0, 60.0, xtol=1e-12)


def test_asked_twice_from_one_state_it_answers_with_other_noise(tmp_path):
    """The difference is that of two draws of the noise: standard deviation noise * clip * sqrt(2) in every entry."""
    agent = agent_of(AgentSettings(0, "random-mdp"), tmp_path)
    messages = [ask(agent)[1][MESSAGE] for _ in range(40)]
    differences = np.diff(messages, axis=0)[::2]
    assert np.abs(differences).min(axis=(1, 2)).min() > 0
    assert differences.std() == pytest.approx(NOISE * math.sqrt(2), rel=0.15)  # 500 numbers: 3 % is one standard error
    other = ask(agent_of(AgentSettings(0, "random-mdp"), tmp_path / "restarted"))[1][MESSAGE]
    assert np.abs(other - messages[0]).min() > 0, "a new process has new dice"
    plain = agent_of(AgentSettings(0, "random-mdp"), tmp_path / "plain")
    assert np.array_equal(ask(plain, OPEN)[1][MESSAGE], ask(plain, OPEN)[1][MESSAGE]), "it is the noise that differs"


def test_every_message_is_on_the_ledger_whatever_the_run(tmp_path):
    told = []
    for i, (config, run) in enumerate([(CONFIG, "run-0"), (CONFIG, "run-0"), (LOUDER, "run-1"), (CONFIG, "run-2")]):
        agent = agent_of(AgentSettings(0, "random-mdp"), tmp_path, told.append)  # each in a process of its own
        assert ask(agent, config, run=run)[0].error == "", i
    spent = json.loads((tmp_path / "ledger.json").read_text())["mu_squared"]
    assert spent == pytest.approx(3 * (2 / 2.0) ** 2 + (2 / 5.0) ** 2)
    accounts = [line for line in told if "epsilon" in line]
    expected = [epsilon(mu, DELTA) for mu in (1.0, math.sqrt(2), math.sqrt(2.16), math.sqrt(3.16))]
    assert accounts == [f"with this message epsilon is {e:.3g} at delta 1e-06" for e in expected]


def test_evaluations_and_reports_of_a_private_run_are_withheld_and_cost_nothing(tmp_path):
    agent = agent_of(AgentSettings(0, "random-mdp"), tmp_path)
    for kind in ("evaluate", "hello"):
        answer, arrays = ask(agent, kind=kind)
        assert (answer.error, answer.withheld, arrays) == ("", kind == "evaluate", {})
    _, arrays = ask(agent)
    assert not any(array.any() for name, array in arrays.items() if not name.startswith("message"))
    assert json.loads((tmp_path / "ledger.json").read_text())["mu_squared"] == pytest.approx(1.0)


def test_the_budget_ends_it_also_in_another_run_and_after_a_restart(tmp_path):
    limit = epsilon(math.sqrt(3), DELTA) * 1.001
    for run in ("run-0", "run-1", "run-2"):
        assert ask(agent_of(AgentSettings(0, "random-mdp", most_epsilon=limit), tmp_path), run=run)[0].error == ""
    for config in (CONFIG, CONFIG, LOUDER):
        answer, arrays = ask(agent_of(AgentSettings(0, "random-mdp", most_epsilon=limit), tmp_path), config, run="run-3")
        assert answer.error == f"its privacy budget of epsilon {limit} is spent"
        assert arrays == {}
    assert json.loads((tmp_path / "ledger.json").read_text())["mu_squared"] == pytest.approx(3.0), "what did not leave is not counted"
    assert ask(agent_of(AgentSettings(0, "random-mdp"), tmp_path))[0].error == "", "the owner may raise it"


def test_a_server_cannot_make_the_budget_meaningless(tmp_path):
    """With no noise, with a delta at which everything is private, with noise too small to matter."""
    agent = agent_of(AgentSettings(0, "random-mdp", most_epsilon=1.0), tmp_path)
    assert "without it no message keeps within" in ask(agent, OPEN)[0].error
    assert "without it no message keeps within" in ask(agent, OPEN, "evaluate")[0].error
    assert "is spent" in ask(agent, dataclasses.replace(CONFIG, privacy_delta=0.9))[0].error
    assert "is spent" in ask(agent, dataclasses.replace(CONFIG, noise=1e-3))[0].error
    assert not (tmp_path / "ledger.json").exists()
    assert ask(agent, dataclasses.replace(CONFIG, noise=20.0))[0].error == ""


def test_the_least_noise(tmp_path):
    agent = agent_of(AgentSettings(0, "random-mdp", least_noise=3.0), tmp_path)
    for config in (OPEN, CONFIG):
        for kind in ("hello", "update", "evaluate"):
            assert f"asks for noise {config.noise}, this agent for at least 3.0" in ask(agent, config, kind)[0].error
    assert ask(agent, LOUDER)[0].error == ""


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mu_squared": "x"}', '{"mu_squared": NaN}', '{"mu_squared": -1}'])
def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path, text):
    (tmp_path / "ledger.json").write_text(text)
    answer, arrays = ask(agent_of(AgentSettings(0, "random-mdp"), tmp_path))
    assert answer.error == "the ledger of this agent's privacy loss is damaged: restore it from a copy"
    assert arrays == {}
    assert (tmp_path / "ledger.json").read_text() == text
