"""The problem binds environment, policy and estimator: what a sample holds, costs and leaves behind."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import MDP, environment
from fedpg.errors import UserError
from fedpg.gradients import batch, exact, hvp, tabular
from fedpg.gradients.baselines import DECAY
from fedpg.gradients.batch import Batch
from fedpg.gradients.tabular import Visits
from fedpg.policies import categorical, softmax
from fedpg.problem import policy_gradient
from helpers import enumeration
from helpers.compare import assert_trees_close, largest_difference, normal_like
from helpers.enumeration import DISCOUNT, HORIZON, softmax_table
from helpers.environments import CLOCK, clock

TINY = environment("tiny", 2, 2)
POLICY = softmax(TINY)
PARAMS = {"logits": jnp.array([[0.3, -0.8], [1.1, 0.4]])}
KEY = jax.random.key(0)
GRADIENT = jax.jit(lambda params, mdp: exact.gradient(POLICY, params, mdp, DISCOUNT, HORIZON))


def tiny_problem(**options):
    return policy_gradient(TINY, POLICY, **({"horizon": HORIZON, "discount": DISCOUNT} | options))


def clock_problem(**options):
    return policy_gradient(CLOCK, categorical(CLOCK, (2,)), **({"horizon": 4, "discount": 0.5, "batch_size": 3} | options))


def test_baseline_values_come_from_before_the_update() -> None:
    """A sample carries predictions of the memory it was given; what it teaches is used from the next sample on."""
    problem, agent = clock_problem(baseline="time"), clock(3)
    params, memory = jax.jit(problem.init_params)(KEY), problem.init_memory()
    sample = jax.jit(problem.sample)
    first, memory = sample(KEY, params, agent, memory)
    np.testing.assert_array_equal(first.baseline, 0.0)
    second, memory = sample(KEY, params, clock(2), memory)
    # rewards 1, 2, 3 at discount 1/2: 1 + 1 + 3/4, 2 + 3/2, 3; nothing was seen of the fourth step
    np.testing.assert_allclose(second.baseline, [[2.75, 3.5, 3.0, 0.0]] * 3, rtol=1e-6)
    third, _ = sample(KEY, params, agent, memory)
    mixed = [(DECAY * 2.75 + 2.0) / (DECAY + 1), (DECAY * 3.5 + 2.0) / (DECAY + 1), 3.0, 0.0]
    np.testing.assert_allclose(third.baseline, [mixed] * 3, rtol=1e-6)


def test_usage_counts_what_was_executed() -> None:
    """Three trajectories that end after 3 of 4 steps, paying 1 + 2 + 3 each."""
    problem = clock_problem()
    usage = jax.jit(lambda agent: problem.usage(problem.sample(KEY, problem.init_params(KEY), agent, ())[0]))(clock(3))
    assert [float(x) for x in usage[:3]] == [3, 9, 18]
    assert usage.observations == ()


def test_evaluation_by_episodes() -> None:
    """Return 1 + 2 + 3 and objective 1 + 1 + 3/4 of an environment that pays the same every time; no exact gradient."""
    problem = clock_problem(eval_episodes=5)
    evaluation = jax.jit(lambda agent: problem.evaluate(KEY, problem.init_params(KEY), agent))(clock(3))
    assert float(evaluation.total_return) == pytest.approx(6.0)
    assert float(evaluation.objective) == pytest.approx(2.75)
    assert evaluation.gradient == ()


def test_evaluation_of_a_finite_mdp_is_exact() -> None:
    """Return and objective by enumeration of all trajectories, and the exact gradient."""
    mdp = enumeration.tiny_mdp()
    tau = enumeration.all_trajectories(mdp)
    p = enumeration.probabilities(mdp, softmax_table(PARAMS["logits"]), tau)
    reward = np.asarray(tau.reward)
    evaluation = jax.jit(tiny_problem().evaluate)(KEY, PARAMS, mdp)
    assert float(evaluation.total_return) == pytest.approx(p @ reward.sum(1), rel=1e-5)
    assert float(evaluation.objective) == pytest.approx(p @ (reward @ DISCOUNT ** np.arange(HORIZON)), rel=1e-5)
    assert_trees_close(evaluation.gradient, GRADIENT(PARAMS, mdp), rtol=1e-5)


@pytest.mark.parametrize(("baseline", "weights"), [("none", "trajectory"), ("value", "trajectory"), ("value", "prefix")])
def test_sampled_gradients_average_to_the_exact_one(baseline: str, weights: str) -> None:
    """Mean over many samples of g, and of F at other params, within 4.5 standard errors: rollout and estimator together."""
    mdp, problem, count = enumeration.tiny_mdp(), tiny_problem(batch_size=2, baseline=baseline, importance=weights), 4000
    there = {"logits": PARAMS["logits"] + jnp.array([[0.3, -0.2], [-0.4, 0.1]])}
    _, memory = jax.jit(problem.sample)(jax.random.key(9), PARAMS, mdp, problem.init_memory())

    @jax.jit
    @jax.vmap
    def estimate(key: jax.Array) -> tuple:
        sample, _ = problem.sample(key, PARAMS, mdp, memory)
        return problem.gradient(sample, PARAMS)["logits"], problem.weighted_gradient(sample, there, PARAMS)[0]["logits"]

    for estimates, params in zip(estimate(jax.random.split(KEY, count)), (PARAMS, there), strict=True):
        error = np.asarray(estimates.mean(0) - GRADIENT(params, mdp)["logits"])
        assert (np.abs(error) <= 4.5 * np.asarray(estimates.std(0)) / np.sqrt(count)).all()


@pytest.mark.parametrize(("option", "kept"), [({}, Visits), ({"baseline": "time"}, Batch), ({"importance": "prefix"}, Batch)])
def test_trajectories_are_kept_only_where_counts_do_not_suffice(option: dict, kept: type) -> None:
    problem = tiny_problem(**option)
    sample, _ = jax.eval_shape(problem.sample, KEY, PARAMS, enumeration.tiny_mdp(), problem.init_memory())
    assert isinstance(sample, kept)


@pytest.mark.parametrize(
    ("module", "weights", "cap"), [(batch, "prefix", 2.0), (tabular, "truncated", 1.01), (tabular, "self-normalised", 2.0)]
)
def test_options_reach_the_estimators(module: ModuleType, weights: str, cap: float) -> None:
    """The problem's functions are those of `gradients`, with its discount, kind of weight and cap."""
    problem = tiny_problem(batch_size=3, importance=weights, weight_cap=cap)
    there, vector = normal_like(3, PARAMS), normal_like(2, PARAMS)
    discount = {"discount": DISCOUNT} if module is batch else {}  # visits were discounted as they were counted

    @jax.jit
    def estimates(mdp: MDP) -> tuple:
        sample, _ = problem.sample(KEY, PARAMS, mdp, ())

        def weighted(params: Any, behaviour: Any, **kind: Any) -> Any:
            return module.weighted_gradient(POLICY, params, behaviour, sample, **discount, **kind)[0]

        chosen = functools.partial(weighted, kind=weights, cap=cap)
        asked = problem.weighted_gradient(sample, there, PARAMS)[0], problem.hessian_vector(sample, PARAMS, vector)
        return asked, (chosen(there, PARAMS), hvp.hessian_vector(chosen, PARAMS, vector)), weighted(there, PARAMS)

    asked, direct, paper = estimates(enumeration.tiny_mdp())
    assert_trees_close(asked, direct, rtol=1e-5, atol=1e-6)
    assert largest_difference(asked[0], paper) > 1e-3


