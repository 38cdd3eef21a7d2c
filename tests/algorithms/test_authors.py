"""The published code's two algorithms: every line of a round written out, with the estimates that have tests of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms.authors import authors_hapg, authors_svrpg
from fedpg.envs.tabular import environment
from fedpg.errors import UserError
from fedpg.policies import softmax
from fedpg.problem import policy_gradient
from helpers.enumeration import tiny_mdp
from helpers.federations import bowl

WORLD = environment("tiny", 2, 2)
PROBLEM = policy_gradient(WORLD, softmax(WORLD), horizon=5, discount=0.9, batch_size=4, baseline="time")
BETA, ETA, STEPS = 0.3, 0.75, 3
QUICKLY = {"xla_backend_optimization_level": 0}


@pytest.mark.parametrize("factory", [authors_svrpg, authors_hapg])
def test_a_round_by_hand(factory, float64):
    """In double precision the finite difference of hapg is the derivative; in float32, as published, it is noise."""
    hessian = factory is authors_hapg
    largest, offset, decay = (0.1, 2.0, 0.0) if hessian else (0.05, 1.0, 1e-4)
    algorithm, estimates = factory(PROBLEM, beta=BETA, local_lr=ETA, local_steps=STEPS), PROBLEM.published(True)
    theta, mdp, key = np.array([[0.2, -0.1], [0.5, 0.0]]), tiny_mdp(), jax.random.key(3)

    def params(logits):
        return {"logits": jnp.asarray(logits)}

    @jax.jit
    def sample(key, at):
        return PROBLEM.sample(key, at, mdp, PROBLEM.init_memory())[0]

    @jax.jit
    def estimated(drawn, at, behaviour):
        low = 0.8 if hessian else 1e-30
        score = estimates.score(drawn, at)["logits"]
        return estimates.weighted(drawn, at, behaviour, low, 1.2)[0]["logits"], score

    now, before, d, squares = theta, theta, None, 0.0
    for k, step_key in enumerate(jax.random.split(key, STEPS)):
        mix_key, sample_key = jax.random.split(step_key)
        share = float(jax.random.uniform(mix_key)) if hessian else 1.0
        mixed = share * now + (1 - share) * before
        drawn = sample(sample_key, params(mixed if hessian else now))
        g = np.asarray(estimated(drawn, params(now), params(mixed if hessian else now))[0])
        if k == 0:
            d = g
        elif hessian:
            v, h = now - before, 1e-5
            score, ahead, behind = (np.asarray(estimated(drawn, params(x), params(now))[1]) for x in (mixed, mixed + h * v, mixed - h * v))
            d = BETA * g + (1 - BETA) * (d + (score * v).sum() * score + (ahead - behind) / (2 * h))
        else:
            d = g + (1 - BETA) * (d - np.asarray(estimated(drawn, params(before), params(now))[0]))
        squares += (g**2).sum()
        cut = min(np.sqrt((g**2).sum()), largest)
        after = (1 - decay) * (now + ETA / np.cbrt(offset + 5 * squares) * np.clip(d, -cut, cut))
        before, now = now, after
    expected = mixed if hessian else now

    server, state = algorithm.init(params(theta))
    run = jax.jit(algorithm.local_update, compiler_options=QUICKLY)
    message, _, info = run(key, server.shared, state, mdp)
    np.testing.assert_allclose(message["logits"], expected - theta, rtol=1e-6, atol=1e-9)
    assert int(info.usage.trajectories) == 3 * 4
    # the server of January 2024 takes the mean
    messages = jax.tree.map(lambda x: jnp.stack([x, 3.0 * x]), message)
    np.testing.assert_allclose(
        algorithm.aggregate(server, messages, jnp.ones(2))[0].shared.params["logits"], theta + 2 * (expected - theta)
    )


def test_what_it_needs_is_said():
    counts = policy_gradient(WORLD, softmax(WORLD), horizon=5, discount=0.9, baseline="none")
    for problem in (counts, bowl().problem):
        with pytest.raises(UserError, match="authors-svrpg needs whole trajectories"):
            authors_svrpg(problem, local_lr=0.75)
    for values, message in (({"beta": 1.5}, "beta"), ({"largest": 0.0}, "largest"), ({"local_lr": -1.0}, "local-lr")):
        with pytest.raises(UserError, match=message):
            authors_hapg(PROBLEM, **({"local_lr": 0.75} | values))
