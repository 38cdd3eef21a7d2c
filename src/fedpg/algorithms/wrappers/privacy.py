"""Differential privacy of every agent towards the server and all others.

    agent    x = m - m0;    sends m0 + x min(1, C/|x|) + sigma xi,    xi ~ N(0, I),    sigma = noise C,    C = `clip`

in every exchange, also before round 0. m is the whole message, all floating-point leaves as one vector, and m0 its predicted part
(`Exchange.predicted`), which follows from what was broadcast. Whatever the agent's data are, its message without the noise lies in
a ball of radius C around m0: other data move it by at most 2C. `fedpg.theory.privacy` computes what T such messages reveal.
Whatever comes later (compression, aggregation) sees only noised messages.

The noise must not come from the round's keys, which the server can compute. Every agent keeps a key of its own:

    key of the noise = fold_in(second, words of the round's key);   noise_key' = first        first, second = split(noise_key)

It starts from a constant, so that simulations are reproducible. A real agent calls `with_secret` once, before its first message, and
never returns to a key that it used before: two messages with the same noise would reveal their difference.
"""

import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, ServerState, exchanges_of, is_known, with_exchanges
from fedpg.algorithms.wrappers.attack import AttackedMessage
from fedpg.algorithms.wrappers.base import Wrapper, parts, require_messages
from fedpg.errors import require
from fedpg.trees import Tree

GENERATOR = "threefry2x32"
"""The random number generator of the noise: its keys are two 32-bit words."""


class AgentState(NamedTuple):
    """The algorithm's own state of an agent, and the key that its next noise comes from, (2,), uint32."""

    inner: Any
    noise_key: jax.Array


def next_noise_key(noise_key: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The key for the noise of one message, and the agent's noise_key after it, (2,); `key` is the round's."""
    kept, used = jax.random.split(jax.random.wrap_key_data(noise_key, impl=GENERATOR))
    words = jax.random.key_data(key).reshape(-1)
    for i in range(words.size):
        used = jax.random.fold_in(used, words[i])
    return used, jax.random.key_data(kept)


def with_secret(agent_state: Any, secret: bytes) -> Any:
    """`agent_state`, of a private algorithm and of any wrapper around it, with a noise_key that only the agent knows.

    Args:
        agent_state: of one agent.
        secret: at least 16 bytes that nobody else can know or guess, such as `os.urandom(32)`.
    """
    require(len(secret) >= 16, f"a secret must have at least 16 bytes, not {len(secret)}")
    words = jnp.asarray(np.frombuffer(hashlib.sha256(b"fedpg noise key" + secret).digest()[:8], np.uint32))
    paths, structure = jax.tree_util.tree_flatten_with_path(agent_state)
    found = [isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "noise_key" for path, _ in paths]
    require(sum(found) == 1, "only the state of an agent that adds noise (--noise) has a noise key")
    return jax.tree.unflatten(structure, [words if own else leaf for own, (_, leaf) in zip(found, paths, strict=True)])


def clipped(x: jax.Array, clip: Any) -> jax.Array:
    """x min(1, C/|x|); if one entry is not finite, none is."""
    largest = jnp.max(jnp.abs(x))
    unit = jnp.where(largest > 0, largest, 1.0)  # the square of a float may overflow, the square of x / unit cannot
    length = jnp.linalg.norm(x / unit)
    return jnp.where(unit * length > clip, x / unit * (clip / length), x) + 0.0 * length


def protected(message: Tree, predicted: Tree, key: jax.Array, clip: Any, noise: Any) -> Tree:
    """What is sent instead of `message`."""
    (real, others, join), known = parts(message), parts(predicted).real
    x, message_of = ravel_pytree(trees.subtract(real, known))
    short = clipped(x, clip)
    if not is_known(noise) or noise > 0:
        short = short + noise * clip * jax.random.normal(key, x.shape, x.dtype)
    return join(trees.add_scaled(known, 1.0, message_of(short)), others)


def require_real(name: str, message: Tree) -> None:
    """Rejects messages with whole numbers, which noise cannot protect. The key of an attacker does not depend on data."""
    own = message.inner if isinstance(message, AttackedMessage) else message
    require(not parts(own).others, f"{name} sends whole numbers, which noise does not protect: leave out --clip and --noise")


def private(clip: Any, noise: Any = 0.0) -> Wrapper:
    """Clips every message and adds Gaussian noise to it, before it leaves the agent.

    Args:
        clip: C, the largest distance of a message from its predicted part, in the units of the message; 0 switches the wrapper off.
        noise: sigma / C, the standard deviation of the noise on each entry in units of C; 0 only clips.
    """
    for name, value in (("clip", clip), ("noise", noise)):
        require(not is_known(value) or 0.0 <= value < float("inf"), f"{name} must be 0 (off) or positive and finite, not {value}")
    off = is_known(clip) and clip == 0
    bounded = not off or (is_known(noise) and noise == 0)
    require(bounded, "noise is in units of --clip: give the longest message that may be sent, as --clip")

    def wrap(algorithm: Algorithm) -> Algorithm:
        require_messages(algorithm, "--clip and --noise")

        def init(params: Any) -> tuple[ServerState, AgentState]:
            server, agent_state = algorithm.init(params)
            return server, AgentState(agent_state, jax.random.key_data(jax.random.key(0, impl=GENERATOR)))

        def with_noise(exchange: Exchange) -> Exchange:
            def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
                message, inner, info = exchange.local_update(key, shared, state.inner, agent)
                require_real(algorithm.name, message)
                used, noise_key = next_noise_key(state.noise_key, key)
                return protected(message, exchange.predicted(shared), used, clip, noise), AgentState(inner, noise_key), info

            return exchange._replace(local_update=local_update)

        changed = with_exchanges(algorithm, [with_noise(exchange) for exchange in exchanges_of(algorithm)])
        return changed._replace(init=init, deployed=lambda shared, state: algorithm.deployed(shared, state.inner))

    return Wrapper("private", None if off else wrap)
