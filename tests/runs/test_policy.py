"""Trained policies: the same actions as in training, with NumPy alone; damaged, foreign and missing files in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

import fedpg
from fedpg import UserError, trees
from fedpg.runs import checkpoint, policy_files
from fedpg.runs import policy as files
from helpers.policies import CASES, observations, written

OWN_POLICY = """
import jax.numpy as jnp
from fedpg import policies

def linear(environment):
    def log_probs(params, observation):
        logits = params["matrix"] @ observation
        return logits - jnp.log(jnp.sum(jnp.exp(logits)))
    return policies.custom(
        lambda key: {"matrix": jnp.ones((2, 4))},
        lambda key, params, observation: jnp.zeros((), int),
        lambda params, observation, action: log_probs(params, observation)[action],
    )
"""


@pytest.mark.parametrize("case", CASES)
def test_actions_are_those_of_training(case, tmp_path):
    """Most likely actions, and with the same noise random ones, equal those of the policy that the compiled program calls."""
    problem, params = written(tmp_path, case)
    policy, own, seen = fedpg.load(tmp_path), problem.policy, observations(problem)
    params = trees.take(params, 0)
    mode = policy_files.mode(own, problem.environment.action_space)
    expected = np.asarray(jax.vmap(mode.act, (None, None, 0))(None, params, jnp.asarray(seen)))
    noise = own.draw(jax.random.key(3), len(seen))
    random = np.asarray(jax.vmap(own.act, (0, None, 0))(noise, params, jnp.asarray(seen)))
    host = getattr(problem.environment, "host", None)
    if host is not None:  # the room's heater takes 0 to 1
        expected, random = (host.actions.rows(np.zeros(len(seen), int)).to_environment(actions) for actions in (expected, random))
    found, state = policy.predict(seen)
    assert state is None
    assert found.dtype == expected.dtype or found.dtype == np.int64
    np.testing.assert_allclose(found, expected, atol=1e-5)
    raw = policy.act(np.asarray(noise), policy._batch(seen)[0])
    same = np.abs(policy._answer(raw, False) - random).reshape(len(seen), -1).max(1) < 1e-5
    assert same.mean() > 0.998  # a uniform number may fall within a rounding error of the boundary between two actions
    one, _ = policy.predict(seen[0])
    np.testing.assert_array_equal(one, found[0])
    assert one.shape == found.shape[1:]


def test_samples_follow_the_distribution_and_their_key(tmp_path):
    problem, params = written(tmp_path / "c", "categorical")
    policy, state = fedpg.load(tmp_path / "c"), observations(problem, 1)[0]
    drawn = policy.sample(np.repeat(state[None], 4000, 0), 7)
    logits = problem.policy.outputs(trees.take(params, 0), jnp.asarray(state))
    assert np.mean(drawn) == pytest.approx(float(jax.nn.softmax(logits)[1]), abs=0.03)
    assert np.array_equal(drawn, policy.sample(np.repeat(state[None], 4000, 0), 7))
    assert policy.sample(state, jax.random.key(3)) == policy.sample(state, jax.random.key(3))
    assert policy.sample(state, np.random.default_rng(0)).shape == ()
    problem, _ = written(tmp_path / "g", "gaussian")
    policy, seen = fedpg.load(tmp_path / "g"), observations(problem, 50)
    random = np.stack([policy.predict(seen, deterministic=False)[0] for _ in range(20)])
    assert random.std(0).max() > 0
    assert ((random >= 0) & (random <= 1)).all()  # the heater's bounds


def test_seed_and_agent_are_chosen(tmp_path):
    _, params = written(tmp_path, "softmax", seeds=4, personal=True, returns=[1.0, 3.0, None, 2.0])
    assert fedpg.load(tmp_path, agent=0).spec.seeds == (1,)
    chosen = fedpg.load(tmp_path, seed=3, agent=1)
    np.testing.assert_array_equal(chosen.params["logits"], params["logits"][3, 1])
    assert (chosen.spec.returns, chosen.spec.agent) == ((2.0,), 1)
    for wrong, message in (({}, "every agent .* has its own policy"), ({"seed": 4, "agent": 0}, "no seed 4"), ({"agent": 2}, "no agent 2")):
        with pytest.raises(UserError, match=message):
            fedpg.load(tmp_path, **wrong)


def test_a_run_writes_its_policy_and_resume_restores_a_missing_one(tmp_path):
    small = {"env": "cartpole", "algorithm": "pavg", "agents": 2, "rounds": 2, "local_steps": 1, "horizon": 8, "seeds": 3, "eval_every": 1}
    run = fedpg.train(**small, out=tmp_path / "run", eval_episodes=4)
    policy = fedpg.load(run.folder)
    assert policy.spec.round == 2
    assert policy.spec.returns[0] == max(run.rows[-1]["return_per_seed"])
    assert json.loads((run.folder / "policy" / "policy.json").read_text())["config"]["env"] == "cartpole"
    before = files.read(run.folder)
    (run.folder / "policy" / files.FILE).unlink()
    (run.folder / "policy" / files.SPEC).unlink()
    (run.folder / "policy").rmdir()
    with pytest.raises(UserError, match="has no policy yet: fedpg train --resume"):
        fedpg.load(run.folder)
    fedpg.train(out=run.folder, resume=True)
    after = files.read(run.folder)
    assert after.spec == before.spec
    assert all(np.array_equal(after.arrays[name], array) for name, array in before.arrays.items())


@pytest.mark.parametrize("case", ["categorical, scaled", "gaussian", "direct"])
def test_no_jax_is_needed(case, tmp_path):
    problem, _ = written(tmp_path, case)
    np.save(tmp_path / "seen.npy", observations(problem, 50))
    program = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "import numpy as np, fedpg\n"
        f"policy = fedpg.load({str(tmp_path)!r}); seen = np.load({str(tmp_path / 'seen.npy')!r})\n"
        f"np.save({str(tmp_path / 'actions.npy')!r}, policy.predict(seen)[0]); policy.sample(seen, 3)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), fedpg.load(tmp_path).predict(np.load(tmp_path / "seen.npy"))[0])


def test_a_policy_of_the_users_own_acts_too(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_POLICY)
    problem, params = written(tmp_path / "run", "categorical, scaled", policy=f"{tmp_path / 'mine.py'}:linear")
    policy, seen = fedpg.load(tmp_path / "run"), observations(problem, 100)
    inner, scale = trees.take(params, 0)
    scaled = np.clip((seen - scale.mean) / scale.deviation, -10, 10)
    np.testing.assert_array_equal(policy.predict(seen)[0], (scaled @ inner["matrix"].T).argmax(1))
    assert set(np.unique(policy.sample(seen, 0))) == {0}


def test_observations_that_do_not_fit_are_refused(tmp_path):
    written(tmp_path / "a", "categorical")
    written(tmp_path / "b", "softmax")
    for folder, observation, message in (
        ("a", np.zeros(3), r"shape \[4\].*not \[3\]"),
        ("a", "left", "must be numbers, not a str"),
        ("b", 9, "one of 0 to 4"),
        ("b", 0.5, "one of 0 to 4"),
    ):
        with pytest.raises(UserError, match=message):
            fedpg.load(tmp_path / folder).predict(observation)


def test_damaged_foreign_and_half_written_files_are_one_line(tmp_path):
    written(tmp_path / "good", "softmax")
    good = (tmp_path / "good" / files.FILE).read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    for name, content in (("cut", good[:-20]), ("changed", good[:-20] + bytes(20)), ("nothing", b""), ("text", b"no policy")):
        (tmp_path / name).mkdir()
        (tmp_path / name / files.FILE).write_bytes(content)
    (tmp_path / "foreign").mkdir()
    save_file({"weights": np.zeros(3)}, tmp_path / "foreign" / files.FILE)
    spec = files.read(tmp_path / "good").spec
    files.write(tmp_path / "wrong arrays", spec, {"weights": np.zeros((1, 3))})
    for name, message in (
        ("missing", "no run and no policy"),
        ("empty", "neither a run folder nor an exported policy"),
        ("run", "has no policy yet"),
        *((name, "is damaged") for name in ("cut", "changed", "nothing", "text", "foreign")),
        ("wrong arrays", r"weights has shape \[1, 3\]|do not make a softmax policy"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            fedpg.load(tmp_path / name)
        assert "\n" not in str(caught.value)


BOX = {"kind": "box", "shape": [1], "dtype": "float32"}
UNSOUND_SPECS = {
    "no configuration": ({"config": {}}, "no number of agents"),
    "agents of another type": ({"config": {"agents": "two"}}, "no number of agents"),
    "too many agents": ({"config": {"agents": 10**12}}, "no number of agents"),
    "no seeds": ({"seeds": []}, "length >= 1 - at `\\$.seeds`"),
    "seeds without returns": ({"seeds": [0, 1]}, "seeds, returns and axes"),
    "more seeds than arrays": ({"seeds": [0, 1], "returns": [1.0, 2.0]}, "not \\[2\\] and more"),
    "a negative seed": ({"seeds": [-1]}, ">= 0"),
    "several seeds on no axis": ({"seeds": [0, 1], "returns": [1.0, 2.0], "axes": []}, "several seeds"),
    "unknown axes": ({"axes": ["time"]}, "axes do not fit"),
    "an axis that is not there": ({"axes": ["seed", "agent"], "personal": True}, "not \\[1, 2\\] and more"),
    "a policy of nobody": ({"personal": True}, "whose policy"),
    "no observation": ({"observation": []}, "length >= 1"),
    "an unknown kind of space": ({"observation": [{"kind": "sphere"}]}, "Invalid enum value 'sphere'"),
    "no choices": ({"action": [{"kind": "discrete", "n": 0}]}, "cannot be"),
    "a first choice beyond all numbers": ({"action": [{"kind": "discrete", "n": 2, "start": 10**30}]}, "<= 2147483648"),
    "a policy with a line break": ({"policy": "two\nlines"}, "do not make a two lines policy"),
    "a negative shape": ({"observation": [BOX | {"shape": [-4]}]}, ">= 0"),
    "a huge shape": ({"observation": [BOX | {"shape": [2**31]}]}, "where \\[2147483648, 8\\] fits"),
    "no type of numbers": ({"action": [{"kind": "discrete", "n": 2, "dtype": "nonsense"}]}, "cannot be"),
    "a type of no numbers": ({"action": [{"kind": "discrete", "n": 2, "dtype": "object"}]}, "cannot be"),
    "too many bounds": ({"action": [BOX | {"low": [0.0, 1.0]}]}, "cannot be"),
    "bounds in the wrong order": ({"action": [BOX | {"low": [1.0], "high": [0.0]}]}, "cannot be"),
    "actions of another kind": ({"action": [BOX]}, "do not make a categorical policy"),
    "three spaces for two agents": ({"action": 3 * [{"kind": "discrete", "n": 2}]}, "one space for each of 2 agents"),
    "an unknown policy": ({"policy": "transformer"}, "do not make a transformer policy"),
    "a scale that is not there": ({"scaled": True}, "do not make a categorical policy"),
    "returns of another type": ({"returns": ["good"]}, "Expected `float | null`"),
}
UNSOUND_ARRAYS = {
    "NaN": ({"layers.0.matrix": np.full((1, 4, 8), np.nan, np.float32)}, "not finite"),
    "infinity": ({"layers.0.bias": np.full((1, 8), np.inf, np.float32)}, "not finite"),
    "whole numbers": ({"layers.0.bias": np.zeros((1, 8), int)}, "holds int64, not floating-point"),
    "truth values": ({"layers.0.bias": np.zeros((1, 8), bool)}, "holds bool, not floating-point"),
    "other observations": ({"layers.0.matrix": np.zeros((1, 7, 8), np.float32)}, "where \\[4, 8\\] fits"),
    "layers that do not fit": ({"layers.0.bias": np.zeros((1, 3), np.float32)}, "where \\[4, 3\\] fits"),
    "other actions": ({"layers.2.matrix": np.zeros((1, 8, 5), np.float32)}, "where \\[8, 2\\] fits"),
    "too many axes": ({"layers.0.bias": np.zeros((1, 1, 8), np.float32)}, "do not make a categorical policy"),
    "too few axes": ({"layers.0.bias": np.zeros((), np.float32)}, "has shape \\[\\], not \\[1\\]"),
    "one array too many": ({"more": np.zeros((1, 2), np.float32)}, "do not make a categorical policy"),
    "one array too few": ({"layers.1.bias": None}, "do not make a categorical policy"),
}


@pytest.mark.parametrize("name", [*UNSOUND_SPECS, *UNSOUND_ARRAYS])
def test_a_whole_file_that_makes_no_policy_is_one_line(name, tmp_path):
    """Its digest is right: it was not damaged on its way, but written by something else."""
    written(tmp_path, "categorical")
    good = files.read(tmp_path)
    changes, message = UNSOUND_SPECS.get(name, ({}, ""))
    other, message = UNSOUND_ARRAYS.get(name, ({}, message))
    arrays = {key: array for key, array in (good.arrays | other).items() if array is not None}
    checkpoint.write(tmp_path / files.FILE, arrays, msgspec.to_builtins(good.spec) | changes)
    with pytest.raises(UserError, match=message) as caught:
        fedpg.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_scale_of_observations_must_be_positive(tmp_path):
    written(tmp_path, "gaussian, scaled")
    good = files.read(tmp_path)
    for name, value, message in (("observation.deviation", 0.0, "is not positive"), ("observation.mean", None, "do not make a gaussian")):
        arrays = {key: array for key, array in good.arrays.items() if key != name}
        arrays |= {} if value is None else {name: np.full_like(good.arrays[name], value)}
        files.write(tmp_path, good.spec, arrays)
        with pytest.raises(UserError, match=message):
            fedpg.load(tmp_path)
