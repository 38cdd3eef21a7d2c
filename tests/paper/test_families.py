"""Families that others defined: their tables are those of their authors, and what a rollout earns is what the table says."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies
from fedpg.envs import gym, outcomes, tabular
from fedpg.envs.outcomes import Outcomes
from fedpg.errors import UserError
from fedpg.gradients import exact
from fedpg.gradients.rollout import rollout
from fedpg.paper import families
from fedpg.paper.families import IDS, LAKES, federation, lakes, river_swim
from fedpg.paper.method import PAVG
from fedpg.paper.task import Task, measure

READ = {
    "FrozenLake-v1": {"desc": lakes()[3], "is_slippery": True},
    "CliffWalking-v1": {"is_slippery": True},
    "Taxi-v4": {"is_rainy": True, "rainy_probability": 0.6},
}
SLIPPERY = {"is_slippery": [False, True]}


def peer(name):
    return gymnasium.make(name, **READ[name]).unwrapped


def agents_of(name, agents=2, heterogeneity=0.0, **options):
    made = federation(name, agents, heterogeneity, options)
    return made.environment, made.agents(jax.random.key(5), 0) if callable(made.agents) else made.agents


def earned(environment, params, probabilities, horizon, episodes):
    """Undiscounted returns of episodes of a table of probabilities, (episodes,)."""
    policy = policies.make("softmax", environment)
    keys = jax.random.split(jax.random.key(1), episodes)
    logits = {"logits": jnp.log(probabilities)}
    tau = jax.jit(jax.vmap(lambda key: rollout(environment, policy, horizon, key, logits, params)))(keys)
    return np.asarray(tau.reward).sum(1)


@pytest.mark.parametrize("name", READ)
def test_tables_are_those_of_gymnasium(name):
    """Every outcome in order, with its next state, reward and end; nothing else is possible."""
    task, read = peer(name), gym.outcomes(name, **READ[name])
    np.testing.assert_array_equal(read.start, task.initial_state_distrib)
    assert read.after.shape[:2] == (task.observation_space.n, task.action_space.n)
    for s, by_action in task.P.items():
        for a, listed in by_action.items():
            mine = list(
                zip(*(values[s, a].tolist() for values in (read.probability, read.after, read.reward, read.terminated)), strict=True)
            )
            assert mine[: len(listed)] == [tuple(one) for one in listed]
            assert not any(one[0] for one in mine[len(listed) :])


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1"])
def test_an_mdp_has_the_transitions_of_its_outcomes_and_ends_where_they_end(name):
    task, made = peer(name), outcomes.mdp(gym.outcomes(name, **READ[name]))
    ends = {s for row in task.P.values() for listed in row.values() for _, s, _, ended in listed if ended}
    assert ends
    for s, by_action in task.P.items():
        for a, listed in by_action.items():
            expected = np.zeros(task.observation_space.n)
            for p, after, _, ended in listed:
                assert s in ends or ended == (after in ends)  # an end is always an end,
                expected[after] += p
            paid = sum(p * r for p, _, r, _ in listed)
            if s in ends:
                expected, paid = np.eye(len(expected))[s], 0.0
            np.testing.assert_allclose(made.transition[s, a], expected, atol=1e-6)
            np.testing.assert_allclose(made.reward[s, a], paid, rtol=1e-6)
    assert not any(task.initial_state_distrib[list(ends)])  # and no start


@pytest.mark.parametrize("name", READ)
def test_rollouts_earn_what_the_table_says(name):
    """Gymnasium's outcomes and their `MDP` agree with the exact value of a policy that prefers some actions."""
    read = jax.tree.map(jnp.asarray, gym.outcomes(name, **READ[name]))
    states, actions = read.after.shape[:2]
    table = jax.nn.softmax(jax.random.normal(jax.random.key(2), (states, actions)))
    value = float(exact.value(outcomes.mdp(read), table, 1.0, 20))
    kinds = {"outcomes": (outcomes.environment, read), "mdp": (tabular.environment, outcomes.mdp(read))}
    for make, params in kinds.values() if states < 100 else [kinds["outcomes"]]:
        returns = earned(make(name, states, actions), params, table, 20, 8000)
        assert abs(returns.mean() - value) < 4 * returns.std() / np.sqrt(len(returns))
        assert returns.std() > 0


def test_a_rollout_stops_where_the_task_ends():
    """Two states: action 0 ends at once and pays 1, action 1 stays and pays nothing."""
    after, pay = jnp.array([[[1], [0]], [[0], [0]]]), jnp.array([[[1.0], [0.0]], [[7.0], [7.0]]])
    task = Outcomes(after, jnp.ones((2, 2, 1)), pay, after == 1, jnp.array([1.0, 0.0]))
    returns = earned(outcomes.environment("two", 2, 2), task, jnp.array([[0.5, 0.5]] * 2), 10, 50)
    assert set(returns.tolist()) <= {0.0, 1.0}
    assert returns.mean() > 0.9


