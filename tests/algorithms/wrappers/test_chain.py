"""The order of wrappers, and that a chain is the wrappers one after another."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest

from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.wrappers import ORDER, Wrapper, attack, chain, compressed, observation_scaling, private, robust
from fedpg.errors import UserError
from helpers.federations import bowl, make


def named(name: str) -> Wrapper:
    """A wrapper that writes its name down."""
    return Wrapper(name, lambda algorithm: algorithm._replace(name=f"{name}({algorithm.name})"))


def test_the_first_wrapper_is_the_innermost_and_wrappers_that_are_off_have_no_place():
    algorithm = Algorithm("x", None, None, None)
    assert chain(algorithm, named("robust"), named("attack"), named("compressed")).name == "compressed(attack(robust(x)))"
    assert chain(algorithm, Wrapper("private", None), named("robust"), Wrapper("robust", None)).name == "robust(x)"
    assert chain(algorithm) is algorithm


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(ORDER, 2)))
def test_any_other_order_is_refused(first, second):
    """Every wrapper after itself, or after one that belongs outside of it."""
    with pytest.raises(UserError, match=f"must be in the order robust, attack, .* each at most once, not {second}, {first}"):
        chain(Algorithm("x", None, None, None), named(second), named(first))


def test_moments_of_observations_are_never_sent_with_private_messages():
    wrappers = (observation_scaling(bowl().problem, "running"), private(clip=1.0))
    with pytest.raises(UserError, match="the moments of observations would be sent without noise: give --normalise-observations off"):
        chain(make("pavg", bowl().problem), *wrappers)


def test_the_state_shows_the_layers():
    algorithm = chain(make("pavg", bowl().problem), robust("median"), attack("zero", 1), private(1.0, 2.0), compressed("top-k", 0.5))
    _, state = algorithm.init(jnp.zeros(4))
    assert state._fields == ("inner", "residual")
    assert state.inner._fields == ("inner", "noise_key")
    assert state.inner.inner == ()
