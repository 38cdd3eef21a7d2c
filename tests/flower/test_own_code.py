"""Algorithms and policies from files of the user's own: server and agents each run their own copy, and no server chooses a file."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from fedpg.flower.agent import Agent, AgentSettings
from fedpg.flower.protocol import Answer, Task, pack, unpack
from fedpg.flower.server_app import to_agents, train_remotely
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from helpers.agents import Direct, agents_of
from helpers.real import federation
from helpers.rounds import SERVER, error, part, saved, simulated
from helpers.runs import final_arrays

CODE = """
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, RoundInfo, ServerState
from fedpg.policies.tabular import softmax

Path(__file__).with_suffix(".loaded").touch()


class Shared(NamedTuple):
    params: Any


def sign_averaging(problem, *, local_lr: Any, local_steps: int = 1, pull: float = 0.5) -> Algorithm:
    def init(params):
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key, shared, memory, agent):
        def local_step(carry, key):
            params, memory = carry
            g, memory, info = base.sample_gradient(problem, key, params, agent, memory)
            return (base.ascend(problem, params, local_lr, g), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return jax.tree.map(jnp.sign, trees.subtract(params, shared.params)), memory, base.total(infos)

    def aggregate(state, signs, present):
        u = base.mean(signs, present)
        params = base.ascend(problem, state.shared.params, pull * local_lr, u)
        return ServerState(Shared(params)), RoundInfo(trees.norm_sq(u), jnp.zeros(()))

    return Algorithm("sign-averaging", init, local_update, aggregate)


def policy(environment):
    return softmax(environment)
"""
SMALL = {"env": "random-mdp", "agents": 2, "rounds": 3, "local_steps": 2, "batch": 2, "horizon": 6, "local_lr": 0.1, "eval_every": 3}


def copy_in(folder: Path) -> Path:
    """A copy of the user's file in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(CODE)
    return folder / "mine.py"


def was_loaded(file: Path) -> bool:
    return file.with_suffix(".loaded").exists()


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    return {name: copy_in(tmp_path / name) for name in ("server", "agent")}


def config_of(files, **more) -> Config:
    own = {"algorithm": f"{files['server']}:sign_averaging", "policy": f"{files['server']}:policy", "algorithm_option": {"pull": 0.7}}
    return Config(**SMALL | own | more)


def test_a_federation_with_an_own_algorithm_and_policy_does_what_the_simulator_does(files, tmp_path):
    config, own = config_of(files), f"{files['agent']}"
    agents = agents_of(config, tmp_path / "states", algorithm=f"{own}:sign_averaging", policy=f"{own}:policy")
    run = train_remotely(config, tmp_path / "run", lambda terms, note: Direct(agents))
    assert run.round == 3
    engine = build(resolve(config))
    state, _ = engine.run(engine.init(jax.random.key(0)), 3)
    found = final_arrays(tmp_path / "run")
    np.testing.assert_allclose(found["state.server.shared.params['logits']"], state.rows.server.shared.params["logits"], atol=1e-5)
    assert np.ptp(np.asarray(state.rows.server.shared.params["logits"])) > 0.1, "it has learned something"
    assert was_loaded(files["agent"])


def hello(settings: AgentSettings, config: Config, folder: Path) -> str:
    """The agent's refusal of a run; empty if it accepts."""
    told = []
    data = Agent(settings, folder, told.append).answer(pack(Task("hello", "run-0", to_agents(config)), {}))
    answer, _ = unpack(data, Answer)
    assert bool(told) == bool(answer.error), "people at the agent hear of it too"
    return answer.error


def test_the_server_never_chooses_which_file_runs_at_an_agent(files, tmp_path):
    config = dataclasses.replace(resolve(config_of(files)), policy="auto")
    file = files["server"].with_suffix(".loaded")
    file.unlink()
    assert str(tmp_path) not in to_agents(config), "not even its path is sent"
    for text in (to_agents(config), to_agents(config).replace("mine.py:sign_averaging", f"{files['server']}:sign_averaging")):
        line = unpack(Agent(AgentSettings(0, "random-mdp"), tmp_path / "states").answer(pack(Task("hello", "run-0", text), {})), Answer)[
            0
        ].error
        assert line.startswith("the server runs its own algorithm ")
        assert line.endswith("give fedpg join --algorithm FILE.py:FUNCTION, your copy")
        assert "\n" not in line
    assert not file.exists(), "nothing was imported"
    own = AgentSettings(0, "random-mdp", algorithm=f"{files['agent']}:sign_averaging")
    assert hello(own, config, tmp_path / "states") == ""
    assert not file.exists()
    assert was_loaded(files["agent"])


def test_mismatches_are_refused_in_one_line(files, tmp_path):
    mine = f"{files['agent']}:sign_averaging"
    built_in = resolve(Config(algorithm="pavg", **SMALL))
    refusal = hello(AgentSettings(0, "random-mdp", algorithm=mine), built_in, tmp_path)
    assert refusal == "the server runs the built-in algorithm pavg: leave out --algorithm"
    own_policy = resolve(Config(algorithm="pavg", **SMALL, policy=f"{files['server']}:policy"))
    assert "give fedpg join --policy FILE.py:FUNCTION, your copy" in hello(AgentSettings(0, "random-mdp"), own_policy, tmp_path)
    assert hello(AgentSettings(0, "random-mdp", policy=f"{files['agent']}:policy"), own_policy, tmp_path) == ""
    gone = dataclasses.replace(AgentSettings(0, "random-mdp"), algorithm=f"{tmp_path}/gone.py:make")
    config = dataclasses.replace(resolve(config_of(files)), policy="auto")
    assert "gone.py" in hello(gone, config, tmp_path)


@pytest.mark.federation
def test_two_agents_in_their_own_processes(files, tmp_path):
    with federation(tmp_path, **dataclasses.asdict(config_of(files))) as real:
        real.serve()
        for agent in range(2):
            own = copy_in(tmp_path / f"copy-{agent}")
            real.join(agent, "--algorithm", f"{own}:sign_averaging", "--policy", f"{own}:policy")
        rows = real.finish()
    assert [row["round"] for row in rows] == [0, 3]
    assert not real.events(0)
    assert not real.events(1)
    round, arrays = saved(real)
    assert round == 3
    assert error(part(arrays, SERVER), part(simulated(real.config)[3], SERVER)) < 1e-5
