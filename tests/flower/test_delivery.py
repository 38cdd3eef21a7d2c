"""Policies at the agents, and for readers: what is delivered, what stays, and what a reader's key cannot do."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import jax
import numpy as np
import pytest

import fedpg
from fedpg import UserError
from fedpg.cli import main
from fedpg.flower.agent import Agent, AgentSettings
from fedpg.flower.delivery import RECEIPT, Delivery, PolicyServer, fetch
from fedpg.flower.keys import agent_keys, flower_key, make_keys
from fedpg.flower.processes import free_port
from fedpg.flower.server_app import train_remotely
from fedpg.runs import policy as files
from fedpg.runs.config import Config
from helpers.agents import Direct, shared_program
from helpers.policies import ROOM, written
from helpers.real import federation

SMALL = Config(env="random-mdp", algorithm="pavg", agents=2, rounds=2, local_steps=1, horizon=4, eval_every=1)


def receipts(folder: Path, agents: int) -> list[dict]:
    return [json.loads((folder / f"home-{i}" / RECEIPT).read_text()) for i in range(agents)]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="open"),
        pytest.param({"clip": 1.0, "noise": 1.0}, id="withheld"),
        pytest.param({"algorithm": "local-only"}, id="personal", marks=pytest.mark.slow),
    ],
)
def test_every_agent_has_the_final_policy_and_its_returns(more, tmp_path):
    config = Config(**vars(SMALL) | more)
    agents = {}
    for i in range(2):
        settings = AgentSettings(i, config.env)
        agents[i] = Agent(settings, tmp_path / f"agent-{i}", make_program=shared_program, delivery=Delivery(tmp_path / f"home-{i}", i))
    link = Direct(agents)
    run = train_remotely(config, tmp_path / "run", lambda terms, note: link)
    for i, receipt in enumerate(receipts(tmp_path, 2)):
        policy = fedpg.load(tmp_path / f"home-{i}")
        assert (receipt["round"], receipt["agent"], policy.spec.round) == (2, i, 2)
        assert receipt["sha256"] == hashlib.sha256((tmp_path / f"home-{i}" / files.FILE).read_bytes()).hexdigest()
        assert policy.predict(3)[0] in range(5)
        if "noise" not in more:
            assert receipt["return_after"] == pytest.approx(run.rows[-1]["return_per_agent"][i], rel=1e-5)
            assert receipt["return_before"] == pytest.approx(run.rows[0]["return_per_agent"][i], rel=1e-5)
    one, other = (fedpg.load(tmp_path / f"home-{i}").params["logits"] for i in range(2))
    assert np.array_equal(one, other) == (config.algorithm != "local-only")
    if not more:
        np.testing.assert_array_equal(fedpg.load(tmp_path / "run").params["logits"], one)
    if "noise" in more:  # its return stays with the agent
        assert [row["return"] for row in run.rows] == [None] * 3
    if "algorithm" in more:  # the server has nobody's policy
        assert not (tmp_path / "run" / "policy").exists()


def test_a_delivered_policy_knows_the_bounds_of_its_agent(tmp_path):
    spaces = {"env": "spaces", "env_option": {"observation": 2, "action": 1}}
    config = Config(**vars(SMALL) | spaces | {"agents": 1, "rounds": 1, "batch": 2})
    agent = Agent(AgentSettings(0, ROOM, env_option={"insulation": 8.0}), tmp_path / "a", delivery=Delivery(tmp_path / "home-0", 0))
    train_remotely(config, tmp_path / "run", lambda terms, note: Direct({0: agent}))
    actions, _ = fedpg.load(tmp_path / "home-0").predict(np.random.default_rng(0).normal(size=(50, 2)))
    assert ((actions >= 0) & (actions <= 1)).all()  # the heater
    assert actions.mean() == pytest.approx(0.5, abs=0.1)  # the policy's 0 is the middle
    assert not (tmp_path / "run" / RECEIPT).exists()


def test_a_readers_key_reads_and_does_nothing_else(tmp_path, capsys):
    keys = tmp_path / "keys"
    make_keys(keys, ("localhost",), 1, readers=1)
    assert oct((keys / "reader-0").stat().st_mode)[-3:] == "600"
    written(tmp_path / "policy", "softmax")
    server = PolicyServer(tmp_path / "policy" / files.FILE, "127.0.0.1", 0, keys)
    try:
        words = ["policy", "--server", server.address, "--key", str(keys / "reader-0"), "--out", str(tmp_path / "mine")]
        assert main(words) == 0
        mine, theirs = fedpg.load(tmp_path / "mine"), fedpg.load(tmp_path / "policy")
        np.testing.assert_array_equal(mine.params["logits"], theirs.params["logits"])
        (keys / "other").write_text("guess\n")
        for key, message in ((keys / "other", "it refuses this key"), (keys / "agent-0", "no policy from"), (keys / "none", "no none in")):
            capsys.readouterr()
            assert main([*words[:4], str(key), *words[5:]]) == 2
            error = capsys.readouterr().err
            assert message in error
            assert error.count("\n") == 1
        context, secret = ssl.create_default_context(cafile=str(keys / "ca.crt")), (keys / "reader-0").read_text().strip()
        wrong = (("/policy", "POST", 405), ("/policy", "DELETE", 405), ("/", "GET", 404), ("/../keys/server.key", "GET", 404))
        for path, method, code in wrong:
            asked = urllib.request.Request(f"https://{server.address}{path}", method=method, headers={"Authorization": f"Bearer {secret}"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, context=context)
            assert refused.value.code == code
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"https://{server.address}/policy", context=context)  # no key
        (tmp_path / "policy" / files.FILE).unlink()
        with pytest.raises(UserError, match="has no policy yet"):
            fetch(server.address, tmp_path / "mine", keys / "reader-0", keys / "ca.crt")
        (tmp_path / "policy" / files.FILE).write_bytes(b"something else")
        with pytest.raises(UserError, match="is damaged"):
            fetch(server.address, tmp_path / "mine", keys / "reader-0", keys / "ca.crt")
        assert fedpg.load(tmp_path / "mine").spec == mine.spec
    finally:
        server.stop()
    # It is no agent's key: not among those that may join, and in no format that Flower reads.
    assert list(agent_keys(keys)) == [0]
    with pytest.raises(UserError, match="no public key"):
        flower_key(keys / "reader-0.pub")
    with pytest.raises(UserError, match="no policy from"):
        fetch(server.address, tmp_path / "mine", keys / "reader-0", keys / "ca.crt")
    with pytest.raises(UserError, match=r"no reader-I.pub"):
        PolicyServer(tmp_path / "policy" / files.FILE, "127.0.0.1", 0, tmp_path)


@pytest.mark.federation
def test_three_processes_with_an_environment_of_ones_own_end_with_a_policy_at_each(tmp_path):
    """One agent is killed and comes back; a reader fetches the policy while the federation goes on."""
    spaces = {"env": "spaces", "env_option": {"observation": 2, "action": 1}}
    address = f"127.0.0.1:{free_port()}"
    flags = ("--policy", address, "--quorum", "3")  # the round in which an agent is away is repeated until it is back
    with federation(tmp_path, flags, **spaces, algorithm="pavg", rounds=12, eval_every=1, horizon=24) as real:
        real.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        real.serve()

        def join(agent: int) -> None:
            real.join(agent, "--env-option", f"insulation={8.0 + 8.0 * agent}", "--deliver", str(tmp_path / f"home-{agent}"), env=ROOM)

        for agent in range(3):
            join(agent)
        real.wait_until(lambda: real.round() >= 2)
        real.kill("join-1")
        join(1)
        fetched = fetch(address, tmp_path / "fetched", None, None)
        assert fetched.spec.round >= 1
        real.finish()
        found = receipts(tmp_path, 3)
    assert [receipt["round"] for receipt in found] == [12] * 3
    policies = [fedpg.load(tmp_path / f"home-{i}") for i in range(3)]
    final = fedpg.load(tmp_path / "run")
    for policy in policies:
        assert jax.tree.all(jax.tree.map(np.array_equal, policy.params, final.params))
        assert 0.0 <= float(policy.predict(np.zeros(2))[0][0]) <= 1.0
