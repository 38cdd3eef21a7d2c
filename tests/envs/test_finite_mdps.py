"""Kernels, rewards and starts of the random MDPs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import KERNELS, MDP, RandomMDPOptions, random_mdps
from fedpg.errors import UserError
from fedpg.sampling import pick


def mdps(heterogeneity: float, seed: int = 0, agents: int = 4, **options) -> MDP:
    return random_mdps(jax.random.key(seed), agents, heterogeneity, RandomMDPOptions(**options))


def assert_distributions(rows: jax.Array) -> None:
    assert np.isfinite(rows).all()
    assert rows.min() >= 0.0
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_are_distributions(kernel: str, sparsity: float) -> None:
    """All rows sum to 1 and none is negative, also where the mask leaves a row empty, and at any heterogeneity."""
    for heterogeneity in (0.0, 0.5, 1.0, 8.0):
        agents = mdps(heterogeneity, kernel=kernel, sparsity=sparsity)
        assert agents.transition.shape == (4, 5, 5, 5)
        assert_distributions(agents.transition)
        assert_distributions(agents.start)


def test_empty_rows_become_uniform() -> None:
    """With nothing surviving the mask, every next state is as likely."""
    np.testing.assert_allclose(mdps(1.0, kernel="bernoulli", sparsity=0.0).transition, 0.2, rtol=1e-6)


def test_bernoulli_masks_thin_the_kernels() -> None:
    """About the given share of entries survives, and different ones for every agent."""
    alive = np.asarray(mdps(1.0, kernel="bernoulli", sparsity=0.3).transition) > 0
    assert abs(alive.mean() - 0.3 - 0.7**5) < 0.08  # an empty row, of which there are 0.7^5, becomes uniform
    assert (alive[0] != alive[1]).mean() > 0.3


def test_orthogonal_kernels_have_disjoint_support() -> None:
    """Where an agent's own kernel can go, the common one cannot; rows whose mask keeps all or nothing are the exception."""
    common, own = (np.asarray(mdps(h, kernel="orthogonal").transition) for h in (0.0, 1.0))
    whole = (common[0] > 0).all(-1)
    assert whole.mean() < 0.2
    overlap = ((common > 0) & (own > 0)).any(-1)
    assert not overlap[:, ~whole].any()
    np.testing.assert_array_equal((own[0] > 0)[~whole], (own[1] > 0)[~whole])


def test_kappa_mixes_common_and_own_kernels() -> None:
    """P_i = kappa K_i + (1 - kappa) P_0, the paper's formula."""
    common, half, own = (mdps(h).transition for h in (0.0, 0.3, 1.0))
    np.testing.assert_allclose(half, 0.3 * own + 0.7 * common, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("heterogeneity", [2.0, 8.0, 60.0, 400.0])
def test_sharpening_has_no_upper_end(heterogeneity: float) -> None:
    """Beyond 1 each row keeps its likeliest next state, and that state becomes no less likely as heterogeneity grows."""
    rows, sharper = (np.asarray(mdps(h).transition) for h in (heterogeneity / 2, heterogeneity))
    np.testing.assert_array_equal(sharper.argmax(-1), mdps(1.0).transition.argmax(-1))
    assert (sharper.max(-1) >= rows.max(-1) - 1e-6).all()


@pytest.mark.parametrize(("option", "field"), [("reward_heterogeneity", "reward"), ("start_heterogeneity", "start")])
def test_own_rewards_and_starts(option: str, field: str) -> None:
    """Common to all by default; with the option each agent has its own, mixed by its share; nothing else changes."""
    common, half, own = (mdps(0.5, **{option: share}) for share in (0.0, 0.5, 1.0))
    assert np.ptp(getattr(common, field), axis=0).max() == 0.0
    assert np.ptp(getattr(own, field), axis=0).max() > 0.1
    np.testing.assert_allclose(getattr(half, field), 0.5 * getattr(own, field) + 0.5 * getattr(common, field), rtol=1e-5)
    for name in set(MDP._fields) - {field}:
        np.testing.assert_array_equal(getattr(own, name), getattr(common, name))


def test_unknown_kernel_suggests() -> None:
    with pytest.raises(UserError, match="did you mean 'bernoulli'"):
        mdps(0.5, kernel="bernouli")


def test_pick_never_falls_on_an_impossible_entry() -> None:
    """Rounding may leave the cumulative sum short of 1; the largest uniform number still picks a possible index."""
    rows = np.random.default_rng(0).dirichlet(np.ones(7), 20_000).astype(np.float32)
    rows = np.concatenate([rows, np.zeros((20_000, 1), np.float32)], axis=1)  # the last entry is impossible
    largest = jnp.asarray(1.0 - 2.0**-23)  # of jax.random.uniform in float32
    assert int(jax.jit(jax.vmap(pick, (None, 0)))(largest, rows).max()) == 6
