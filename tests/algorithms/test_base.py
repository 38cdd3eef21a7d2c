"""The functions that algorithms are made of, and the table of algorithms."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS, base, fedsvrpg_m
from fedpg.algorithms.pooled import pool
from fedpg.errors import UserError
from fedpg.quadratic import quadratic
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, bowl, make, run


def test_mean_ignores_the_absent_even_if_they_sent_nonsense():
    sent = {"a": jnp.array([[1.0, 2.0], [3.0, 4.0], [jnp.nan, jnp.inf]])}
    np.testing.assert_allclose(base.mean(sent, jnp.array([1.0, 3.0, 0.0]))["a"], [2.5, 3.5])
    np.testing.assert_allclose(base.mean(sent, jnp.zeros(3))["a"], [0.0, 0.0])


def test_initial_direction_is_the_mean_of_b_batches():
    """u_0 on noisy quadratics: mean gradient plus noise whose spread falls with N B."""
    found = {}
    for batches in (1, 400):
        small = bowl(noise=1.0)
        ran = run(small, make("fedsvrpg-m", small.problem, u0_batches=batches), rounds=0, seeds=50)
        bowls = ran.state.agents
        exact = np.einsum("snij,snj->si", bowls.curvature, bowls.centre) / 3
        found[batches] = np.mean((ran.shared.direction - exact) ** 2)
    assert found[1] == pytest.approx(1 / 3, rel=0.3)
    assert found[400] == pytest.approx(1 / 1200, rel=0.3)


@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m", "heavy-ball"])
def test_no_initial_direction_when_it_would_not_be_used(name):
    problem = quadratic()
    assert make(name, problem, u0_batches=0).warmup == ()
    assert make(name, problem, beta=1.0, u0_batches=5).warmup == ()
    assert make(name, problem, u0_batches=5).warmup != ()


@pytest.mark.parametrize(
    "wrong", [{"beta": 0.0}, {"beta": 1.5}, {"beta": -1.0}, {"local_steps": 0}, {"local_lr": 0.0}, {"global_lr": -1.0}], ids=str
)
def test_impossible_hyper_parameters_are_refused(wrong):
    with pytest.raises(UserError):
        fedsvrpg_m(quadratic(), **({"local_lr": 0.1} | wrong))


@pytest.mark.slow
def test_one_program_sweeps_over_beta_and_the_step_size():
    """Hyper-parameters may be traced: vmap over them agrees with running each."""
    small = bowl(noise=0.1)
    agents = small.agents(jax.random.key(0))

    def after_a_round(beta, eta):
        algorithm = fedsvrpg_m(small.problem, beta=beta, local_lr=eta, local_steps=3, u0_batches=0)
        server, agent_state = algorithm.init(jnp.ones(4))
        keys = jax.random.split(jax.random.key(1), 3)
        update = jax.vmap(algorithm.local_update, (0, None, None, 0))
        messages, _, _ = update(keys, server.shared, agent_state, agents)
        return algorithm.aggregate(server, messages, jnp.ones(3))[0].shared.params

    betas, etas = jnp.array([0.1, 0.5, 1.0]), jnp.array([0.01, 0.02, 0.05])
    swept = jax.jit(jax.vmap(after_a_round))(betas, etas)
    for i in range(3):
        np.testing.assert_allclose(swept[i], after_a_round(float(betas[i]), float(etas[i])), rtol=1e-5)


def test_total_adds_everything_but_takes_the_largest_weight():
    one = base.LocalInfo(base.Usage(*map(jnp.asarray, (1, 2, 3.0))), base.Weights(*map(jnp.asarray, (1.0, 2.0, 3.0, 4.0))))
    both = base.total(trees.stack([one, one._replace(weights=one.weights._replace(largest=jnp.asarray(9.0)))]))
    assert [float(x) for x in (*both.usage[:3], *both.weights)] == [2, 4, 6, 2, 4, 6, 9]


@pytest.mark.slow
def test_a_pooled_problem_is_the_mean_of_its_agents():
    small = SMALL["random-mdp"]()
    everyone, pooled = small.agents(jax.random.key(3)), pool(small.problem, 3)
    params = {"logits": jax.random.normal(jax.random.key(1), (5, 5))}
    samples, memory = jax.jit(pooled.sample)(jax.random.key(0), params, everyone, pooled.init_memory())
    each = [jax.jit(small.problem.gradient)(trees.take(samples, i), params) for i in range(3)]
    assert_trees_close(jax.jit(pooled.gradient)(samples, params), trees.mean_axis0(trees.stack(each)), rtol=1e-4, atol=1e-6)
    assert int(pooled.usage(samples).trajectories) == 6
    assert jax.tree.leaves(memory)[0].shape[0] == 3


def test_every_algorithm_has_a_page():
    """Its own, or one it shares; the table says which."""
    folder = Path(__file__).parents[2] / "docs" / "reference" / "algorithms"
    links = dict(re.findall(r"\[`([a-z-]+)`\]\(([a-z-]+\.md)\)", (folder / "index.md").read_text()))
    assert set(ALGORITHMS) <= set(links) | {page.stem for page in folder.glob("*.md")}
    assert all((folder / page).exists() for page in links.values())
