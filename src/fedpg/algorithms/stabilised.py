"""FedSVRPG-S and FedHAPG-S: FedSVRPG-M and FedHAPG-M made stable, with momentum as a damper, not as an accelerator.

An agent walks along the direction that all agents found together, and leans towards its own gradient only by beta:

    agent    u_rk = beta g(tau|th_rk) + (1-beta) u_r + (1/kappa - beta) D,      th_{r,k+1} = th_rk + eta u_rk
    server   ubar = 1/(eta N K) sum_i Delta_i
             u_{r+1} = kappa ubar + (1-kappa) u_r = gamma gbar + (1-gamma) (u_r + Dbar),      gamma = kappa beta
             theta_{r+1} = theta_r + sigma lambda u_{r+1}

In its noise and in its drift a local path is then beta times that of PAvg. That quiet buys a server step sigma times as long,
which makes up for the lag of u_r where a run ends before it has learned. D is what the agent believes its gradient has changed by
since the last round:

    none     D = 0: the lag of u_r is accepted, and kappa shortens it
    memory   D = X = g - m_i, m_i the mean of the agent's own gradients in its last round: no lag, all the noise of g
    fitted   D = a_i Y, with Y measured on the sample at hand from thbar_i, the middle of the agent's last path: g - w g(tau|thbar_i)
             for FedSVRPG-S, a Hessian-vector product for FedHAPG-S; a_i = sum <X_{k+1}, Y_k> / sum |Y_k|^2 over the agent's last
             rounds, in [0, 1]: what Y has been worth in foretelling the next sample's X, whose noise is not its own

In round 0, without u_r, agents move along g; an agent without memory takes D = 0. The server may keep u to itself for
`plain_rounds` rounds, which are then PAvg's: u_1 of the first round would be walked 1/(kappa beta) times over, and at the
largest steps that is too far. Derivation, fixed point and ablation: docs/algorithms/fedsvrpg-s.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.fedavg_m import Shared
from fedpg.algorithms.pavg import pavg
from fedpg.errors import choose, require
from fedpg.gradients.importance import Weights

STRETCH = 1.1
"""sigma, unless it is given."""
FORGET = 0.5
"""What is kept, at the start of a round, of the sums behind a_i."""

Change = Callable[[Any, Params, Params, Params], tuple[Params, Weights]]
"""(sample, g, th_rk, thbar_i) -> Y, and the importance weights it used."""


class Past(NamedTuple):
    """What an agent remembers of its last round: 1 if there was one, m_i, thbar_i, the last Y, and the decayed sums behind a_i."""

    known: jax.Array
    gradient: Params
    centre: Params
    latest: Params
    along: jax.Array
    size: jax.Array


class AgentState(NamedTuple):
    """What an agent keeps: its baseline, and a `Past`, or () with lookback none."""

    memory: Any
    past: Any


def worth(past: Past) -> jax.Array:
    """a_i, (); 0 until something was measured."""
    return jnp.clip(past.along / jnp.where(past.size > 0, past.size, 1.0), 0.0, 1.0)


def few_steps_gain(beta: Any, local_steps: int) -> Any:
    """kappa where u_r lags: it remembers 1/(kappa beta) rounds, at most K/4 of them and at most 1/(2 beta)."""
    return jnp.maximum(2.0, 4.0 / (beta * local_steps))


def first_rounds(local_steps: int) -> int:
    """How many rounds at the start are PAvg's where u_r lags: those that hold the first 128 local steps, at most 4."""
    return min(4, math.ceil(128 / local_steps))


