"""One agent: what it keeps on its disk, and what a server may not make it do."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
import tomli_w

from fedpg import named_arrays
from fedpg.flower.agent import RUNS_KEPT, AgentSettings
from fedpg.flower.protocol import FIRST_STATE, Answer, Task, pack, unpack
from fedpg.flower.server_app import to_agents
from fedpg.keys import Purpose
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from helpers.agents import agent_of, prepare
from helpers.hostile import edited

CONFIG = resolve(Config(env="random-mdp", algorithm="scaffold", agents=3, rounds=9, local_steps=2, batch=2, horizon=6))
OWN = AgentSettings(1, "random-mdp")


def shared_of(config: Config) -> dict[str, np.ndarray]:
    prepared = prepare(config)
    return named_arrays.flatten(prepared.algorithm_of({}).init(prepared.problem.init_params(jax.random.key(3)))[0].shared)


SHARED = shared_of(CONFIG)


def task_of(config: Config = CONFIG, kind: str = "update", run: str = "run-0", **fields: Any) -> Task:
    """A task; unless told otherwise, the main exchange of round 0 from the agent's first state."""
    return Task(kind, run, to_agents(config), **({"purpose": int(Purpose.TRAIN), "to_state": 0, "serial": 8} | fields))


def ask(agent, task: Task, arrays: dict[str, np.ndarray] | None = None) -> tuple[Answer, dict[str, np.ndarray]]:
    answer, found = unpack(agent.answer(pack(task, SHARED if arrays is None else arrays)), Answer)
    assert answer.agent == OWN.agent
    return answer, found


def update(agent, from_state: int, to_state: int, **fields: Any) -> tuple[Answer, dict[str, np.ndarray]]:
    """Round `to_state`, from the state before it."""
    states = {"from_state": from_state, "keep_state": from_state, "to_state": to_state, "round": to_state}
    answer, arrays = ask(agent, task_of(**(states | fields)))
    assert answer.error == ""
    return answer, arrays


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def assert_refused(agent, task: Task, what: str, arrays: dict[str, np.ndarray] | None = None) -> None:
    answer, sent = ask(agent, task, arrays)
    assert what in answer.error
    assert sent == {}


def states(folder: Path, run: str = "run-0") -> list[str]:
    return sorted(path.stem for path in (folder / run).iterdir())


@pytest.fixture
def grown(tmp_path):
    """A agent after two rounds."""
    agent = agent_of(OWN, tmp_path)
    update(agent, FIRST_STATE, 0)
    update(agent, 0, 1)
    return agent


def test_a_new_process_on_the_same_folder_goes_on_bit_for_bit(grown, tmp_path):
    shutil.copytree(tmp_path, tmp_path.parent / "copy", dirs_exist_ok=True)
    answer, arrays = update(grown, 1, 2)
    assert not answer.fresh
    again, same = update(agent_of(OWN, tmp_path.parent / "copy"), 1, 2)
    assert not again.fresh
    assert_same(same, arrays)
    _, other = ask(agent_of(OWN, tmp_path / "empty"), task_of(from_state=FIRST_STATE, to_state=2, round=2))
    assert any(not np.array_equal(other[name], arrays[name]) for name in arrays if "message" in name), "its state mattered"


def test_a_round_that_did_not_count_is_done_again_from_the_state_before(grown):
    _, first = update(grown, 1, 2)
    _, second = update(grown, 1, 2)
    assert_same(first, second)
    update(grown, 1, 3)  # the server left it out of round 2
    _, later = update(grown, 1, 2)
    assert_same(first, later)


def test_states_that_nobody_can_ask_for_are_removed(grown, tmp_path):
    assert states(tmp_path) == ["0", "1"]
    update(grown, 1, 2)
    assert states(tmp_path) == ["1", "2"]
    update(grown, 2, 3, keep_state=1)
    assert states(tmp_path) == ["1", "2", "3"], "the checkpoint's, the one before, the one after"


def test_a_task_that_is_done_late_does_not_undo_what_came_after_it(grown, tmp_path):
    update(grown, 1, 3)
    update(grown, 1, 2)  # its answer had been given up before it began
    answer, _ = update(grown, 3, 4)
    assert not answer.fresh


def test_without_its_state_it_begins_anew_and_says_so(grown, tmp_path):
    _, begun = ask(agent_of(OWN, tmp_path / "other"), task_of(from_state=FIRST_STATE, to_state=2, round=2))
    shutil.rmtree(tmp_path / "run-0")
    answer, arrays = update(grown, 1, 2)
    assert answer.fresh
    assert_same(arrays, begun)
    assert not update(grown, 2, 3)[0].fresh


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"", lambda data: data[:-8] + b"\xff" * 8])
def test_a_damaged_state_counts_as_none(grown, tmp_path, damage):
    path = tmp_path / "run-0" / "1.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert update(grown, 1, 2)[0].fresh


def test_only_the_latest_runs_are_kept(tmp_path):
    agent = agent_of(OWN, tmp_path)
    for i in range(RUNS_KEPT + 2):
        update(agent, FIRST_STATE, 0, run=f"run-{i}")
        os.utime(tmp_path / f"run-{i}", (i, i))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"run-{i}" for i in range(2, RUNS_KEPT + 2)]
    update(agent, 0, 1, run="run-2")
    assert (tmp_path / "run-2").is_dir(), "the run that is asked for is not thrown away, however old"


