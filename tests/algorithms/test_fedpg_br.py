"""FedPG-BR: its filter by hand, its inner loop against recursions written out, and its identity with one gradient step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms.fedpg_br import fedpg_br, measured_filter, paper_filter
from fedpg.algorithms.wrappers import attack, chain
from fedpg.algorithms.wrappers.attack import ON_MESSAGES, with_dishonest_agents
from fedpg.envs.base import Federation
from fedpg.errors import UserError
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, bowl, make, rl, run


def kept(values, sigma=1.0, trajectories=4, delta=0.6, alpha=0.4, present=None):
    """Who passes the filter with the paper's thresholds; messages are numbers."""
    rows = jnp.asarray(values, float)[:, None]
    who = jnp.ones(len(rows), bool) if present is None else jnp.asarray(present)
    return np.flatnonzero(paper_filter(rows, who, sigma, trajectories, delta, alpha)).tolist()


def test_the_filter_by_hand():
    """N = 5, delta = 0.6: V = 2 ln(10/0.6) = 5.627; with B = 100, T = 2 sigma sqrt(V/B) = 0.4744 sigma."""
    near = [0.0, 0.1, 0.25, 0.3, 9.0]
    assert kept(near, trajectories=100) == [0, 1, 2, 3]
    # sigma = 0.45, T = 0.2135: 0 has one neighbour, so S = {0.1, 0.25, 0.3} with mean 0.217; mu_med = 0.25, from which 0 is
    # too far. |G| = 3 is enough for alpha = 0.4.
    assert kept(near, sigma=0.45, trajectories=100) == [1, 2, 3]
    # alpha = 0.3 asks for 3.5: again with 2 sigma = 0.9
    assert kept(near, sigma=0.45, trajectories=100, alpha=0.3) == [0, 1, 2, 3]
    # nobody has a majority within T: the second chance takes 2 sigma = 0.1
    assert kept([0.0, 0.05, 0.1, 0.12, 9.0], sigma=0.05, trajectories=10_000) == [0, 1, 2, 3]
    # absent agents neither count nor vote: of the three present two are a majority
    assert kept([0.0, 5.0, 5.1, 5.2, np.nan], trajectories=100, present=[True, False, True, True, False]) == [2, 3]
    # with a sigma that is far too small nobody has a neighbour: only the message nearest to the median is kept
    assert kept([7.0, 1.0, 2.0, 4.0, 8.0], sigma=1e-6) == [3]


@pytest.mark.parametrize("name", ON_MESSAGES)
def test_measured_thresholds_find_the_attackers_on_any_scale(name):
    honest = np.random.default_rng(2).normal(size=(10, 30)) + 3.0 * np.ones(30)
    for scale in (1e-6, 1.0, 1e6):
        rows, keys, everyone = jnp.asarray(scale * honest), jax.random.split(jax.random.key(0), 10), jnp.ones(10, bool)
        lies = ON_MESSAGES[name](keys, rows, everyone)
        sent = jnp.where(jnp.arange(10)[:, None] < 3, lies, rows)
        assert np.flatnonzero(measured_filter(sent, everyone, 0.4)).tolist() == list(range(3, 10))
        assert np.asarray(measured_filter(rows, everyone, 0.4)).all(), "nobody is dropped where nobody lies"


def test_measured_thresholds_keep_a_share_of_the_agents():
    """One message in the middle, others ever further away: the nearest ceil((1-alpha) N) are kept at least."""
    rows = jnp.asarray([0.0, 0.01, 0.02, 4.0, -8.0, 16.0, -32.0, 64.0])[:, None]
    for alpha, least in ((0.1, 8), (0.4, 5), (0.6, 4)):
        assert int(jnp.sum(measured_filter(rows, jnp.ones(8, bool), alpha))) >= least


@pytest.mark.slow
def test_without_a_filter_and_with_one_inner_step_it_is_a_step_along_the_mean_gradient():
    """PAvg with K = 1 is that, too, and draws the same samples."""
    small = SMALL["random-mdp"]()
    found = run(small, make("fedpg-br", small.problem, local_steps=1, filtered=False), 3)
    plain = run(small, make("pavg", small.problem, local_steps=1), 3)
    assert_trees_close(found.shared.params, plain.shared.params, rtol=2e-5, atol=1e-7)
    assert_trees_close(found.info.local.usage, plain.info.local.usage, rtol=1e-6)


