"""From a configuration to an engine: presets, options of algorithms, values that make no sense."""

from __future__ import annotations

import dataclasses

import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.wrappers import compression, privacy
from fedpg.cli import main
from fedpg.envs import families
from fedpg.errors import UserError
from fedpg.learners import LEARNERS
from fedpg.runs import config as configs
from fedpg.runs.config import FIELDS, Config
from fedpg.runs.setup import build, known_options, prepare, presets, resolve, resolve_options
from fedpg.simulate_plain import Plain


@pytest.mark.parametrize("env", [*families.NAMES, "gym:CartPole-v1", "my_module:make"])
def test_a_resolved_configuration_is_complete_and_stays_as_it_is(env, tmp_path):
    for algorithm in ALGORITHMS:
        config = resolve(Config(env=env, algorithm=algorithm))
        assert resolve(config) == config
        assert all(getattr(config, name) is not None for name in set(FIELDS) - {"beta", "global_lr", "hidden", "rollout_steps"})
        (tmp_path / "c.toml").write_text(configs.to_toml(config))
        assert resolve(Config(**configs.read(tmp_path / "c.toml"))) == config


def test_every_preset_is_a_field():
    for env, values in presets().items():
        assert env in (*families.NAMES, "any", "python") or env.startswith("gym:")
        assert set(values) <= {configs.flag(name) for name in FIELDS} | set(ALGORITHMS) | set(LEARNERS)
        own = values.get("actor-critic", {})
        assert set(own) <= {configs.flag(name) for name in FIELDS} | set(ALGORITHMS)
        for name in set(own) & set(ALGORITHMS):
            assert set(own[name]) <= {configs.flag(field) for field in FIELDS} | {"server-step"}


def test_sections_of_the_presets_win_over_one_another():
    """[any] < [python] or [ENV] < [ENV.ALGORITHM], and Gymnasium's own time limit is the horizon."""
    assert resolve(Config(env="my_module:make")).normalise_observations == "auto"
    assert resolve(Config(env="my_module:make")).horizon == presets()["any"]["horizon"]
    assert resolve(Config(env="gym:LunarLander-v3")).horizon == 1000
    assert resolve(Config(env="gym:Pendulum-v1")).horizon == 200
    assert resolve(Config(env="gym:Pendulum-v1", horizon=7)).horizon == 7
    assert resolve(Config(env="hopper", algorithm="fedhapg-m")).local_lr == presets()["hopper"]["fedhapg-m"]["local-lr"]


def test_a_preset_may_name_the_policy_that_auto_is():
    asked = {"env": "random-mdp", "algorithm": "pavg-projected"}
    assert resolve(Config(**asked)).policy == "direct"
    assert resolve(Config(**asked, policy="softmax")).policy == "softmax"
    for wrong in (asked | {"policy": "softmax"}, {"env": "cartpole", "algorithm": "pavg-projected"}):
        with pytest.raises(UserError, match="pavg-projected computes with the whole table of a finite MDP"):
            build(resolve(Config(**wrong)))


def test_flags_win_over_presets():
    assert resolve(Config(local_lr=0.5, batch=3)).local_lr == 0.5
    assert resolve(Config(local_lr=0.5, local_steps=4)).global_lr == 2.0
    assert resolve(Config(local_lr=0.5, global_lr=0.1)).global_lr == 0.1


def test_a_preset_may_lengthen_the_step_of_the_server_and_share_the_critic():
    asked = {"env": "walker2d", "learner": "actor-critic", "local_lr": 0.01, "local_steps": 3}
    longer = presets()["walker2d"]["actor-critic"]["pavg"]["server-step"]
    assert longer > 1.0
    assert resolve(Config(**asked, algorithm="pavg")).global_lr == pytest.approx(longer * 0.03)
    assert resolve(Config(**asked, algorithm="pavg", global_lr=0.5)).global_lr == 0.5
    assert resolve(Config(**asked, algorithm="heavy-ball")).global_lr == pytest.approx(0.03)  # momentum is a longer step already
    assert resolve(Config(**asked)).share == "critic"
    assert resolve(Config(**asked, share="policy")).share == resolve(Config(**asked, personal="critic")).share == "policy"
    assert resolve(Config(env="walker2d")).share == resolve(Config(env="cartpole", learner="actor-critic")).share == "policy"


