"""The objectives of PPO on a minibatch of n steps. Schulman et al., "Proximal policy optimization algorithms", 2017."""

import jax
import jax.numpy as jnp


def clipped_surrogate(log_ratio: jax.Array, advantage: jax.Array, clip: float) -> jax.Array:
    """mean min(w A, clip(w, 1 - clip, 1 + clip) A), to be maximised; w = exp(log_ratio) = pi(a|s) / pi_old(a|s), all (n,).

    >>> float(clipped_surrogate(jnp.log(jnp.array([2.0, 0.5])), jnp.array([1.0, -1.0]), 0.25))
    0.25
    """
    w = jnp.exp(log_ratio)
    return jnp.mean(jnp.minimum(w * advantage, jnp.clip(w, 1.0 - clip, 1.0 + clip) * advantage))


def clipped_value_loss(value: jax.Array, old: jax.Array, target: jax.Array, clip: float) -> jax.Array:
    """mean max((V - R)^2, (V_clipped - R)^2) / 2, V_clipped within `clip` of the old value, all (n,). 0 does not clip.

    >>> float(clipped_value_loss(jnp.array([1.0]), jnp.array([0.0]), jnp.array([1.0]), 0.5))
    0.125
    """
    loss = jnp.square(value - target)
    if clip > 0:
        loss = jnp.maximum(loss, jnp.square(old + jnp.clip(value - old, -clip, clip) - target))
    return 0.5 * jnp.mean(loss)


def divergence_estimate(log_ratio: jax.Array) -> jax.Array:
    """mean (w - 1 - log w), an estimate of KL(pi_old||pi) that is never negative, ()."""
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def normalised(advantage: jax.Array) -> jax.Array:
    """Advantages of a minibatch with mean 0 and deviation 1, (n,)."""
    return (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
