"""Lanes together compute what each computes alone: in XLA, and in the CUDA C, compiled here for the CPU."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import cartpole
from fedpg.gradients import lanes, lanes_cuda, lanes_xla
from fedpg.gradients.gpomdp import surrogate
from fedpg.gradients.rollout import Trajectory, log_probs, rollout
from fedpg.policies import make
from helpers.compare import assert_trees_close

HORIZON, LANES = 12, 5
ENVIRONMENT = cartpole.ENVIRONMENT
SHIM = """#include <math.h>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(x)
#define __ldg(p) (*(p))
#define __fdividef(a, b) ((a) / (b))
#define __any_sync(m, p) (p)
#define __activemask() 0
static struct { int x; } blockIdx, threadIdx;
"""


def drawn(scaled: bool) -> tuple[Any, ...]:
    """A policy, and keys, params and environments of a few lanes that fall at different times."""
    policy = make("categorical", ENVIRONMENT, hidden=(3, 4), scaled=scaled)
    keys = jax.random.split(jax.random.key(0), LANES)
    params = jax.vmap(policy.init)(keys)
    params = jax.tree.map(lambda x: x + 0.4 * jax.random.normal(jax.random.key(x.size), x.shape), params)
    agents = jax.vmap(lambda key: cartpole.cartpoles(key, 1, 1.0, cartpole.CartPole(theta_threshold=0.06)))(keys)
    return policy, keys, params, jax.tree.map(lambda x: x[:, 0], agents)


def one_by_one(policy: Any, keys: Any, params: Any, agents: Any) -> Trajectory:
    """Trajectories drawn by the definition, leading axis lanes."""
    each = [
        functools.partial(rollout, ENVIRONMENT, policy, HORIZON)(keys[i], *jax.tree.map(lambda x, i=i: x[i], (params, agents)))
        for i in range(LANES)
    ]
    return jax.tree.map(lambda *x: jnp.stack(x), *each)


def gradients(policy: Any, params: Any, tau: Trajectory, coefficient: jax.Array) -> tuple[Any, jax.Array]:
    """Gradients and log probabilities by differentiation."""
    direction = jax.vmap(lambda *x: jax.grad(surrogate, 1)(policy, *x))(params, tau, coefficient)
    return policy.free(direction), jax.vmap(functools.partial(log_probs, policy))(params, tau)


@pytest.mark.parametrize("scaled", [False, True])
def test_lanes_are_what_each_is_alone(scaled: bool) -> None:
    policy, keys, params, agents = drawn(scaled)
    assert lanes.applies(ENVIRONMENT, policy)
    tau = one_by_one(policy, keys, params, agents)
    assert len(set(tau.mask.sum(1).tolist())) > 1
    draw, scorer = lanes.sampler(ENVIRONMENT, policy, HORIZON), lanes.scorer(policy)
    # Twice the same key: the second trajectory of a batch has lanes of its own.
    found = jax.jit(jax.vmap(lambda key, *rest: draw(jnp.stack([key, key]), *rest)))(keys, params, agents)
    for k in range(2):
        assert_trees_close(jax.tree.map(lambda x, k=k: x[:, k], found)._replace(action=found.action[:, k] * tau.mask.astype(int)),
                           tau._replace(action=tau.action * tau.mask.astype(int)), rtol=1e-5, atol=1e-6)  # fmt: skip
    coefficient = jax.random.normal(jax.random.key(1), tau.mask.shape) * tau.mask
    batch = jax.tree.map(lambda x: x[:, None], tau)
    direction, judged = jax.jit(jax.vmap(scorer.score))(params, batch, coefficient[:, None])
    expected, log_pi = gradients(policy, params, tau, coefficient)
    assert_trees_close(policy.free(jax.tree.map(lambda x: x[:, 0], direction)), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(judged[:, 0], log_pi, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(jax.jit(jax.vmap(scorer.log_probs))(params, batch), judged)
    alone = jax.jit(jax.vmap(scorer.score))(*jax.tree.map(lambda x: x[3:4], (params, batch, coefficient[:, None])))
    assert_trees_close(alone[0], jax.tree.map(lambda x: x[3:4], direction), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("horizon", [3, 23, 26])
def test_blocks_of_steps_cover_every_horizon(horizon: int) -> None:
    policy, _, params, _ = drawn(False)
    seen, ones = jax.random.normal(jax.random.key(2), (LANES, horizon, 4)), jnp.ones((LANES, horizon))
    tau = Trajectory(seen, (seen[..., 0] > 0).astype(int), ones, ones)
    found = jax.vmap(lanes.scorer(policy).score)(params, jax.tree.map(lambda x: x[:, None], tau), seen[:, None, :, 1])
    assert_trees_close(jax.tree.map(lambda x: x[:, 0], found), gradients(policy, params, tau, seen[..., 1]), rtol=1e-4, atol=1e-5)


def test_other_policies_and_environments_are_left_alone() -> None:
    policy = drawn(False)[0]
    assert not lanes.has_network(policy._replace(act=lambda noise, params, observation: 0))
    assert not lanes.applies(ENVIRONMENT._replace(transition=lambda *step: ENVIRONMENT.transition(*step)), policy)
    assert not lanes.has_network(make("categorical", ENVIRONMENT, hidden=(64, 64)))


@pytest.mark.parametrize(("scaled", "shared"), [(False, 1), (True, 0)])
def test_cuda_source(scaled: bool, shared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, one lane after another, beside XLA."""
    policy, keys, params, agents = drawn(scaled)
    layers, scale, agent = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), (*lanes._view(policy, params), agents))
    start, uniform = jax.random.uniform(keys[0], (4, LANES), minval=-0.05, maxval=0.05), jax.random.uniform(keys[1], (HORIZON, LANES))
    advance = ENVIRONMENT.transition.advance
    monkeypatch.setitem(lanes_cuda.VARIANTS, "score", (4, shared))
    options = lanes_cuda._options("score", layers, scale)
    run = "for (int l = 0; l < job->lanes; l++) { blockIdx.x = l / THREADS; threadIdx.x = l % THREADS; "
    run += "which == 0 ? rollout(*job) : which == 1 ? score(*job) : log_probs(*job); }"
    run = f'extern "C" void run(const Job* job, int which) {{ {run} }}'
    text = SHIM + lanes_cuda.step_in_c(advance, 4, agent) + lanes_cuda.SOURCE.read_text() + run
    command = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-x", "c++", "-", *options, "-o", str(tmp_path / "kernels.so")]
    subprocess.run(command, input=text, text=True, check=True)
    library = ctypes.CDLL(str(tmp_path / "kernels.so"))

    def call(which: int, given: list[Any], results: list[tuple[tuple[int, ...], Any]]) -> list[np.ndarray]:
        given, found = [np.ascontiguousarray(x) for x in given], [np.zeros(*result) for result in results]
        job = lanes_cuda.Job(lanes=LANES, horizon=HORIZON)
        for slots, arrays in ((job.given, given), (job.results, found)):
            slots[: len(arrays)] = [x.ctypes.data for x in arrays]
        library.run(ctypes.byref(job), which)
        return found

    tau = Trajectory(*jax.jit(functools.partial(lanes_xla.rollout, advance=advance))(layers, scale, agent, start, uniform))
    shapes = [
        ((HORIZON, 4, LANES), np.float32),
        ((HORIZON, LANES), np.int32),
        ((HORIZON, LANES), np.float32),
        ((HORIZON, LANES), np.float32),
    ]
    found = Trajectory(*call(0, [lanes_cuda._packed((layers, scale, agent, start)), uniform], shapes))
    mask = np.asarray(tau.mask)
    assert 0 < mask.mean() < 1
    assert_trees_close(found._replace(action=found.action * mask), tau._replace(action=tau.action * mask), rtol=1e-5, atol=1e-6)
    coefficient = jax.random.normal(keys[2], mask.shape) * mask
    direction, judged = lanes_xla.score(layers, scale, tau.observation, tau.action, coefficient)
    packed = lanes_cuda._packed(direction)
    constants = lanes_cuda._packed((layers, scale))
    both = call(1, [constants, tau.observation, tau.action, coefficient], [(packed.shape, np.float32), shapes[2]])
    assert_trees_close(both, [np.asarray(packed), np.asarray(judged)], rtol=1e-4, atol=1e-5)
    alone = call(2, [constants, tau.observation, tau.action], [shapes[2]])
    np.testing.assert_allclose(alone[0], judged, rtol=1e-4, atol=1e-5)


def test_a_step_without_a_translation_is_refused() -> None:
    with pytest.raises(lanes_cuda.Untranslatable, match="sinh"):
        lanes_cuda.to_c(jnp.sinh, [("x", "float32")], ["y"])
