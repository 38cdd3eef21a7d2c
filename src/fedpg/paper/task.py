"""Tasks: environment families with their sizes, as experiments learn on them, and how a method is measured on one."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import envs, policies, trees
from fedpg.algorithms.selection import EVERYONE, Participation
from fedpg.envs import Federation, tabular
from fedpg.envs.tabular import MDP, ConflictOptions, RandomMDPOptions, conflicting_mdps, random_mdps
from fedpg.paper import families
from fedpg.paper.jobs import cached
from fedpg.paper.method import Method
from fedpg.problem import Problem, exact_policy_gradient, policy_gradient
from fedpg.quadratic import bowls, quadratic
from fedpg.runs.sweep import Curves, curves
from fedpg.simulate import Simulator, simulator

LEAST_CHANCE = 0.5
"""The right action opens a door with a probability from here to 1."""
PAY_SPREAD = 0.5
"""Standard deviation of the logarithm of an agent's pay."""


def doors(key: jax.Array, agents: int = 3, states: int = 3, actions: int = 3) -> MDP:
    """N corridors of `states` - 1 doors, leading axis N, whose best common policy is stochastic: J has its peak at finite logits.

    Each agent has one action that opens a door; any other leaves it in place. Passing a door pays, and the last state pays nothing. A
    common policy cannot observe which agent it serves: it is a memoryless policy of a partially observed MDP, whose best is stochastic
    in general (Singh, Jaakkola and Jordan, "Learning without state-estimation in partially observable Markovian decision processes",
    ICML 1994).
    """
    order_key, chance_key, pay_key = jax.random.split(key, 3)
    orders = jax.vmap(lambda k: jax.random.permutation(k, actions))(jax.random.split(order_key, states - 1))  # (S-1, A)
    opens = jax.nn.one_hot(orders[:, jnp.arange(agents) % actions].T, actions)  # (N, S-1, A)
    passes = opens * jax.random.uniform(chance_key, (agents, states - 1, 1), minval=LEAST_CHANCE)
    passes = jnp.concatenate([passes, jnp.zeros((agents, 1, actions))], axis=1)  # (N, S, A): no door in the last state
    here, beyond = jnp.eye(states)[:, None], jnp.eye(states, k=1)[:, None]
    pay = jnp.exp(PAY_SPREAD * jax.random.normal(pay_key, (agents, 1, 1)))
    start = jnp.where(jnp.arange(states) < states - 1, 1.0 / (states - 1), 0.0)
    transition = passes[..., None] * beyond + (1.0 - passes[..., None]) * here
    return MDP(transition, pay * passes, jnp.broadcast_to(start, (agents, states)))


def mixture(key: jax.Array, seed: Any, agents: int, size: int = 5) -> MDP:
    """Random MDPs with common rewards for even seeds, conflicting MDPs with a common kernel for odd ones: one program runs both."""
    random = random_mdps(key, agents, 1.0, RandomMDPOptions(size, size))
    return trees.select(seed % 2 == 0, random, conflicting_mdps(key, agents, 1.0, ConflictOptions(size, size)))


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment family, the size of the federation, and how gradients are estimated."""

    name: str
    """Identifies it in results."""
    env: str = "conflict"
    """A built-in family, or `quadratics`, `doors`, `mixture` or one of `families.NAMES`, which only experiments use."""
    agents: int = 5
    """N."""
    heterogeneity: float = 1.0
    """Of the family."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The family's other options."""
    local_steps: int = 32
    """K."""
    rounds: int = 100
    """R."""
    horizon: int = 50
    """H."""
    discount: float = 0.9
    """gamma."""
    batch: int = 1
    """Trajectories per local step."""
    baseline: str = "value"
    """Subtracted from returns."""
    importance: str = "trajectory"
    """Kind of importance weight."""
    eval_episodes: int = 32
    """Episodes of an evaluation, where it is not exact."""
    exact: bool = False
    """Exact gradients instead of sampled ones."""
    dishonest: bool = False
    """Agents may misreport their trajectories."""

    def federation(self) -> Federation:
        """The environment and its agents."""
        if self.env == "quadratics":
            return Federation(None, lambda key, seed: bowls(key, self.agents, self.heterogeneity))
        if self.env == "doors":
            # Agents i and i + 3 are the same, so that J is the same for every N that is divisible by 3.
            which = jnp.arange(self.agents) % (1 if self.options.get("identical") else 3)
            return Federation(tabular.environment("doors", 3, 3), lambda key, seed: trees.take(doors(key), which))
        if self.env == "mixture":
            return Federation(tabular.environment("mixture", 5, 5), lambda key, seed: mixture(key, seed, self.agents))
        if self.env in families.NAMES:
            return families.federation(self.env, self.agents, self.heterogeneity, self.options)
        return envs.make(self.env, self.agents, self.heterogeneity, self.options)

    def problem(self, method: Method, federation: Federation | None = None) -> Problem:
        """The problem that a method learns, in the environment of a federation that has been made; None makes one."""
        if self.env == "quadratics":
            return quadratic()
        environment = (federation or self.federation()).environment
        policy = policies.make(method.policy, environment)
        if self.exact:
            return exact_policy_gradient(environment, policy, discount=self.discount)
        return policy_gradient(
            environment, policy, horizon=self.horizon, discount=self.discount, batch_size=self.batch,
            baseline=method.baseline or self.baseline, importance=method.importance or self.importance, eval_episodes=self.eval_episodes,
            dishonest=self.dishonest,
        )  # fmt: skip

    def simulator(
        self, method: Method, settings: dict[str, Any], seeds: int, participation: Participation = EVERYONE, **fixed: Any
    ) -> Simulator:
        """A simulator of the method in all settings, arrays (P,) by name; `fixed` are settings that shape the program."""
        federation = self.federation()  # one for both: MuJoCo's environment holds the models of the agents that were prepared for it
        problem = self.problem(method, federation)
        given = {"local_steps": self.local_steps, "batch": self.batch, "agents": self.agents} | fixed
        grid = {name: jnp.asarray(values, float) for name, values in settings.items()}

        def make(setting: dict[str, Any]) -> Any:
            return method.make(problem, **given | setting)

        return simulator(problem, make, federation, seeds=seeds, settings=grid, participation=participation)


def measure(
    task: Task,
    method: Method,
    settings: dict[str, Any],
    *,
    seeds: int,
    root: int = 0,
    rounds: Sequence[int] = (),
    tell: Callable[[float], None] = lambda share: None,
    like: list[Simulator] | None = None,
    **fixed: Any,
) -> Curves:
    """Runs a method in all settings on all seeds and evaluates after `rounds`, by default the task's last; cached.

    Returns and objectives are means over agents, (P, S, T). A seed has the same agents and random numbers in every setting. Exact
    gradients are computed in double precision. `like` is a list that gets the simulator of the first task that is measured with it;
    tasks that differ in nothing but the heterogeneity of their agents then use its programs.
    """
    when = list(rounds or (task.rounds,))
    named = (task, method, {name: np.asarray(values).tolist() for name, values in settings.items()}, seeds, root, when, fixed)

    def make() -> Curves:
        with jax.enable_x64(task.exact or jax.config.jax_enable_x64):
            sim = like[0].on(task.federation()) if like else task.simulator(method, settings, seeds, **fixed)
            if like == []:
                like.append(sim)
            found = curves(sim, jax.random.key(root), when, tell=tell)
        return found._replace(returns=found.returns.mean(-1), objective=found.objective.mean(-1))

    return cached(named, make)
