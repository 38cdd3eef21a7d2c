"""FedNPG: the exact natural policy gradient of the mean of the agents' values, with or without entropy.

    agent    sends Q_i(s,a), its value of the policy pi_r; with temperature tau that of r - tau log pi_r
    server   pi_{r+1}(a|s) prop. to pi_r(a|s)^{1 - eta tau m} exp(eta m mean_i Q_i(s,a)),     m = sum_t gamma^t

m is 1/(1-gamma) without a horizon. Derivation: on logits, the Fisher matrix of pi_r under the visits x(s)/m takes a direction w
to (x(s)/m) pi(a|s) (w(s,a) - sum_b pi(b|s) w(s,b)), so the natural gradient of J is m A(s,a), where with entropy
A(s,a) = Q(s,a) - tau log pi(a|s) - V(s). V(s) does not change the policy, and log pi + eta m (Q - tau log pi) is the line above.

Averaging Q_i is right for agents with one kernel. With different kernels they visit different states, and weighting=occupancy takes
sum_i x_i(s) Q_i(s,a) / sum_i x_i(s): then it is the natural gradient of the mean J_i again, because mean_i x_i(s) Q_i(s,a) is its
slope in pi(a|s).

After Yang, Cen, Wei, Chen, Chi, "Federated natural policy gradient and actor critic methods for multi-task reinforcement learning",
2023, with a server in place of its gossip.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.algorithms.pavg_exact import require_tables
from fedpg.errors import choose, require


class Message(NamedTuple):
    """What an agent sends: m Q_i(s,a) and (), or with weighting=occupancy x_i(s) m Q_i(s,a), (S, A), and x_i, (S,)."""

    values: jax.Array
    occupancy: Any


def fednpg(problem: Problem, *, local_lr: Any, temperature: Any = 0.0, weighting: str = "mean") -> Algorithm:
    """FedNPG on a finite MDP with a softmax table.

    Args:
        problem: a finite MDP with a tabular policy.
        local_lr: eta.
        temperature: tau, 0 or more; eta tau m must stay below 1.
        weighting: mean (the reference), or occupancy: agents count in a state as much as they visit it.
    """
    exact = require_tables("fednpg", problem, "softmax")
    by_occupancy = choose("weighting", weighting, ("mean", "occupancy")) == "occupancy"
    base.server_lr(local_lr, None, 1)
    require(not base.is_known(temperature) or temperature >= 0, f"temperature must be 0 or more, not {temperature}")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), ()

    def local_update(key: jax.Array, shared: Shared, nothing: Any, agent: Any) -> tuple[Message, Any, LocalInfo]:
        tables = exact.solve(shared.params, agent, temperature)
        # With - tau m log pi in the message the server's line is one addition; it knows pi_r and could subtract it again.
        log_pi = jax.nn.log_softmax(shared.params["logits"])
        values = jnp.sum(tables.occupancy) * (tables.values - temperature * log_pi)
        message = Message(tables.occupancy[:, None] * values, tables.occupancy) if by_occupancy else Message(values, ())
        return message, nothing, base.no_cost()

    def aggregate(state: ServerState, messages: Message, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        values, occupancy = base.mean(messages, present)
        if by_occupancy:
            values = values / jnp.where(occupancy > 0, occupancy, 1.0)[:, None]
        logits = jax.nn.log_softmax(state.shared.params["logits"]) + local_lr * values
        params = {"logits": jax.nn.log_softmax(logits)}
        u = trees.scale(1.0 / local_lr, trees.subtract(params, state.shared.params))
        return ServerState(Shared(params)), RoundInfo(trees.norm_sq(u), jnp.zeros(()))

    def predicted(shared: Shared) -> Message:
        table = jnp.zeros_like(shared.params["logits"])
        return Message(table, table[:, 0] if by_occupancy else ())

    return Algorithm("fednpg", init, local_update, aggregate, predicted=predicted)