def _stabilised(
    name: str, problem: Problem, change: Change, lookback: str, beta: Any, local_lr: Any, global_lr: Any, local_steps: int,
    gain: Any, stretch: Any, plain_rounds: int | None,
) -> Algorithm:  # fmt: skip
    """The algorithm whose own measurement Y of the change since its last round is `change`."""
    choose("lookback", lookback, ("none", "memory", "fitted"))
    lags = lookback != "memory"  # which believes that it knows all of the change
    gain = (few_steps_gain(beta, local_steps) if lags else 1.0) if gain is None else gain
    plain_rounds = (first_rounds(local_steps) if lags else 1) if plain_rounds is None else plain_rounds
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    require(not base.is_known(gain) or gain > 0, f"gain must be positive, not {gain}")
    require(plain_rounds >= 1, f"plain_rounds must be at least 1 (there is no direction in round 0), not {plain_rounds}")
    if base.is_known(beta) and beta == 1.0:
        return pavg(problem, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)._replace(name=name)

    def lean(shared: Shared) -> jax.Array:
        """beta, or 1 while there is no direction to lean on."""
        return jnp.where(trees.norm_sq(shared.direction) > 0, beta, 1.0)

    def kappa(own: jax.Array) -> jax.Array:
        """The gain, or what makes u_{r+1} the mean gradient itself if that is less."""
        return jnp.minimum(gain, 1.0 / own)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        nothing, zero = trees.zeros_like(params), jnp.zeros(())
        past = () if lookback == "none" else Past(zero, nothing, nothing, nothing, zero, zero)
        private = () if plain_rounds == 1 else jnp.zeros((), int)  # rounds so far
        return ServerState(Shared(params, nothing), private), AgentState(problem.init_memory(), past)

    def look_back(sample: Any, g: Params, params: Params, before: Any, now: Any) -> tuple[Params, Any, Weights]:
        """D, and what will be remembered of this round, `now`, with this step in it."""
        if lookback == "none":
            return trees.zeros_like(g), now, base.no_weights()
        part, moved, weights = 1.0 / local_steps, trees.subtract(g, before.gradient), base.no_weights()
        now = now._replace(gradient=trees.add_scaled(now.gradient, part, g), centre=trees.add_scaled(now.centre, part, params))
        if lookback == "fitted":
            measured, weights = change(sample, g, params, before.centre)
            along, size = now.along + trees.inner(moved, now.latest), now.size + trees.norm_sq(now.latest)
            now = now._replace(along=along, size=size, latest=trees.scale(before.known, measured))
            moved = trees.scale(worth(before), measured)
        return trees.scale(before.known, moved), now, weights

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        own = lean(shared)
        ahead = jnp.where(own < 1.0, 1.0 / kappa(own) - own, 0.0)

        def local_step(carry: tuple, key: jax.Array) -> tuple[tuple, LocalInfo]:
            params, memory, now = carry
            sample, memory = problem.sample(key, params, agent, memory)
            g = problem.gradient(sample, params)
            d, now, weights = look_back(sample, g, params, state.past, now)
            u = jax.tree.map(lambda g, u_r, d: own * g + (1.0 - own) * u_r + ahead * d, g, shared.direction, d)
            return (base.ascend(problem, params, local_lr, u), memory, now), LocalInfo(problem.usage(sample), weights)

        now = trees.scale(0.0, state.past)
        if lookback != "none":
            now = now._replace(known=jnp.ones(()), along=FORGET * state.past.along, size=FORGET * state.past.size)
        start = (shared.params, state.memory, now)
        (params, *kept), infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), AgentState(*kept), base.total(infos)

    def aggregate(state: ServerState, messages: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        before, own = state.shared.direction, lean(state.shared)
        ubar, info = base.mean_direction(messages, present, local_steps, local_lr)
        louder = kappa(own)
        u = jax.tree.map(lambda u_r, ubar: louder * ubar + (1.0 - louder) * u_r, before, ubar)
        longer = jnp.where(own < 1.0, stretch, 1.0)  # beta = 1, and round 0, are PAvg
        params = base.ascend(problem, state.shared.params, longer * global_lr, u)
        told, rounds = u, state.private
        if plain_rounds > 1:
            rounds = rounds + 1
            told = jax.tree.map(lambda u: jnp.where(rounds < plain_rounds, 0.0, u), u)
        return ServerState(Shared(params, told), rounds), info._replace(direction_sq=trees.norm_sq(u))

    def predicted(shared: Shared) -> Params:
        # kappa > 1 in the server corrects for exactly this part: it must not arrive late, or shortened
        return trees.scale(local_lr * local_steps * (1.0 - lean(shared)), shared.direction)

    return Algorithm(name, init, local_update, aggregate, predicted=predicted)


def fedsvrpg_s(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, lookback: str = "auto",
    gain: Any = None, stretch: Any = STRETCH, plain_rounds: int | None = None,
) -> Algorithm:  # fmt: skip
    """FedSVRPG-S on `problem`; by default D = 0: no second gradient, no importance weights, nothing kept by the agents.

    Args:
        beta: in (0, 1]; 1 is PAvg, bit for bit. Noise and drift of local paths fall with beta, the bias they cause with beta^2.
        local_lr, global_lr, local_steps: eta, lambda (eta K if None) and K.
        lookback: where D comes from: none (auto), memory, fitted (importance weights).
        gain: kappa; if None max(2, 4/(beta K)), and 1, the printed server, for memory, whose u_r does not lag.
        stretch: sigma, how much longer the server steps than lambda.
        plain_rounds: how many rounds at the start are PAvg's. The first always is; if None those of the first 128 local steps, at
            most 4, and 1 for memory.
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        anchor, weights = problem.weighted_gradient(sample, centre, params)
        return trees.subtract(g, anchor), weights

    lookback, settings = "none" if lookback == "auto" else lookback, (gain, stretch, plain_rounds)
    return _stabilised("fedsvrpg-s", problem, change, lookback, beta, local_lr, global_lr, local_steps, *settings)


def fedhapg_s(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, lookback: str = "auto",
    gain: Any = None, stretch: Any = STRETCH, plain_rounds: int | None = None,
) -> Algorithm:  # fmt: skip
    """FedHAPG-S on `problem`; the arguments are those of `fedsvrpg_s`, except that `auto` is fitted.

    Y = Lambda(tau|th_rk, th_rk - thbar_i) is that of the near end, off by O(|th_rk - thbar_i|^2), and needs no importance weights.
    Where Lambda is worth nothing this is FedSVRPG-S, and with lookback none or memory it is so anyway.
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        return problem.hessian_vector(sample, params, trees.subtract(params, centre)), base.no_weights()

    lookback, settings = "fitted" if lookback == "auto" else lookback, (gain, stretch, plain_rounds)
    return _stabilised("fedhapg-s", problem, change, lookback, beta, local_lr, global_lr, local_steps, *settings)