@pytest.mark.parametrize("run", ["../../x", "/tmp/x", "..", ".", "", "a/b", "A", "x" * 65, "x\n", "ä", "x\0"])
def test_a_run_cannot_be_named_like_another_file(run, tmp_path):
    agent = agent_of(OWN, tmp_path / "own")
    assert_refused(agent, task_of(run=run), "invalid run name")
    assert list(tmp_path.rglob("*")) == []


def test_what_a_server_may_not_ask(tmp_path):
    agent = agent_of(OWN, tmp_path)
    broken = edited(pack(task_of(), SHARED), lambda header: header.update(kind="obey"))
    assert "Invalid enum value 'obey' - at `$.kind`" in unpack(agent.answer(broken), Answer)[0].error
    assert_refused(agent, task_of(purpose=int(Purpose.EVALUATE)), "an exchange that this algorithm does not have")
    assert_refused(agent, task_of(number=1), "an exchange that this algorithm does not have")
    assert_refused(agent, task_of(purpose=77), "an exchange that this algorithm does not have")
    assert_refused(agent, task_of(kind="report"), "this agent does not report", {"['logits']": SHARED["params['logits']"]})
    assert_refused(agent, task_of(), "do not fit this run: params['logits'], variate['logits'] on one side only", {})
    bad = SHARED | {"params['logits']": SHARED["params['logits']"] * np.nan}
    assert_refused(agent, task_of(), "params['logits'] is not finite", bad)
    few = dataclasses.replace(CONFIG, agents=1)
    assert_refused(agent, task_of(few), "there is no agent 1 in a federation of 1")
    for text in ("algorithm = 3", "no toml", "password = 'x'", "rounds = -1", "algorithm = 'pooled'"):
        assert ask(agent, msgspec.structs.replace(task_of(), config=text))[0].error
    for data in (b"", b"x" * 100, edited(pack(task_of(), {}), lambda header: {}), pack(task_of(), {})[:-2]):
        assert unpack(agent.answer(data), Answer)[0].error
    for seconds in (-5.0, 1e300):
        assert ask(agent, task_of(seconds=seconds))[0].serial == 8
    assert ask(agent, task_of())[0].error == "", "and it lives on"


def test_the_server_says_nothing_about_the_environment(tmp_path):
    """Whatever its configuration names, nothing is imported, and the agent's own environment is used."""
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    asked = {
        "env": "antigravity:fly", "env-option": {"x": f"{tmp_path}/evil.py:make"}, "heterogeneity": 7.0,
        "engine": "flower", "attack": "reward-flip", "attackers": 1.0,
    }  # fmt: skip
    plain = task_of()
    sent = tomllib.loads(plain.config)
    assert not set(sent) & (set(asked) - {"attack", "attackers"})
    secret = tomllib.loads(to_agents(dataclasses.replace(CONFIG, env_option={"secret": "x"}, track=("wandb",))))
    assert secret == sent, "what the server's environment is made of is not sent"
    agent = agent_of(OWN, tmp_path / "own")
    _, expected = ask(agent, plain)
    answer, arrays = ask(agent, msgspec.structs.replace(plain, config=tomli_w.dumps(sent | asked)))
    assert answer.error == ""
    assert_same(arrays, expected)
    for env in (f"{tmp_path}/evil.py:make", "antigravity:fly", "gym:Anything-v0"):
        assert_same(ask(agent, msgspec.structs.replace(plain, config=tomli_w.dumps(sent | {"env": env})))[1], expected)
    assert "antigravity" not in sys.modules


def test_one_that_withholds_tells_neither_costs_nor_scores(tmp_path):
    said: list = []
    open_agent, closed = (agent_of(dataclasses.replace(OWN, withhold=w), tmp_path / str(w), said.append) for w in (False, True))
    (_, told), (_, kept) = update(open_agent, FIRST_STATE, 0), update(closed, FIRST_STATE, 0)
    for name, array in told.items():
        if name.startswith("message"):
            assert np.array_equal(array, kept[name])
        else:
            assert not kept[name].any()
    assert told["info.usage.env_steps"] > 0
    scores = task_of(kind="evaluate", from_state=0)
    assert set(ask(open_agent, scores)[1]) == {"total_return", "objective"}
    said.clear()
    answer, arrays = ask(closed, scores)
    assert (answer.withheld, answer.error, arrays) == (True, "", {})
    assert "return " in said[-1], "people at the agent learn it"


def test_one_that_plays_an_attacker_lies_in_its_messages(tmp_path):
    def sent(attack):
        return update(agent_of(dataclasses.replace(OWN, attack=attack), tmp_path / attack), FIRST_STATE, 0)[1]

    honest = {name: array for name, array in sent("none").items() if name.startswith("message")}
    for attack, factor in (("sign-flip", -2.5), ("zero", 0.0)):
        lied = sent(attack)
        for name, array in honest.items():
            np.testing.assert_allclose(lied[name], factor * array, rtol=1e-6)
    one, other = sent("noise"), sent("noise")
    assert all(not np.array_equal(one[name], other[name]) for name in honest), "its dice are its own"
