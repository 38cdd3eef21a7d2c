"""Attacks on a federation, around any algorithm: agents that send something else than they should.

On messages, between the attackers and the server (`fedpg.algorithms.wrappers.tampering`): zero, noise, sign-flip, fedpg-attack.
On trajectories, before a gradient is taken (`fedpg.gradients.dishonest`): reward-flip, random-action, shuffled-reward.

The attackers are the first ceil(share N) agents. They attack in every exchange in which they take part. What they did to their
trajectories is not in the evaluations, which are of the agents' true environments.

Reference: the attacks that come with the code of Fan et al., "Fault-tolerant federated reinforcement learning with theoretical
guarantee", NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms.aggregation import as_rows, real_part
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers.tampering import ON_MESSAGES
from fedpg.envs.base import World
from fedpg.errors import require
from fedpg.gradients import dishonest as suspects
from fedpg.gradients.dishonest import LIES, Suspect

NAMES = ("zero", "noise", "sign-flip", *suspects.ATTACKS, "fedpg-attack")


class Message(NamedTuple):
    """Attributes:
    inner: the algorithm's own message.
    seed: what the attack's random numbers are made from, (2,).
    """

    inner: Any
    seed: jax.Array


def attacker_count(share: float, agents: int) -> int:
    """How many of `agents` attack, the first ones.

    >>> attacker_count(0.3, 10), attacker_count(0.3, 5), attacker_count(0.0, 5)
    (3, 2, 0)
    """
    require(0.0 <= share <= 1.0, f"attackers is the share of agents that attack: give a number from 0 to 1, not {share}")
    return math.ceil(share * agents - 1e-9)


def on_messages(algorithm: Algorithm, attack: str | jax.Array, attackers: int) -> Algorithm:
    """`algorithm` with the messages of its first `attackers` agents tampered with.

    A seed for the attack's random numbers goes with every message. It stands for the attackers' own dice, and is the only part of
    this that the count of what was sent sees: 2 numbers.

    Args:
        algorithm: whose messages.
        attack: one of `ON_MESSAGES`; or, traced, 0 for none and else which of them, counted from 1.
        attackers: how many attack.
    """
    require(not (algorithm.personal or algorithm.pooled), f"{algorithm.name} sends no messages: leave out --attack")

    def instead(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
        if isinstance(attack, str):
            return ON_MESSAGES[attack](keys, rows, present)
        honest = [lambda keys, rows, present: rows]
        return jax.lax.switch(jnp.asarray(attack, int), honest + list(ON_MESSAGES.values()), keys, rows, present)

    def tampered(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Message, Any, LocalInfo]:
            message, agent_state, info = exchange.local_update(key, shared, agent_state, agent)
            return Message(message, jax.random.key_data(jax.random.fold_in(key, LIES))), agent_state, info

        def aggregate(state: ServerState, messages: Message, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
            real, put = real_part(messages.inner)
            if not real:
                return exchange.aggregate(state, messages.inner, weights)
            rows, message = as_rows(real)
            false = instead(jax.random.wrap_key_data(messages.seed), rows, weights > 0)
            sent = jnp.where(jnp.arange(len(rows))[:, None] < attackers, false, rows)
            return exchange.aggregate(state, put(jax.vmap(message)(sent)), weights)

        return Exchange(local_update, aggregate, lambda shared: Message(exchange.message(shared), jnp.zeros(2, jnp.uint32)))

    return with_exchanges(algorithm, [tampered(exchange) for exchange in exchanges_of(algorithm)])


def suspected(agents_of: Callable[[jax.Array], Any], attack: int, attackers: int) -> Callable[[jax.Array], Suspect]:
    """Agents of which the first `attackers` lie about their trajectories; `attack` is `Suspect.attack`."""

    def agents(key: jax.Array) -> Suspect:
        constants = agents_of(key)
        count = jax.tree.leaves(constants)[0].shape[0]
        return Suspect(constants, jnp.where(jnp.arange(count) < attackers, float(attack), 0.0))

    return agents


def infiltrated(world: World, attack: str, attackers: int) -> World:
    """`world` with agents that may lie, if `attack` is on trajectories; else as it is."""
    if attack not in suspects.ATTACKS:
        return world

    def prepare(agents: Suspect) -> Suspect:
        return agents._replace(constants=world.prepare(agents.constants))

    agents_of = suspected(world.agents_of, suspects.ATTACKS.index(attack) + 1, attackers)
    return world._replace(agents_of=agents_of, prepare=None if world.prepare is None else prepare)


def on_trajectories(algorithm: Algorithm, attack: jax.Array | None = None) -> Algorithm:
    """`algorithm` among suspects: a server with an environment of its own has an honest one. With `attack`, traced, that is theirs."""

    def set_attack(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Suspect) -> tuple[Any, Any, LocalInfo]:
            agent = agent._replace(attack=jnp.where(agent.attack > 0, attack, 0.0).astype(agent.attack.dtype))
            return exchange.local_update(key, shared, agent_state, agent)

        return exchange._replace(local_update=local_update)

    def server_update(key: jax.Array, state: ServerState, agents: Suspect) -> tuple[ServerState, LocalInfo]:
        return algorithm.server_update(key, state, agents._replace(attack=jnp.zeros_like(agents.attack)))

    among = algorithm._replace(server_update=None if algorithm.server_update is None else server_update)
    return among if attack is None else with_exchanges(among, [set_attack(exchange) for exchange in exchanges_of(among)])


def attacked(algorithm: Algorithm, attack: str, attackers: int) -> Algorithm:
    """`algorithm` under the attack called `attack`, in an `infiltrated` world; as it is for "none"."""
    if attack in ON_MESSAGES:
        return on_messages(algorithm, attack, attackers)
    return on_trajectories(algorithm) if attack in suspects.ATTACKS else algorithm
