"""Where the noise comes from: dice that are the agent's own, and messages that no noise protects."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms.base import Algorithm, ServerState
from fedpg.algorithms.wrappers import attack as attacks
from fedpg.algorithms.wrappers.compression import compressed
from fedpg.algorithms.wrappers.privacy import private, with_secret
from fedpg.errors import UserError
from helpers.compare import assert_trees_close
from helpers.federations import bowl, make

SECRET = bytes(range(32))


def noises(algorithm, state, keys):
    """What an agent that has nothing to say sends, one message for each key, one state after another."""
    found = []
    for key in keys:
        message, state, _ = algorithm.local_update(key, (), state, ())
        found.append(float(message[0]))
    return found


def silent() -> Algorithm:
    def local_update(key, shared, state, agent):
        return jnp.zeros(1), state, ()

    return Algorithm("silent", lambda params: (ServerState(()), ()), local_update, None, message=lambda shared: jnp.zeros(1))


def test_dice_are_the_agent_s_own_and_never_fall_the_same_way():
    algorithm = private(silent(), 1.0, 1.0)
    _, state = algorithm.init(())
    keys = list(jax.random.split(jax.random.key(1), 3))
    simulated = noises(algorithm, state, keys)
    assert simulated == noises(algorithm, state, keys), "a simulation can be repeated"
    assert len({*simulated, *noises(algorithm, state, keys[::-1])}) > 3, "agents, whose keys differ, differ from the first message on"
    again = noises(algorithm, state, [keys[0]] * 50)
    assert len(set(again)) == 50, "one round's key asked for twice"
    secret = with_secret(state, SECRET)
    assert secret.dice.dtype == jnp.uint32
    assert secret.dice.shape == (2,)
    assert not {*simulated} & {*noises(algorithm, secret, keys)}, "the server knows the keys, and not the secret"
    assert noises(algorithm, secret, keys) == noises(algorithm, with_secret(state, SECRET), keys)
    assert not np.array_equal(secret.dice, with_secret(state, SECRET[::-1]).dice)
    assert abs(np.mean(again)) < 4.5 / np.sqrt(50)


def test_a_secret_reaches_the_dice_through_whatever_is_around_them():
    algorithm = compressed(private(make("scaffold", bowl().problem), 1.0, 1.0), "top-k")
    _, state = algorithm.init(jnp.zeros(4))
    secret = with_secret(state, SECRET)
    assert not np.array_equal(secret.inner.dice, state.inner.dice)
    assert_trees_close(secret._replace(inner=secret.inner._replace(dice=state.inner.dice)), state)
    with pytest.raises(UserError, match="has dice"):
        with_secret(state.inner.inner, SECRET)
    with pytest.raises(UserError, match="at least 16 bytes, not 4"):
        with_secret(state, b"four")


def test_whole_numbers_are_refused_but_for_the_dice_of_attackers():
    def local_update(key, shared, state, agent):
        return {"sum": jnp.zeros(2), "visits": jnp.arange(3)}, state, ()

    counting = silent()._replace(
        name="counting", local_update=local_update, message=lambda shared: {"sum": jnp.zeros(2), "visits": jnp.arange(3)}
    )
    _, state = private(counting, 1.0, 1.0).init(())
    with pytest.raises(UserError, match="counting sends whole numbers, which noise does not protect"):
        private(counting, 1.0, 1.0).local_update(jax.random.key(0), (), state, ())
    attacked = private(attacks.on_messages(silent(), "zero", 1), 1.0, 1.0)
    message, _, _ = attacked.local_update(jax.random.key(0), (), state, ())
    assert message.inner[0] != 0
    assert message.seed.dtype == jnp.uint32