def test_hidden_sizes_reach_the_policy():
    params = prepare(resolve(Config(agents=1, hidden=(3, 7)))).problem.init_params
    import jax

    shapes = {leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(params, jax.random.key(0)))}
    assert {(4, 3), (3, 7), (7, 2)} <= shapes


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        ({"algorithm": "fedsvrpg-m", "local_steps": 32, "rounds": 6, "beta": 0.1}, 534),  # ceil(32 / 0.06)
        ({"algorithm": "fedhapg-m", "local_steps": 10, "rounds": 150, "beta": 0.2}, 2),
        ({"algorithm": "nharpg", "local_steps": 10, "rounds": 150, "beta": 0.2}, 2),
        ({"algorithm": "fedsvrpg-m", "beta": 1.0}, 0),
        ({"algorithm": "fedsvrpg-m", "u0": "zero"}, 0),
        ({"algorithm": "fedsvrpg-m", "u0": 7}, 7),
        ({"algorithm": "pavg"}, 0),
        ({"algorithm": "heavy-ball"}, 0),
        ({"algorithm": "heavy-ball", "u0": "theorem", "local_steps": 10, "rounds": 150}, 2),
    ],
    ids=str,
)
def test_batches_behind_u0(settings, batches):
    assert resolve(Config(**settings)).u0 == batches


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "cartpol"}, "unknown env 'cartpol': did you mean 'cartpole'"),
        ({"algorithm": "heavyball"}, "unknown algorithm 'heavyball': did you mean 'heavy-ball'"),
        ({"engine": "fast"}, "unknown engine"),
        ({"agents": 0}, "agents must be int >= 1, not 0"),
        ({"local_steps": 0}, "local-steps must be int >= 1"),
        ({"seeds": 0}, "seeds must be int >= 1"),
        ({"beta": 0.0}, "beta must be float > 0.0, not 0.0"),
        ({"beta": 1.1}, "beta must be float <= 1.0, not 1.1"),
        ({"beta": float("nan")}, "beta must be float > 0.0, not nan"),
        ({"beta": 0.5, "algorithm": "pavg"}, "pavg has no beta"),
        ({"global_lr": 0.5, "algorithm": "local-only"}, "local-only has no global-lr"),
        ({"local_lr": float("inf")}, "local-lr must be float <="),
        ({"discount": 1.5}, "discount must be float <= 1.0"),
        ({"heterogeneity": -1.0}, "heterogeneity must be float >= 0.0"),
        ({"baseline": "critic"}, "unknown baseline"),
        ({"weights": "clipped"}, "unknown weights"),
        ({"normalise_observations": "on"}, "unknown normalise-observations"),
        ({"aggregation": "mode"}, "unknown aggregation"),
        ({"u0": "some"}, "unknown u0"),
        ({"seed": -1}, "seed must be int >= 0"),
    ],
    ids=str,
)
def test_impossible_values(settings, message):
    with pytest.raises(UserError, match=message) as raised:
        resolve(Config(**settings))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "random-mdp", "env_option": {"states": [5, 6, 5, 5, 5]}}, "option states of random-mdp"),
        ({"env_option": {"lenght": 1}}, "did you mean 'length'"),
        ({"env_option": {"length": [0.5, 0.6]}}, "length lists 2 values for 5 agents"),
        ({"env_option": {"gravity": float("nan")}}, "gravity must be positive and finite"),
        ({"policy": "softmax"}, "policy 'softmax' is a table"),
        ({"baseline": "value"}, "baseline 'value' needs a finite number of states"),
    ],
    ids=str,
)
def test_impossible_environments(settings, message):
    with pytest.raises(UserError, match=message):
        build(resolve(Config(**settings)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--participation", "0"], "participation must be float > 0.0, not 0.0"),
        (["--selection", "csh-max"], "selection csh-max has nothing to choose: give a --participation below 1"),
        (["--participation", "0.5", "--selection", "nobody"], "unknown selection 'nobody'"),
        (["--participation", "0.5", "--selection", "csh-min"], "selection csh-min compares tables over states and actions"),
        (["--participation", "0.5", "--algorithm", "pooled"], "pooled trains in one place"),
        (["--algorithm", "fapi"], "fapi improves the whole table of a finite MDP"),
        (["--compression", "top-q"], "unknown compression 'top-q': did you mean 'top-k'?"),
        (["--keep", "1.5"], "keep must be float <= 1.0, not 1.5"),
        (["--noise", "1"], "noise is in units of --clip: give the longest message that may be sent, as --clip"),
        (["--clip", "-1"], "clip must be float >= 0.0, not -1.0"),
        (["--privacy-delta", "0"], "privacy-delta must be float > 0.0, not 0.0"),
        (["--clip", "1", "--normalise-observations", "auto"], "give --normalise-observations off, or leave out --clip and --noise"),
        (["--clip", "1", "--algorithm", "pooled"], "pooled sends no messages: leave out --clip and --noise"),
        (["--compression", "float16", "--algorithm", "local-only"], "local-only sends no messages: leave out --compression"),
        (
            ["--clip", "1", "--noise", "1", "--participation", "0.5", "--selection", "power-of-choice"],
            "selection power-of-choice asks agents for reports, which noise does not protect: use --selection random",
        ),
        (["--algorithm", "fedprox", "--algorithm-option", "um=1"], "unknown algorithm-option of fedprox 'um': did you mean 'mu'?"),
        (["--algorithm", "fedprox", "--algorithm-option", "mu=fast"], "algorithm-option mu must be float, not 'fast'"),
        (["--algorithm", "fedprox", "--algorithm-option", "mu=true"], "algorithm-option mu must be float, not True"),
        (["--algorithm", "fedprox", "--algorithm-option", "mu=nan"], "algorithm-option mu must be finite"),
        (["--algorithm", "fedprox", "--algorithm-option", "mu"], "'mu' must be NAME=VALUE"),
        (["--algorithm-option", "beta=0.3"], "beta is a flag: give --beta"),
        (["--algorithm", "pavg", "--algorithm-option", "mu=1"], "pavg takes no algorithm-option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_gets_one_line_and_writes_nothing(given, message, tmp_path, capsys):
    assert main(["train", "--env", "cartpole", "--out", str(tmp_path / "run"), *given]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "run").exists()


def test_options_reach_the_factory(monkeypatch):
    seen = {}

    def spy(problem, *, local_lr, local_steps=1, lookback: str = "auto", gain: float | None = None):
        seen.update(lookback=lookback, gain=gain)
        return ALGORITHMS["pavg"](problem, local_lr=local_lr, local_steps=local_steps)

    monkeypatch.setitem(ALGORITHMS, "spy", spy)
    config = resolve(Config(env="random-mdp", algorithm="spy", algorithm_option={"gain": 1, "lookback": "memory"}))
    assert config.algorithm_option == {"gain": 1.0, "lookback": "memory"}
    prepare(config).algorithm_of({})
    assert seen == {"lookback": "memory", "gain": 1.0}


def test_given_options_win_over_the_preset(monkeypatch):
    monkeypatch.setitem(presets()["cartpole"], "fedprox", {"local-lr": 0.003, "algorithm-option": {"mu": 3}})
    assert resolve(Config(algorithm="fedprox")).algorithm_option == {"mu": 3.0}
    assert resolve(Config(algorithm="fedprox", algorithm_option={"mu": 2})).algorithm_option == {"mu": 2.0}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_option_has_a_default_of_a_type_that_can_be_typed(algorithm):
    """So that an algorithm runs without options, and a mistyped one is refused."""
    for name, default in known_options(algorithm).items():
        assert default is None or type(default) in (bool, int, float, str), name
        if default is not None:
            assert resolve_options(algorithm, {name: default}) == {name: default}


def test_everything_off_leaves_the_algorithm_as_it_is():
    fields = {"env": "random-mdp", "algorithm": "fedsvrpg-m", "horizon": 4, "agents": 2, "rounds": 3, "local_steps": 2}
    problem, algorithm_of, *_ = prepare(resolve(Config(**fields)))
    state = algorithm_of({}).init(problem.init_params(None))[1]
    assert not isinstance(state, (compression.AgentState, privacy.AgentState))


def test_the_engine_is_the_one_asked_for():
    small = {"env": "random-mdp", "agents": 2, "horizon": 3}
    assert isinstance(build(resolve(Config(**small, engine="plain"))).programs, Plain)
    with pytest.raises(UserError, match="use fedpg serve"):
        build(dataclasses.replace(resolve(Config(**small)), engine="flower"))
