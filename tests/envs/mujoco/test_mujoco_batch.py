"""Sessions of the batch backend: lanes that end or fail, several sessions at once, the order of lanes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import fedpg.envs.mujoco
from fedpg.envs.mujoco import TASKS, MujocoOptions, federation
from fedpg.errors import UserError
from helpers.robots import ready, session, starts

LANES = 6


def actions(name: str, steps: int, lanes: int = LANES) -> np.ndarray:
    return np.random.default_rng(5).uniform(-1, 1, (steps, lanes, TASKS[name].nu))


def test_ended_lanes_stand_still() -> None:
    """Reward 0 and the same observation for ever after; the others go on as if alone."""
    made, _ = ready("hopper", 3, 0.5, vary="all")
    index, start, moves = [0, 1, 2, 2, 1, 0], starts("hopper", LANES), actions("hopper", 80)
    together, last, over = session(made, index, start), None, np.zeros(LANES, bool)
    alone = [session(made, [i], row[None]) for i, row in zip(index, start, strict=True)]
    for move in moves:
        after = together.step(move)
        np.testing.assert_array_equal(after.reward[over], 0.0)
        assert after.terminated[over].all()
        if last is not None:
            np.testing.assert_array_equal(after.observation[over], last[over])
        for lane in np.flatnonzero(~over):
            single = alone[lane].step(move[lane][None])
            np.testing.assert_array_equal(after.observation[lane], single.observation[0])
            assert after.reward[lane] == single.reward[0]
            assert after.terminated[lane] == single.terminated[0]
        over, last = over | after.terminated, after.observation
    assert over.all()
    assert made.environment.host.events == []
    np.testing.assert_array_equal(together.step(np.ones((LANES, 3))).reward, 0.0)


@pytest.mark.parametrize("vary", ["start", "physics+body"])
def test_sessions_do_not_disturb_each_other(vary: str) -> None:
    """Two open at once, in turn, and a third on simulations that were used before: each as if alone."""
    made, _ = ready("halfcheetah", 3, 1.0, vary=vary)
    moves, index = actions("halfcheetah", 8), [0, 1, 2, 0, 1, 2]

    def run(*which: tuple[list[int], np.ndarray]) -> list[np.ndarray]:
        opened = [session(made, index, start) for index, start in which]
        seen = [[one.step(move).observation for one in opened] for move in moves]
        for one in opened:
            one.close()
        return [np.stack(rows) for rows in zip(*seen, strict=True)]

    first, second = (index, starts("halfcheetah", LANES, 0)), (index[::-1], starts("halfcheetah", LANES, 1))
    alone = run(first)[0], run(second)[0]
    for _ in range(2):
        for got, expected in zip(run(first, second), alone, strict=True):
            np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(run(second)[0], alone[1])


def test_the_order_of_lanes_does_not_matter() -> None:
    made, _ = ready("walker2d", 4, 1.0, vary="all+speed+conflict")
    index, start, moves = np.array([3, 0, 2, 1, 0, 3]), starts("walker2d", LANES), actions("walker2d", 30)
    order = np.array([4, 2, 0, 5, 1, 3])
    one, other = session(made, index, start), session(made, index[order], start[order])
    for move in moves:
        a, b = one.step(move), other.step(move[order])
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x[order], y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e12])
def test_a_lane_that_cannot_start_fails_alone(bad: float) -> None:
    """It ends at its first step with reward NaN and is named once; its neighbours do not notice."""
    made, _ = ready("halfcheetah", 3)
    start, moves = starts("halfcheetah", 4), actions("halfcheetah", 3, 4)
    expected = session(made, [0, 1, 1, 2], start)
    broken = start.copy()
    broken[1:3, -1] = bad  # both lanes of agent 1
    failing = session(made, [0, 1, 1, 2], broken)
    assert np.isfinite(failing.observation).all()
    begun = failing.observation
    for step, move in enumerate(moves):
        after, fine = failing.step(move), expected.step(move)
        np.testing.assert_array_equal(after.observation[[0, 3]], fine.observation[[0, 3]])
        np.testing.assert_array_equal(after.reward[[0, 3]], fine.reward[[0, 3]])
        np.testing.assert_array_equal(after.observation[1:3], begun[1:3])
        np.testing.assert_array_equal(after.reward[1:3], np.nan if step == 0 else 0.0)
        np.testing.assert_array_equal(after.terminated, [False, True, True, False])
    events = made.environment.host.events
    assert [event.index for event in events] == [1]
    assert events[0].what.startswith("halfcheetah became unstable: ")
    assert "\n" not in events[0].what


def test_a_lane_that_becomes_unstable_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """Motors a million times too strong; MuJoCo neither prints nor leaves a log file behind."""
    monkeypatch.chdir(tmp_path)
    made, _ = ready("swimmer", 2, gain=(1.0, 1e6))
    running, last = session(made, [0, 1], starts("swimmer", 2)), None
    for move in actions("swimmer", 20, 2):
        last, after = running.observation, running.step(move)
        assert (np.abs(after.observation) < 1e10).all()
        if np.isnan(after.reward).any():
            break
    assert np.isnan(after.reward).tolist() == after.terminated.tolist() == [False, True]
    np.testing.assert_array_equal(after.observation[1], last[1])
    assert [event.index for event in made.environment.host.events] == [1]
    assert list(tmp_path.iterdir()) == []
    assert "WARNING" not in "".join(capfd.readouterr())


def test_an_action_that_is_not_finite_ends_its_lane_silently() -> None:
    made, _ = ready("hopper", 2)
    running, moves = session(made, [0, 1], starts("hopper", 2)), actions("hopper", 3, 2)
    first = running.step(moves[0]).observation
    moves[1, 1, 2] = np.nan
    after = running.step(moves[1])
    assert np.isnan(after.reward).tolist() == after.terminated.tolist() == [False, True]
    np.testing.assert_array_equal(after.observation[1], first[1])
    after = running.step(np.full_like(moves[2], np.nan) * [[0.0], [1.0]])  # 0 * NaN: agent 0 fails as well
    assert np.isnan(after.reward[0])
    assert after.reward[1] == 0.0
    assert made.environment.host.events == []


def test_without_mujoco_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("batch", "models"):
        monkeypatch.delitem(sys.modules, f"fedpg.envs.mujoco.{part}", raising=False)
        monkeypatch.delattr(fedpg.envs.mujoco, part, raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"^hopper needs MuJoCo: pip install 'fedpg\[mujoco\]'$"):
        federation("hopper", 2, 0.0, MujocoOptions())


def test_names_are_checked() -> None:
    with pytest.raises(UserError, match="unknown env 'hoper': did you mean 'hopper'"):
        federation("hoper", 2, 0.0, MujocoOptions())