def optimal(mdp, discount):
    """Optimal values and actions by value iteration."""
    values = np.zeros(mdp.reward.shape[0])
    for _ in range(5000):
        action_values = np.asarray(mdp.reward, float) + discount * np.asarray(mdp.transition, float) @ values
        values = action_values.max(1)
    return values, action_values.argmax(1)


def test_river_swim_has_the_optimum_of_strehl_and_littman():
    """Swimming upstream is optimal; its gain is that of the birth-death chain with rates 0.3 up, 0.1 and at the end 0.7 down."""
    mdp, discount = river_swim(0.3), 0.999
    values, best = optimal(mdp, discount)
    assert best.tolist() == [1] * 6
    weight = np.array([1.0, 3.0, 9.0, 27.0, 81.0, 81.0 * 0.3 / 0.7])
    gain = 0.3 * weight[5] / weight.sum()
    assert 10_000 * gain == pytest.approx(668.8, abs=0.1)
    np.testing.assert_allclose((1 - discount) * weight @ values / weight.sum(), gain, rtol=0.01)
    np.testing.assert_allclose(mdp.transition.sum(-1), 1.0, rtol=1e-6)
    lazy = jnp.zeros((6, 2)).at[:, 0].set(1.0)
    assert float(exact.value(mdp, lazy, 1.0, 102)) == pytest.approx(100.5 * 5e-4)  # one or two steps down, then pay


def test_mirrored_rivers_are_the_same_task_backwards():
    plain, mirrored = river_swim(0.4), river_swim(0.4, True)
    np.testing.assert_allclose(optimal(mirrored, 0.9)[0], optimal(plain, 0.9)[0][::-1], rtol=1e-6)
    table = jax.nn.softmax(jax.random.normal(jax.random.key(0), (6, 2)))
    np.testing.assert_allclose(exact.value(mirrored, table[::-1, ::-1], 0.9, 50), exact.value(plain, table, 0.9, 50), rtol=1e-5)


def test_swimmers_differ_in_the_current():
    _, swimmers = agents_of("riverswim", 3, 1.0)
    np.testing.assert_allclose(np.sort(swimmers.transition[:, 2, 1, 3]), [0.15, 0.3, 0.6], rtol=1e-6)
    _, mirrored = agents_of("riverswim", 3, 0.0, mirrored=True)
    np.testing.assert_array_equal(mirrored.reward[:, 5, 1] == np.float32(0.3), [True, False, True])


def test_every_agent_has_its_own_lake_and_every_seed_others():
    assert len({"".join(lake) for lake in lakes()}) == LAKES
    made = federation("frozen-lake", 8, 0.0, {})
    first, second = (made.agents(jax.random.key(i), i) for i in range(2))
    assert len(np.unique(np.asarray(first.transition).reshape(8, -1), axis=0)) == 8
    assert np.any(np.asarray(first.transition) != np.asarray(second.transition))


def test_options_are_gymnasiums_and_lists_are_per_agent():
    _, cliffs = agents_of("cliff-walking", **SLIPPERY)
    np.testing.assert_array_equal(cliffs.transition[:, 0, 1].max(-1), np.float32([1.0, 1 / 3]))
    environment, taxis = agents_of("taxi", is_rainy=True, rainy_probability=[0.8, 0.4])
    assert (environment.observation_space.n, environment.action_space.n) == (500, 6)
    assert np.unique(taxis.probability[1]).tolist() == pytest.approx([0.0, 0.3, 0.4, 1.0])


@pytest.mark.parametrize(
    ("name", "heterogeneity", "options", "said"),
    [
        ("riverswim", 2.0, {}, "from 0 to 1.5"),
        ("taxi", 1.0, {}, "has no heterogeneity"),
        ("taxi", 0.0, {"fickle_passenger": True}, "leave it out"),
        ("cliff-walking", 0.0, {"is_icy": True}, "is_icy"),
    ],
)
def test_what_a_family_does_not_have_is_refused(name, heterogeneity, options, said):
    with pytest.raises(UserError, match=said):
        federation(name, 2, heterogeneity, options)


@pytest.mark.parametrize("name", families.NAMES)
def test_tasks_of_every_family_learn(name):
    """The mean objective rises within a few rounds."""
    given = {"riverswim": (1.0, {}, 30.0), "frozen-lake": (0.0, {}, 3.0), "cliff-walking": (0.0, SLIPPERY, 3e-3), "taxi": (0.0, {}, 3e-3)}
    heterogeneity, options, eta = given[name]
    task = Task(name, name, 2, heterogeneity, options, local_steps=8, rounds=10, horizon=20, eval_episodes=256)
    found = measure(task, PAVG, {"local_lr": [eta]}, seeds=2, root=3, rounds=[0, 10]).objective
    assert np.all(found[0, :, 1] > found[0, :, 0])
    assert set(IDS) < set(families.NAMES)
