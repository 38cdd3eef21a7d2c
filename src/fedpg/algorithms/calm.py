"""CALM, corrected averaging with lean momentum: agents follow the common direction and correct it by what changed in their own gradient.

    agent    th_0 = theta_r;   th_{k+1} = th_k + eta [ u_r + beta (g_i(tau|th_k) - c_i) ]              K times
             sends m_i, the mean of its K gradients, and keeps c_i = m_i
    server   ybar  = mean_i y_i                 y_i: the last message of agent i, p: the share of agents present
             u_{r+1} = rho' ybar + (1-rho') u_r                                  rho' = min(1, rho/p)
             theta_{r+1} = theta_r + lambda [ u_{r+1} + (1-p) mean_present (m_i - y_i before) ]
    start    without u_r agents move along g, and u_1 = ybar; an agent without c_i uses u_r in its place

With all agents present p = 1, ybar is the mean of the m_i and the last term is 0. Where some are absent, that term adds the news that the
table does not hold yet (the step is SAGA's, unbiased, where p <= rho), and rho/p keeps the rate at which u takes up news at rho. At rest
with exact gradients c_i is the agent's own gradient, its path does not drift, and grad J = 0.
docs/explanation/calm.md derives this.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.errors import require

ABSENCE = 10.0
"""A message is forgotten after ABSENCE/p rounds: agents drawn at random stay away that long with probability e^-10."""


class Shared(NamedTuple):
    """What the server broadcasts: theta_r and u_r, which is 0 in round 0."""

    params: Params
    direction: Params


class AgentState(NamedTuple):
    """What an agent keeps: its baseline, c_i, and 1 once it has a c_i, ()."""

    memory: Any
    variate: Params
    known: jax.Array


class Table(NamedTuple):
    """What the server remembers: the last message of every agent, leading axis N, and how many rounds ago it came, (N,)."""

    messages: Params
    age: jax.Array


def calm(
    problem: Problem,
    *,
    beta: Any = 0.2,
    server_rate: Any = 0.4,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    agents: int | None = None,
) -> Algorithm:
    """CALM on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1], how much agents lean towards their own gradient. Noise and drift of local paths are beta times PAvg's.
        server_rate: rho in (0, 1], how fast u follows the mean gradient. With beta = rho = 1 this is SCAFFOLD.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        agents: N, for a server that remembers their messages; if None it averages those present, which is the same if all are.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    require(not base.is_known(server_rate) or 0.0 < server_rate <= 1.0, f"server_rate must be in (0, 1], not {server_rate}")

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = trees.zeros_like(params)
        table = () if agents is None else Table(trees.broadcast(zero, agents), jnp.full(agents, 2**30))
        return ServerState(Shared(params, zero), table), AgentState(problem.init_memory(), zero, jnp.zeros(()))

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        started = trees.norm_sq(shared.direction) > 0
        lean = jnp.where(started, beta, 1.0)
        variate = trees.select(started & (state.known > 0), state.variate, shared.direction)

        def tilt(g: Params, params: Params) -> Params:
            return jax.tree.map(lambda u_r, g, c: u_r + lean * (g - c), shared.direction, g, variate)

        def local_step(carry: tuple[Params, Params, Any], key: jax.Array) -> tuple[tuple[Params, Params, Any], LocalInfo]:
            params, mean, memory = carry
            moved, memory, info = base.sample_direction(problem, key, params, agent, memory, local_lr, tilt)
            params = base.ascend(problem, params, local_lr, moved.direction)
            return (params, trees.add_scaled(mean, 1.0 / local_steps, moved.own), memory), info

        start = (shared.params, trees.zeros_like(shared.params), state.memory)
        (_, mean, memory), infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        return mean, AgentState(memory, mean, jnp.ones(())), base.total(infos)

    def aggregate(state: ServerState, messages: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        (params, u_r), table = state.shared, state.private
        rate, news, mean = server_rate, trees.zeros_like(u_r), base.mean(messages, present)
        if agents is not None:
            share = jnp.mean(present > 0, dtype=present.dtype)
            table, news, mean = remember(table, messages, present, ABSENCE / share)
            rate, news = jnp.minimum(1.0, server_rate / share), trees.scale(1.0 - share, news)
        rate = jnp.where(trees.norm_sq(u_r) > 0, rate, 1.0)
        u = jax.tree.map(lambda mean, u_r: rate * mean + (1.0 - rate) * u_r, mean, u_r)
        params = base.ascend(problem, params, global_lr, trees.add_scaled(u, 1.0, news))
        own_steps = (local_lr * local_steps) ** 2 * base.mean(jax.vmap(trees.norm_sq)(messages), present)
        return ServerState(Shared(params, u), table), RoundInfo(trees.norm_sq(u), own_steps)

    return Algorithm("calm", init, local_update, aggregate)


def remember(table: Table, messages: Params, present: jax.Array, longest: jax.Array) -> tuple[Table, Params, Params]:
    """The table with the messages of the agents present, what is new in them on average, and the mean message of all agents.

    Messages older than `longest` rounds are forgotten: the mean of the others takes their place until the agent comes back.
    """
    usual = base.mean(table.messages, (table.age <= longest).astype(present.dtype))

    def by_agent(condition: jax.Array, a: Params, b: Params) -> Params:
        return jax.vmap(trees.select)(condition, a, b)

    last = by_agent(table.age <= longest, table.messages, trees.broadcast(usual, len(present)))
    news = base.mean(trees.subtract(messages, last), present)
    table = Table(by_agent(present > 0, messages, last), jnp.where(present > 0, 0, table.age + 1))
    return table, news, base.mean(table.messages, (table.age <= longest).astype(present.dtype))
