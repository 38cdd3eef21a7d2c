"""An environment of your own in JAX: water tanks that leak at different rates, kept at one level by one common policy.

Run it: python examples/own_environment.py
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg import Environment, fedhapg_m, policies, policy_gradient, simulator
from fedpg.envs import Box, Step


class Tank(NamedTuple):
    """One agent's constants: what leaks out in a step, and how strong its pump is."""

    leak: jax.Array
    pump: jax.Array


def reset(key, tank):
    level = jax.random.uniform(key, minval=-1.0, maxval=1.0)
    return level, level[None]


def step(key, level, action, tank):
    noise = 0.05 * jax.random.normal(key)
    level = (1.0 - tank.leak) * level + tank.pump * jnp.clip(action[0], -1.0, 1.0) + noise
    overflow = jnp.abs(level) > 3.0
    return Step(level, level[None], reward=-(level**2), terminated=overflow, truncated=jnp.zeros((), bool))


environment = Environment("tank", Box((1,)), Box((1,), -1.0, 1.0), reset, step)
tanks = Tank(leak=jnp.array([-0.05, 0.0, 0.2]), pump=jnp.array([0.3, 0.6, 1.0]))  # three agents; the first one floods

policy = policies.gaussian(environment, hidden=(8,))
problem = policy_gradient(environment, policy, horizon=20, discount=0.95, batch_size=16, baseline="linear")
algorithm = fedhapg_m(problem, beta=0.3, local_lr=2e-3, local_steps=5)
sim = simulator(problem, algorithm, tanks, seeds=3)

state = sim.init(jax.random.key(0))
before = sim.evaluate(state).returns.mean(0)
state, info = sim.run(state, rounds=60)
after = sim.evaluate(state).returns.mean(0)
for i, (start, end) in enumerate(zip(before, after, strict=True)):
    print(f"tank {i}: return {start:.2f} before, {end:.2f} after")
assert (after > before).all(), "the common policy should be better for every tank"
