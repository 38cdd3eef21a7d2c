"""Stable-Baselines3's PPO on the agents of a federation, for `fedpg reproduce peers` (the extra `bench`).

It learns in the same MuJoCo environments as ours, agent for agent, one at a time as Gymnasium wants them. Observations and rewards are
normalised by its own `VecNormalize`, the step-size falls linearly to 0, and everything else is its default: Raffin et al.,
"Stable-Baselines3: reliable reinforcement learning implementations", JMLR 2021.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg.envs.host import HostEnvironment, Session
from fedpg.runs.evaluation import Place

UPDATE = 2048
"""Steps per update."""
MISSING = "Stable-Baselines3 is not installed, so its rows are missing: pip install 'fedpg[bench]'"


def installed() -> bool:
    """Whether Stable-Baselines3 is there."""
    return importlib.util.find_spec("stable_baselines3") is not None


class Learned(NamedTuple):
    """A trained model.

    Attributes:
        act: observations (L, ...) -> the most likely actions (L, D).
        steps, returns: environment steps, (T,), and what `measure` gave after them, (T, ...).
        seconds: of training, evaluations left out.
    """

    act: Callable[[np.ndarray], np.ndarray]
    steps: np.ndarray
    returns: np.ndarray
    seconds: float


def starts(where: Place, seed: int, agent: int, count: int, key: int) -> np.ndarray:
    """What `count` lanes of an agent start from."""
    environment = where.federation.environment
    keys = jax.random.split(jax.random.fold_in(jax.random.key(key), agent), count)
    member = jax.tree.map(lambda x: x[seed, agent], where.agents.start)
    return np.asarray(jax.vmap(environment.start, (0, None))(keys, member))


def returns_of(act: Callable[[np.ndarray], np.ndarray], where: Place, seed: int, episodes: int, key: int) -> np.ndarray:
    """Mean return of a policy in the environment of every agent of one seed, (N,)."""
    index = np.repeat(np.asarray(where.agents.index[seed]), episodes)
    first = np.concatenate([starts(where, seed, agent, episodes, key) for agent in range(where.count)])
    session = where.federation.environment.host.reset(index, first)
    total, alive = np.zeros(len(index)), np.ones(len(index), bool)
    for _ in range(where.horizon):
        after = session.step(act(np.asarray(session.observation)))
        total += np.where(alive, after.reward, 0.0)
        alive &= ~(after.terminated | after.truncated)
        if not alive.any():
            break
    session.close()
    return total.reshape(where.count, episodes).mean(1)


def train(
    where: Place, seed: int, agents: list[int], steps: int, *, key: int, points: int, measure: Callable[[Any], np.ndarray], **settings: Any
) -> Learned:
    """One model on the environments of some agents together, each a lane.

    Args:
        where, seed, agents: the environments.
        steps: of all lanes together.
        key: of the random numbers.
        points: how many times `measure` is called, the last time at the end.
        measure: act -> what is recorded.
        settings: replace those of PPO.
    """
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    envs = VecNormalize(DummyVecEnv([lambda agent=agent: lane(where, seed, agent, key) for agent in agents]))
    given = {"n_steps": max(1, UPDATE // len(agents)), "learning_rate": lambda left: 3e-4 * left, "device": "cpu", "seed": key} | settings
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You have specified a mini-batch size")  # the last minibatch of a pass may be smaller
        model, found = PPO("MlpPolicy", envs, **given), []

    def act(observation: np.ndarray) -> np.ndarray:
        actions = model.predict(envs.normalize_obs(observation.astype(np.float32)), deterministic=True)[0]
        return np.asarray(actions, np.float64)

    class Watch(BaseCallback):
        """Measures after each part of the steps."""

        paused = 0.0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= len(found) * steps / points:
                self.record()

        def record(self) -> None:
            began = time.perf_counter()
            found.append((self.num_timesteps, measure(act)))
            self.paused += time.perf_counter() - began

    watch, began = Watch(), time.perf_counter()
    model.learn(steps, callback=watch)
    watch.record()
    counts, values = zip(*found, strict=True)
    return Learned(act, np.array(counts), np.array(values), time.perf_counter() - began - watch.paused)


def lane(where: Place, seed: int, agent: int, key: int) -> Any:
    """The environment of one agent with Gymnasium's interface."""
    import gymnasium

    environment: HostEnvironment = where.federation.environment
    index = np.asarray(where.agents.index[seed, agent])[None]
    box = gymnasium.spaces.Box

    class Lane(gymnasium.Env):
        observation_space = box(-np.inf, np.inf, environment.observation_space.shape, np.float64)
        action_space = box(-1.0, 1.0, environment.action_space.shape, np.float32)
        session: Session | None = None
        started, elapsed, ready = 0, 0, np.empty(0)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
            if self.session is not None:
                self.session.close()
            if self.started % BLOCK == 0:  # drawing many at once is cheaper
                self.ready = starts(where, at, agent, BLOCK, key + 1 + self.started)
            self.session = environment.host.reset(index, self.ready[None, self.started % BLOCK])
            self.started, self.elapsed = self.started + 1, 0
            return self.session.observation[0].copy(), {}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
            after = self.session.step(np.asarray(action, np.float64)[None])
            self.elapsed += 1
            ended = bool(after.terminated[0])
            return after.observation[0].copy(), float(after.reward[0]), ended, not ended and self.elapsed >= where.horizon, {}

    at = seed
    return Lane()


BLOCK = 256
"""Starts that a lane draws at once."""
