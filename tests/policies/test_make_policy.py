"""Policies by name: the one that fits each environment, sizes of networks, and mistakes."""

from __future__ import annotations

import jax
import pytest

from fedpg.envs import tabular
from fedpg.envs.base import Discrete
from fedpg.envs.cartpole import ENVIRONMENT as CARTPOLE
from fedpg.errors import UserError
from fedpg.policies import make
from fedpg.trees import size
from helpers.environments import POINT

TINY = tabular.environment("tiny", 3, 4)
SWITCH = POINT._replace(name="switch", observation_space=Discrete(3))


@pytest.mark.parametrize(
    ("name", "environment", "keys", "numbers"),
    [
        ("auto", TINY, {"logits"}, 12),
        ("direct", TINY, {"probabilities"}, 12),
        ("categorical", TINY, {"layers"}, (3 * 8 + 8) + (8 * 8 + 8) + (8 * 4 + 4)),
        ("auto", CARTPOLE, {"layers"}, (4 * 8 + 8) + (8 * 8 + 8) + (8 * 2 + 2)),
        ("auto", POINT, {"layers", "log_std"}, (3 * 32 + 32) + (32 * 32 + 32) + (32 * 2 + 2) + 2),
        ("auto", SWITCH, {"layers", "log_std"}, (3 * 32 + 32) + (32 * 32 + 32) + (32 * 2 + 2) + 2),
    ],
)
def test_params_have_the_documented_shape(name: str, environment, keys: set[str], numbers: int) -> None:
    """The paper's networks: 8x8 for discrete actions, 32x32 for continuous ones."""
    params = jax.eval_shape(make(name, environment).init, jax.random.key(0))
    assert set(params) == keys
    assert size(params) == numbers


@pytest.mark.parametrize(
    ("name", "environment", "hidden", "numbers"),
    [
        ("auto", CARTPOLE, (64, 64), (4 * 64 + 64) + (64 * 64 + 64) + (64 * 2 + 2)),
        ("gaussian", POINT, (5,), (3 * 5 + 5) + (5 * 2 + 2) + 2),
        ("gaussian", POINT, (), (3 * 2 + 2) + 2),
        ("auto", TINY, (6,), (3 * 6 + 6) + (6 * 4 + 4)),
    ],
)
def test_hidden_layers(name: str, environment, hidden: tuple[int, ...], numbers: int) -> None:
    assert size(jax.eval_shape(make(name, environment, hidden).init, jax.random.key(0))) == numbers


@pytest.mark.parametrize(
    ("name", "hidden", "message"), [("softmax", (8,), "has no hidden layers"), ("categorical", (8, 0), "at least 1 unit")]
)
def test_impossible_hidden_layers_are_user_errors(name: str, hidden: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(name, TINY, hidden)


@pytest.mark.parametrize(
    ("name", "environment", "message"),
    [
        ("sofmax", TINY, "unknown policy 'sofmax': did you mean 'softmax'"),
        ("softmax", CARTPOLE, "table over states, .*cartpole.*: use 'auto'"),
        ("direct", CARTPOLE, "table over states, .*cartpole.*: use 'auto'"),
        ("gaussian", CARTPOLE, "does not fit the actions of cartpole"),
        ("categorical", POINT, "does not fit the actions of point"),
        ("softmax", SWITCH, "does not fit the actions of switch"),
    ],
)
def test_mistakes_are_user_errors(name: str, environment, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(name, environment)
