"""Policies that are a table over (state, action)."""

import jax
import jax.numpy as jnp

from fedpg.envs.base import Environment
from fedpg.policies.base import Policy
from fedpg.sampling import look_up, pick, uniforms
from fedpg.trees import Params


def softmax(environment: Environment) -> Policy:
    """pi(a|s) = exp(logits[s,a]) / sum_b exp(logits[s,b]), started uniform. Params: {"logits": (S, A)}."""
    states, actions = environment.observation_space.n, environment.action_space.n
    return Policy(
        init=lambda key: {"logits": jnp.zeros((states, actions))},
        act=lambda uniform, params, s: pick(uniform, jax.nn.softmax(jnp.asarray(params["logits"])[s])),
        log_prob=lambda params, s, a: look_up(jax.nn.log_softmax(look_up(params["logits"], s)), a),
        draw=uniforms,
        outputs=lambda params, s: look_up(params["logits"], s),
        table="softmax",
        logits=lambda params: jnp.asarray(params["logits"]),
    )


def simplex_projection(rows: jax.Array, floor: float = 0.0) -> jax.Array:
    """Euclidean projection of each row onto {p : p >= floor, sum p = 1}.

    Reference: Duchi et al., "Efficient projections onto the l1-ball", ICML 2008, on rows shifted by the floor.
    """
    n = rows.shape[-1]
    rows = rows - jnp.max(rows, axis=-1, keepdims=True)  # does not change the projection; large entries lose no digits
    mass = 1.0 - n * floor
    ordered = jnp.sort(rows - floor, axis=-1)[..., ::-1]
    excess = (jnp.cumsum(ordered, axis=-1) - mass) / jnp.arange(1, n + 1)
    support = jnp.sum(ordered > excess, axis=-1, keepdims=True)
    threshold = jnp.take_along_axis(excess, support - 1, axis=-1)
    return jnp.maximum(rows - floor - threshold, 0.0) + floor


def direct(environment: Environment, floor: float = 1e-3) -> Policy:
    """pi(a|s) = probabilities[s,a], kept on the simplex by projection. Params: {"probabilities": (S, A)}.

    The floor keeps every action possible, because score functions and importance weights divide by probabilities. log pi is
    computed from the normalised row, so that scores have mean zero; projection undoes the part of a step that this changes.
    """
    states, actions = environment.observation_space.n, environment.action_space.n
    floor = min(floor, 0.1 / actions)

    def log_prob(params: Params, s: jax.Array, a: jax.Array) -> jax.Array:
        row = look_up(params["probabilities"], s)
        return jnp.log(look_up(row, a)) - jnp.log(jnp.sum(row))

    return Policy(
        init=lambda key: {"probabilities": jnp.full((states, actions), 1.0 / actions)},
        act=lambda uniform, params, s: pick(uniform, jnp.asarray(params["probabilities"])[s]),
        log_prob=log_prob,
        draw=uniforms,
        project=lambda params: {"probabilities": simplex_projection(params["probabilities"], floor)},
        outputs=lambda params, s: jnp.log(look_up(params["probabilities"], s)),
        table="direct",
        logits=lambda params: jnp.log(params["probabilities"]),
    )
