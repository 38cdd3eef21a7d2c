"""FedSVRPG-S: FedSVRPG-M made stable, with momentum as a damper instead of an accelerator.

    agent    u_rk = beta g(tau|th_rk) + (1-beta) u_r;   th_{r,k+1} = th_rk + eta u_rk        K times; sends Delta_i = th_rK - theta_r
    server   ubar = 1/(eta N K) sum_i Delta_i;          u_{r+1} = kappa ubar + (1-kappa) u_r
             theta_{r+1} = theta_r + sigma lambda u_{r+1}

The agent half is FedAvg-M's: the noise and drift of a local path are beta times those in PAvg. That allows a server step sigma times as
long, which makes up for the lag of u_r. The first `plain_rounds` rounds are PAvg's: u_1 would be walked 1/(kappa beta) times over, and
at the largest steps that is too far. Derivation and fixed point: docs/algorithms/fedsvrpg-s.md.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.fedavg_m import Shared, fedavg_m, share_of_own
from fedpg.algorithms.pavg import pavg
from fedpg.errors import require


def fedsvrpg_s(
    problem: Problem,
    *,
    beta: Any = 0.2,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    gain: Any = None,
    stretch: Any = 1.1,
    plain_rounds: int | None = None,
) -> Algorithm:
    """FedSVRPG-S on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg, bit for bit. Noise and drift of local paths fall with beta, the bias they cause with beta^2.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        gain: kappa; max(2, 4/(beta K)) if None, so that u_r remembers at most K/4 and at most 1/(2 beta) rounds.
        stretch: sigma, how much longer the server steps than lambda.
        plain_rounds: how many rounds at the start are PAvg's, at least 1; if None those of the first 128 local steps, at most 4.
    """
    if base.is_known(beta) and beta == 1.0:
        return pavg(problem, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)._replace(name="fedsvrpg-s")
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    gain = jnp.maximum(2.0, 4.0 / (beta * local_steps)) if gain is None else gain
    plain_rounds = min(4, math.ceil(128 / local_steps)) if plain_rounds is None else plain_rounds
    require(not base.is_known(gain) or gain > 0, f"gain must be positive, not {gain}")
    require(plain_rounds >= 1, f"plain_rounds must be at least 1 (there is no direction in round 0), not {plain_rounds}")

    agent_half = fedavg_m(problem, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, trees.zeros_like(params)), jnp.zeros((), int)), problem.init_memory()

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        shared, rounds, own = state.shared, state.private + 1, share_of_own(beta, state.shared)
        ubar, info = base.mean_direction(deltas, present, local_steps, local_lr)
        kappa = jnp.minimum(gain, 1.0 / own)  # at most what makes u_{r+1} the mean gradient itself
        u = jax.tree.map(lambda u_r, ubar: kappa * ubar + (1.0 - kappa) * u_r, shared.direction, ubar)
        sigma = jnp.where(own < 1.0, stretch, 1.0)
        params = base.ascend(problem, shared.params, sigma * global_lr, u)
        sent = jax.tree.map(lambda u: jnp.where(rounds < plain_rounds, 0.0, u), u)
        return ServerState(Shared(params, sent), rounds), info._replace(direction_sq=trees.norm_sq(u))

    return agent_half._replace(name="fedsvrpg-s", init=init, aggregate=aggregate)
