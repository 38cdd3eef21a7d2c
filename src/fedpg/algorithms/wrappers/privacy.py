"""Differential privacy of every agent towards the server and everybody else, around any algorithm.

    agent    x = m - m0;    sends m0 + x min(1, C/|x|) + sigma xi,    xi ~ N(0, I),    sigma = noise C,    C = `clip`

in every exchange, also those before round 0. m is its whole message, all real leaves as one vector, and m0 what the server expects
of it (`Exchange.message`; for most algorithms 0), which follows from what was broadcast. Whatever the agent's data are, what it
sends without the noise lies in a ball of radius C around m0: other data move it by at most 2C. What T such messages give away
together is in `fedpg.theory.privacy`. All that comes later (compression, aggregation) works on noised messages only.

The noise must not come from the round's keys, which the server can compute. An agent has dice of its own:

    noise key = fold_in(second(dice), words of the round's key);   dice' = first(dice)        first, second = split(dice)

They start from a constant, so that a simulation can be repeated. A real agent calls `with_secret` once, before its first
message, and never goes back to dice it had before: two messages with the same noise would show their difference.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms.aggregation import real_part
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, ServerState, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers import attack as attacks
from fedpg.errors import require
from fedpg.trees import Tree

KIND = "threefry2x32"
"""The generator behind the dice: its keys are two 32-bit words."""


class AgentState(NamedTuple):
    """Attributes:
    inner: the algorithm's own.
    dice: what the next noise comes from, (2,), uint32.
    """

    inner: Any
    dice: jax.Array


def check(clip: Any, noise: Any) -> None:
    """Refuses numbers that mean nothing. Traced values (inside a sweep) are not looked at."""
    for name, value in (("clip", clip), ("noise", noise)):
        known = isinstance(value, (int, float))
        require(not known or 0.0 <= value < float("inf"), f"{name} must be 0 (off) or positive and finite, not {value}")
    bounded = not isinstance(clip, (int, float)) or clip > 0 or (isinstance(noise, (int, float)) and noise == 0)
    require(bounded, "noise is in units of --clip: give the longest message that may be sent, as --clip")


def rolled(dice: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A key for the noise of one message, and the dice after it, (2,); `key` is the round's."""
    kept, used = jax.random.split(jax.random.wrap_key_data(dice, impl=KIND))
    words = jax.random.key_data(key).reshape(-1)
    for i in range(words.size):
        used = jax.random.fold_in(used, words[i])
    return used, jax.random.key_data(kept)


def with_secret(agent_state: Any, secret: bytes) -> Any:
    """`agent_state`, of a private algorithm and whatever is around it, with dice that only the agent knows.

    Args:
        agent_state: of one agent.
        secret: at least 16 bytes that nobody else can know or guess, such as `os.urandom(32)`.
    """
    require(len(secret) >= 16, f"a secret must have at least 16 bytes, not {len(secret)}")
    words = jnp.asarray(np.frombuffer(hashlib.sha256(b"fedpg dice" + secret).digest()[:8], np.uint32))
    paths, structure = jax.tree_util.tree_flatten_with_path(agent_state)
    held = [isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "dice" for path, _ in paths]
    require(sum(held) == 1, "only the state of an agent that adds noise (--noise) has dice")
    return jax.tree.unflatten(structure, [words if own else leaf for own, (_, leaf) in zip(held, paths, strict=True)])


def shortened(leaves: list[jax.Array], clip: Any) -> list[jax.Array]:
    """The leaves times min(1, C/|m|). None is finite if one is not."""
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0.0) for leaf in leaves]))
    # in units of the largest entry: the square of a number that a float can hold may be more than it can hold
    unit = jnp.where(largest > 0, largest, 1.0)
    scaled = [leaf / unit for leaf in leaves]
    length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in scaled))
    long = unit * length > clip
    # 0 * length is NaN in every leaf if it is in one
    return [jnp.where(long, x * (clip / length), leaf) + 0.0 * length for leaf, x in zip(leaves, scaled, strict=True)]


def protected(message: Tree, expected: Tree, key: jax.Array, clip: Any, noise: Any) -> Tree:
    """What is sent in place of `message`, of which the server knows `expected` beforehand."""
    (real, put), (known, _) = real_part(message), real_part(expected)
    short = [m0 + x for m0, x in zip(known, shortened(trees.subtract(real, known), clip), strict=True)]
    if isinstance(noise, (int, float)) and noise == 0:
        return put(short)
    keys = jax.random.split(key, len(short))
    return put([x + noise * clip * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(short, keys, strict=True)])


def _check_leaves(name: str, message: Tree) -> None:
    """Refuses leaves that noise cannot protect. The dice of an attacker (`attacks.Message`) come from keys, not from data."""

    def stripped(part: Any) -> Any:
        return part.inner if isinstance(part, attacks.Message) else part

    own = jax.tree.map(stripped, message, is_leaf=lambda part: isinstance(part, attacks.Message))
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(own)]
    require(all(real), f"{name} sends whole numbers, which noise does not protect: leave out --clip and --noise")


def private(algorithm: Algorithm, clip: Any, noise: Any = 0.0) -> Algorithm:
    """`algorithm` whose agents' messages are clipped and noised; with clip = 0, itself.

    Args:
        algorithm: whose messages.
        clip: C, how far a message may go from what the server expects, in the units of the message; 0 is off.
        noise: sigma / C, the standard deviation of the noise on each entry in units of C; 0 only clips.
    """
    check(clip, noise)
    if isinstance(clip, (int, float)) and clip == 0:
        return algorithm
    require(not (algorithm.personal or algorithm.pooled), f"{algorithm.name} sends no messages: leave out --clip and --noise")

    def init(params: Any) -> tuple[ServerState, AgentState]:
        server, agent_state = algorithm.init(params)
        return server, AgentState(agent_state, jax.random.key_data(jax.random.key(0, impl=KIND)))

    def noised(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
            message, inner, info = exchange.local_update(key, shared, state.inner, agent)
            _check_leaves(algorithm.name, message)
            used, dice = rolled(state.dice, key)
            return protected(message, exchange.message(shared), used, clip, noise), AgentState(inner, dice), info

        return exchange._replace(local_update=local_update)

    changed = with_exchanges(algorithm, [noised(exchange) for exchange in exchanges_of(algorithm)])
    return changed._replace(init=init, deployed=lambda shared, state: algorithm.deployed(shared, state.inner))
