"""A policy with a critic: a network that estimates V(s), among the params of the policy it judges."""

from typing import NamedTuple

import jax

from fedpg.envs.base import Environment, zero
from fedpg.envs.host import HostEnvironment
from fedpg.policies.base import Policy, features
from fedpg.policies.mlp import forward, init_layers
from fedpg.trees import Params

CRITIC_STREAM = 0xC717
"""Folded into a key for the critic's own random numbers: a policy starts the same with and without a critic."""


class Judged(NamedTuple):
    """Params of a policy with a critic."""

    policy: Params
    critic: Params


def with_critic(inner: Policy, environment: Environment | HostEnvironment, hidden: tuple[int, ...] = (64, 64)) -> Policy:
    """`inner` with a tanh network for V(s). Acting needs `Judged.policy` only; gradients with respect to both are the learner's."""
    space = environment.observation_space
    inputs = features(space, zero(space)).size

    def init(key: jax.Array) -> Judged:
        return Judged(inner.init(key), init_layers(jax.random.fold_in(key, CRITIC_STREAM), [inputs, *hidden, 1], 1.0))

    return Policy(
        init=init,
        act=lambda noise, params, observation: inner.act(noise, params.policy, observation),
        log_prob=lambda params, observation, action: inner.log_prob(params.policy, observation, action),
        draw=inner.draw,
        project=lambda params: params._replace(policy=inner.project(params.policy)),
        free=lambda direction: direction._replace(policy=inner.free(direction.policy)),
        outputs=inner.outputs and (lambda params, observation: inner.outputs(params.policy, observation)),
        value=lambda params, observation: forward(params.critic, features(space, observation))[0],
    )