def test_normalise_standardises_the_batch() -> None:
    """With the option, gradients do not depend on the scale of rewards."""
    mdp, problem = enumeration.tiny_mdp(), tiny_problem(batch_size=8, normalise_advantages=True)
    gradient = jax.jit(lambda agent: problem.gradient(problem.sample(KEY, PARAMS, agent, ())[0], PARAMS))
    g = [gradient(mdp._replace(reward=k * mdp.reward)) for k in (1.0, 50.0)]
    assert_trees_close(g[1], g[0], rtol=1e-3, atol=1e-5)
    assert np.abs(g[0]["logits"]).max() > 1e-2


def test_whole_trajectories_on_request_give_the_same_gradient() -> None:
    """The same keys visit the same states, whether visits are counted or trajectories kept."""
    counted = tiny_problem(batch_size=3, baseline="value")
    whole = counted.trajectories()

    @jax.jit
    def gradients(mdp: MDP) -> list:
        samples = [problem.sample(KEY, PARAMS, mdp, problem.init_memory())[0] for problem in (counted, whole)]
        assert [type(sample) for sample in samples] == [Visits, Batch]
        return [problem.gradient(sample, PARAMS) for problem, sample in zip((counted, whole), samples, strict=True)]

    assert_trees_close(*gradients(enumeration.tiny_mdp()), rtol=1e-5, atol=1e-6)
    assert whole.trajectories().sample is whole.sample


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"horizon": 0}, "horizon and batch must be at least 1"),
        ({"batch_size": 0}, "horizon and batch must be at least 1"),
        ({"discount": 0.0}, "discount must be in"),
        ({"discount": 1.01}, "discount must be in"),
        ({"weight_cap": 0.0}, "weight-cap must be above 1"),
        ({"importance": "prefx"}, "unknown weights 'prefx': did you mean 'prefix'"),
        ({"baseline": "valu"}, "unknown baseline 'valu': did you mean 'value'"),
    ],
)
def test_mistakes_are_user_errors(option: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny_problem(**option)
