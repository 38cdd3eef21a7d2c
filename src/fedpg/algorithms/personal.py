"""Params of which a part is the agent's own: its head, its observation scaling, or its critic.

    common      trained together: what travels, and what an algorithm sees as params
    own         in the agent's memory, moved by the same directions:   own <- own + eta * (the direction's own part)

An algorithm sees a problem with fewer params and works as it is. A tilt acts on the common part only: nothing is known about the own
parts of others.
"""

from typing import Any, NamedTuple

import jax

from fedpg import moments, trees
from fedpg.algorithms.base import Algorithm
from fedpg.errors import require
from fedpg.learners.reinforce import Moved, Tilt, along
from fedpg.policies.critic import Judged
from fedpg.policies.scaled import Scale, Scaled, scale_of
from fedpg.problem import Problem
from fedpg.trees import Params, Tree

PARTS = ("heads", "scaling", "critic")


class Own(NamedTuple):
    """The memory of an agent with params of its own.

    Attributes:
        params: its own part, with None in the place of everything common.
        seen: the moments of its observations so far; () unless its scaling is its own.
        inner: the memory of the problem itself.
    """

    params: Params
    seen: Any
    inner: Any


def own_parts(params: Params, parts: frozenset[str]) -> Tree:
    """Whether each leaf of `params` belongs to `parts`, some of `PARTS`: a tree of booleans."""
    if isinstance(params, Scaled):
        return Scaled(own_parts(params.inner, parts), Scale("scaling" in parts, "scaling" in parts))
    if isinstance(params, Judged):
        return Judged(own_parts(params.policy, parts), jax.tree.map(lambda _: "critic" in parts, params.critic))
    if "heads" not in parts:
        return jax.tree.map(lambda _: False, params)
    layered = isinstance(params, dict) and len(params.get("layers", ())) > 1
    require(layered, "personal heads need a policy of at least two layers: use --policy auto and --hidden, or another --personal")
    last = len(params["layers"]) - 1
    layers = [jax.tree.map(lambda _, own=i == last: own, layer) for i, layer in enumerate(params["layers"])]
    return {name: layers if name == "layers" else jax.tree.map(lambda _: True, value) for name, value in params.items()}


def split(params: Params, own: Tree) -> tuple[Params, Params]:
    """The common and the own part of params, each with None in the place of the other."""
    return tuple(jax.tree.map(lambda mine, x, kept=kept: x if mine == kept else None, own, params) for kept in (False, True))


def join(common: Params, own: Params) -> Params:
    """The params of which these are the two parts."""
    return jax.tree.map(lambda x, y: y if x is None else x, common, own, is_leaf=lambda x: x is None)


def keep_own(problem: Problem, parts: frozenset[str]) -> Problem:
    """`problem` whose params are the common part only; the parts named are in the agents' memories."""
    if not parts:
        return problem
    mask = own_parts(jax.eval_shape(problem.init_params, jax.random.key(0)), parts)
    learn = problem.direction or along(problem.gradient)
    rescaled = "scaling" in parts

    def whole(common: Params, memory: Own) -> Params:
        return join(common, memory.params)

    def init_memory() -> Own:
        own = split(problem.init_params(jax.random.key(0)), mask)[1]
        return Own(own, moments.nothing(own.scale.mean.size) if rescaled else (), problem.init_memory())

    def sample(key: jax.Array, params: Params, agent: Any, memory: Own) -> tuple[Any, Own]:
        drawn, inner = problem.sample(key, whole(params, memory), agent, memory.inner)
        return drawn, memory._replace(inner=inner)

    def direction(key: jax.Array, sample: Any, params: Params, memory: Own, tilt: Tilt, local_lr: Any) -> tuple[Moved, Own]:
        def tilt_common(step: Params, at: Params) -> Params:
            (common, own), (at, _) = split(step, mask), split(at, mask)
            return join(tilt(common, at), own)

        full = whole(params, memory)
        moved, inner = learn(key, sample, full, memory.inner, tilt_common, local_lr)
        own, seen = split(problem.project(trees.add_scaled(full, local_lr, moved.direction)), mask)[1], memory.seen
        if rescaled:  # only now: the sample was drawn with the old scale
            seen = moments.merge(trees.stack([seen, problem.usage(sample).observations]))
            own = own._replace(scale=scale_of(seen, own.scale.mean.shape))
        return Moved(*(split(part, mask)[0] for part in moved)), Own(own, seen, inner)

    return problem._replace(
        init_params=lambda key: split(problem.init_params(key), mask)[0],
        init_memory=init_memory,
        sample=sample,
        direction=direction,
        gradient=None,
        weighted_gradient=None,
        hessian_vector=None,
        trajectories=None,
        exact=None,
        pooled=None,
    )


def deploy_own(algorithm: Algorithm, parts: frozenset[str]) -> Algorithm:
    """`algorithm` on a problem of `keep_own`, whose agents deploy the common part with their own; a critic is not deployed."""
    if not parts - {"critic"}:
        return algorithm

    def deployed(shared: Any, agent_state: Any) -> Params:
        found = [x for x in jax.tree.leaves(agent_state, is_leaf=_is_own) if _is_own(x)]
        return join(algorithm.deployed(shared, agent_state), found[0].params)

    return algorithm._replace(deployed=deployed, personal=True)


def _is_own(tree: Any) -> bool:
    return isinstance(tree, Own)
