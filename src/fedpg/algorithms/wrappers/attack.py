"""Attacks on a federation: agents that send something else than they should, to test a defence.

On messages, between an attacker and the server; m_i is the message that the attacker should send:

    zero          0
    noise         m_i + U[-3, 3] (max m_i - min m_i) in each entry
    sign-flip     -2.5 m_i
    fedpg-attack  mean_j m_j + 1.5 max_jk |m_j - m_k| e, e a random direction: all attackers send this, and know all messages

On trajectories, before a gradient is taken (`fedpg.gradients.dishonest`): reward-flip, random-action, shuffled-reward.

The first agents are the attackers. They attack in every exchange in which they take part; evaluations use their true environments.

Reference: the attacks in the code of Fan et al., "Fault-tolerant federated reinforcement learning with theoretical guarantee",
NeurIPS 2021.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers.base import Wrapper, as_rows, parts, require_messages
from fedpg.algorithms.wrappers.robust import distances_sq, mean_without_ends
from fedpg.envs.base import Federation
from fedpg.errors import choose, require
from fedpg.gradients import dishonest
from fedpg.gradients.dishonest import ATTACK_STREAM, MarkedAgent

NOISE, FLIP, DISTANCE = 3.0, -2.5, 1.5
"""The factors of noise, sign-flip and fedpg-attack."""


def noise(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
    width = jnp.max(rows, axis=1) - jnp.min(rows, axis=1)
    drawn = jax.vmap(lambda key: jax.random.uniform(key, rows.shape[1:], rows.dtype, -NOISE, NOISE))(keys)
    return rows + width[:, None] * drawn


def fedpg_attack(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
    """The key of the first agent present decides the common direction e."""
    direction = jax.random.normal(keys[jnp.argmax(present)], rows.shape[1:], rows.dtype)
    distances = distances_sq(rows, present)
    furthest = jnp.sqrt(jnp.max(jnp.where(jnp.isfinite(distances), distances, 0.0)))
    sent = mean_without_ends(rows, present) + DISTANCE * furthest * direction / jnp.linalg.norm(direction)
    return jnp.broadcast_to(sent, rows.shape)


ON_MESSAGES: dict[str, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    "zero": lambda keys, rows, present: jnp.zeros_like(rows),
    "noise": noise,
    "sign-flip": lambda keys, rows, present: FLIP * rows,
    "fedpg-attack": fedpg_attack,
}
"""Each (keys (N,), messages as rows (N, d), present (N,)) -> what attackers send instead, (N, d)."""
NAMES = (*ON_MESSAGES, *dishonest.ATTACKS)


class AttackedMessage(NamedTuple):
    """A message of the algorithm, and the key of the attack's random numbers, (2,)."""

    inner: Any
    attack_key: jax.Array


def attacker_count(share: float, agents: int) -> int:
    """How many of `agents` attack.

    >>> attacker_count(0.3, 10), attacker_count(0.3, 5), attacker_count(0.0, 5)
    (3, 2, 0)
    """
    require(0.0 <= share <= 1.0, f"attackers is the share of agents that attack: give a number from 0 to 1, not {share}")
    return math.ceil(share * agents - 1e-9)


def with_dishonest_agents(federation: Federation, name: str, attackers: int) -> Federation:
    """Marks the first agents of a federation as dishonest, for attacks on trajectories.

    The problem must be made with `policy_gradient(..., dishonest=True)`. With another attack the federation is returned as it is.

    Args:
        federation: what the agents act in.
        name: of the attack.
        attackers: how many agents attack.
    """
    if name not in dishonest.ATTACKS:
        return federation

    def marked(agents: Any) -> MarkedAgent:
        count = jax.tree.leaves(agents)[0].shape[0]
        return MarkedAgent(agents, jnp.where(jnp.arange(count) < attackers, 1.0 + dishonest.ATTACKS.index(name), 0.0))

    def prepare(agents: MarkedAgent) -> MarkedAgent:
        return agents._replace(constants=federation.prepare(agents.constants))

    agents = federation.agents
    made = (lambda key, seed: marked(agents(key, seed))) if callable(agents) else marked(agents)
    return federation._replace(agents=made, prepare=None if federation.prepare is None else prepare)


