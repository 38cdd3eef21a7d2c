"""What happens when numbers stop being numbers, and where an error came from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug, StageError
from helpers.compare import assert_trees_close
from helpers.federations import Small, bowl, make, rl


def poisoned(small: Small, agents: list[int]) -> Small:
    """The same federation, with a NaN reward (or curvature) for some agents of every seed."""

    def agents_of(key: jax.Array):
        made = small.agents_of(key)
        bad = jnp.zeros(3, bool).at[jnp.array(agents)].set(True)
        name = "reward" if hasattr(made, "reward") else "curvature"
        leaf = getattr(made, name)
        return made._replace(**{name: jnp.where(bad.reshape(-1, *[1] * (leaf.ndim - 1)), jnp.nan, leaf)})

    return small._replace(agents_of=agents_of)


@pytest.mark.parametrize("kind", [Simulator, pytest.param(Debug, marks=pytest.mark.slow)])
def test_one_broken_agent_is_left_out_and_counted(kind):
    healthy, broken = rl("random-mdp", horizon=2, batch_size=1), poisoned(rl("random-mdp", horizon=2, batch_size=1), [1])
    algorithm = make("fedsvrpg-m", healthy.problem, u0_batches=0, local_steps=1)
    engine = kind(healthy.problem, algorithm, broken.agents_of)
    engine.start()
    start = engine.state()
    engine.advance(0, 2)
    state = engine.state()
    assert state.failed.tolist() == [-1]
    assert state.refused.tolist() == [[0, 2, 0]]
    assert np.isfinite(state.server.shared.params["logits"]).all()
    assert (state.server.shared.params["logits"] != start.server.shared.params["logits"]).any()
    assert_trees_close(trees.take(trees.take(state.agents, 0), 1), trees.take(trees.take(start.agents, 0), 1))


def test_a_seed_without_a_sound_agent_is_frozen_at_its_last_sound_state():
    small = poisoned(bowl(), [0, 1, 2])
    engine = Simulator(small.problem, make("pavg", small.problem), small.agents_of, seeds=2)
    engine.start()
    engine.advance(0, 3)
    state = engine.state()
    assert state.failed.tolist() == [0, 0]
    assert np.isfinite(state.server.shared.params).all()


def test_divergence_is_recorded_with_its_round():
    """A step-size far too large on a quadratic overflows after some rounds; the state before that is kept."""
    small = bowl()
    engine = Simulator(small.problem, make("pavg", small.problem, local_lr=1e3, local_steps=2), small.agents_of)
    engine.start()
    engine.advance(0, 20)
    failed = int(engine.state().failed[0])
    assert 0 < failed < 20
    assert np.isfinite(engine.state().server.shared.params).all()
    again = Simulator(small.problem, make("pavg", small.problem, local_lr=1e3, local_steps=2), small.agents_of)
    again.start()
    again.advance(0, failed)
    assert again.state().failed.tolist() == [-1]


def test_the_debug_engine_names_the_stage():
    def refuse(draw, params):
        raise ZeroDivisionError("no such thing")

    small = bowl()
    algorithm = make("fedsvrpg-m", small.problem._replace(gradient=refuse), u0_batches=0)
    engine = Debug(small.problem, algorithm, small.agents_of, seeds=1)
    engine.start()
    with pytest.raises(StageError, match="seed 0, round 4, agent 0, local_update: ZeroDivisionError: no such thing"):
        engine.advance(4, 1)
    with pytest.raises(StageError, match="seed 0, warm-up, agent 0, local_update"):
        Debug(small.problem, make("fedsvrpg-m", small.problem._replace(gradient=refuse)), small.agents_of).start()


def test_prints_in_an_agent_see_numbers_in_the_debug_engine(capsys):
    small = bowl()

    def gradient(draw, params):
        print(f"params {float(params[0]):.3f}")
        return small.problem.gradient(draw, params)

    engine = Debug(small.problem, make("pavg", small.problem._replace(gradient=gradient)), small.agents_of)
    engine.start()
    engine.advance(0, 1)
    assert capsys.readouterr().out.count("params ") == 9  # agents x local steps