def test_the_inner_loop_by_hand(float64):
    """Exact gradients of quadratics: v = g_s(th_n) - g_s(theta_r) + mean_i g_i(theta_r), g_s with the curvature that all bowls share."""
    small, eta, inner = bowl(), 0.1, 4
    one = trees.take(small.agents(jax.random.key(1)), 0)
    small = small._replace(agents=trees.broadcast(one, 3)._replace(centre=one.centre + jnp.arange(3.0)[:, None]))
    algorithm = fedpg_br(small.problem, local_lr=eta, local_steps=2, inner_steps=inner, filtered=False)
    ran = run(small, algorithm, 3)
    bowls, own = trees.take(ran.state.agents, 0), one
    theta = np.zeros(4)
    for _ in range(3):
        mu = np.mean([-bowls.curvature[i] @ (theta - bowls.centre[i]) for i in range(3)], axis=0)
        start = theta
        for _ in range(inner):
            theta = theta + eta * (-own.curvature @ (theta - start) + mu)
    np.testing.assert_allclose(ran.shared.params[0], theta, rtol=1e-11)
    assert ran.info.local.usage.trajectories[0] == 3 * (3 * 2 + inner - 1), "agents' batches, and the server's own"


def server_updates(small, count=4000, **more):
    """The server's part of a round, for many keys."""
    algorithm = fedpg_br(small.problem, local_lr=0.1, **more)
    agents = small.agents(jax.random.key(1))
    state, _ = algorithm.init(jnp.ones(4))
    state, _ = algorithm.aggregate(state, jnp.tile(jnp.arange(4.0), (3, 1)), jnp.ones(3))
    after, info = jax.jit(jax.vmap(algorithm.server_update, (0, None, None)))(jax.random.split(jax.random.key(0), count), state, agents)
    return state, agents, after.shared.params, info.usage.trajectories


def test_a_mixture_is_unbiased_for_the_average_of_the_agents():
    """Two inner steps: E th_2 = th_1 + eta (mean_i [g_i(th_1) - g_i(th_0)] + mu)."""
    state, agents, found, _ = server_updates(bowl(), local_steps=2)
    change = -np.einsum("nij,j->ni", agents.curvature, state.shared.params - state.private.start)
    expected = state.shared.params + 0.1 * (change.mean(0) + state.private.direction)
    assert np.unique(np.asarray(found).round(4), axis=0).shape[0] == 3, "each batch is of one agent"
    error = 0.1 * change.std(0) / np.sqrt(len(found))
    np.testing.assert_array_less(np.abs(np.asarray(found).mean(0) - expected), 5 * error + 1e-6)


def test_a_geometric_number_of_inner_steps():
    """P(N_t = n) = (1-p)^(n-1) p with p = 1/5, cut at 20; the first step draws no sample."""
    *_, drawn = server_updates(bowl(), local_steps=5, geometric=True)
    steps = np.asarray(drawn) + 1
    assert steps.min() == 1
    assert steps.max() <= 20
    chance = 0.8 ** (np.arange(1, 21) - 1) * 0.2
    chance[-1] = 0.8**19
    assert abs((steps == 1).mean() - 0.2) < 5 * np.sqrt(0.16 / 4000)
    assert abs(steps.mean() - chance @ np.arange(1, 21)) < 5 * 4.5 / np.sqrt(4000)


def test_the_servers_own_environment_is_honest():
    """Among agents that flip their rewards the server's samples, and so its correction, are those of the true environments."""
    small, doubted = rl("random-mdp", baseline="none", batch_size=1), rl("random-mdp", baseline="none", batch_size=1, dishonest=True)
    agents, key = small.agents(jax.random.key(1)), jax.random.key(2)
    params = small.problem.init_params(key)
    everyone_lies = with_dishonest_agents(Federation(None, agents), "reward-flip", 3).agents
    found = []
    for problem, members in ((small.problem, agents), (doubted.problem, everyone_lies)):
        algorithm = fedpg_br(problem, local_lr=0.5, local_steps=3)
        algorithm = chain(algorithm, attack("reward-flip", 3)) if members is everyone_lies else algorithm
        state, _ = algorithm.init(params)
        state, _ = algorithm.aggregate(state, trees.broadcast(trees.scale(0.0, params), 3), jnp.ones(3))
        state = state._replace(shared=state.shared._replace(params={"logits": jnp.eye(5)}))
        found.append(jax.jit(algorithm.server_update)(key, state, members)[0].shared.params)
    assert_trees_close(found[1], found[0], atol=1e-5)


def test_bad_values_are_refused():
    problem = bowl().problem
    for wrong, line in (
        ({"alpha": 1.0}, "alpha must be between 0 and 1"),
        ({"delta": 0.0}, "delta must be between 0 and 1"),
        ({"sigma": -1.0}, "sigma must be positive"),
        ({"inner_steps": 0}, "inner_steps must be at least 1"),
    ):
        with pytest.raises(UserError, match=line):
            fedpg_br(problem, local_lr=0.1, **wrong)