def _on_messages(algorithm: Algorithm, attack: str | jax.Array, attackers: int) -> Algorithm:
    """A key for the attack's random numbers travels with every message: 2 numbers more, which is all that the communication counts."""
    require_messages(algorithm, "--attack")

    def attacked_rows(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
        if isinstance(attack, str):
            return ON_MESSAGES[attack](keys, rows, present)
        honest = [lambda keys, rows, present: rows]
        return jax.lax.switch(attack, honest + list(ON_MESSAGES.values()), keys, rows, present)

    def attacked(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[AttackedMessage, Any, LocalInfo]:
            message, agent_state, info = exchange.local_update(key, shared, agent_state, agent)
            return AttackedMessage(message, jax.random.key_data(jax.random.fold_in(key, ATTACK_STREAM))), agent_state, info

        def aggregate(state: ServerState, messages: AttackedMessage, present: jax.Array) -> tuple[ServerState, RoundInfo]:
            real, others, join = parts(messages.inner)
            if not real:
                return exchange.aggregate(state, messages.inner, present)
            rows, message = as_rows(real)
            false = attacked_rows(jax.random.wrap_key_data(messages.attack_key), rows, present > 0)
            sent = jnp.where(jnp.arange(len(rows))[:, None] < attackers, false, rows)
            return exchange.aggregate(state, join(jax.vmap(message)(sent), others), present)

        return Exchange(local_update, aggregate, lambda shared: AttackedMessage(exchange.predicted(shared), jnp.zeros(2, jnp.uint32)))

    return with_exchanges(algorithm, [attacked(exchange) for exchange in exchanges_of(algorithm)])


def _on_trajectories(algorithm: Algorithm, attack: jax.Array | None = None) -> Algorithm:
    """Marked agents attack by themselves; here only the server stays honest. A traced `attack` replaces the mark of the attackers."""
    hint = "make the agents with fedpg.with_dishonest_agents and the problem with dishonest=True"

    def set_attack(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: MarkedAgent) -> tuple[Any, Any, LocalInfo]:
            require(isinstance(agent, MarkedAgent), f"an attack on trajectories needs marked agents: {hint}")
            if attack is not None:
                agent = agent._replace(attack=jnp.where(agent.attack > 0, attack, 0.0).astype(agent.attack.dtype))
            return exchange.local_update(key, shared, agent_state, agent)

        return exchange._replace(local_update=local_update)

    def server_update(key: jax.Array, state: ServerState, agents: MarkedAgent) -> tuple[ServerState, LocalInfo]:
        return algorithm.server_update(key, state, agents._replace(attack=jnp.zeros_like(agents.attack)))

    changed = algorithm if algorithm.server_update is None else algorithm._replace(server_update=server_update)
    return with_exchanges(changed, [set_attack(exchange) for exchange in exchanges_of(changed)])


def attack(name: str | jax.Array, attackers: int) -> Wrapper:
    """Lets the first `attackers` agents attack, to measure how an algorithm or a robust mean copes.

    Args:
        name: none, or one of `NAMES`. An attack on trajectories needs a federation `with_dishonest_agents`. In a sweep a traced
            number: 0 is none, n the n-th of `NAMES`; agents must then be marked.
        attackers: how many agents attack, see `attacker_count`.
    """

    def wrap(algorithm: Algorithm) -> Algorithm:
        if isinstance(name, str):
            return _on_messages(algorithm, name, attackers) if name in ON_MESSAGES else _on_trajectories(algorithm)
        number, last = jnp.asarray(name, int), len(ON_MESSAGES)
        on_messages = _on_messages(algorithm, jnp.where(number <= last, number, 0), attackers)
        return _on_trajectories(on_messages, jnp.maximum(number - last, 0))

    off = isinstance(name, str) and choose("attack", name, ("none", *NAMES)) == "none"
    return Wrapper("attack", None if off else wrap)
