"""A trained policy in the environments of its agents, side by side, as a film."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedpg import envs, trees
from fedpg.envs import cartpole, gym, own
from fedpg.envs.own import per_agent
from fedpg.errors import UserError, require
from fedpg.keys import Moment, Purpose
from fedpg.own import load as load_function
from fedpg.report import video
from fedpg.report.video import Tile
from fedpg.runs import evaluation
from fedpg.runs import policy as files
from fedpg.runs.policy import Spec, TrainedPolicy
from fedpg.runs.policy_files import config_of, names, policy_of

MOST = 8
"""Agents that fit into a picture."""
FPS = 30.0


class Scene(Protocol):
    """The environments of M agents that can be drawn. `observations` are the latest, one per agent."""

    observations: Any

    def step(self, actions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """One step of everyone: rewards and whether each episode has ended, (M,) each."""

    def pictures(self) -> list[np.ndarray]:
        """What it looks like now, (H, W, 3) uint8 each."""


class CartPoleScene:
    """CartPoles, stepped as in training and drawn by `fedpg.report.video`."""

    def __init__(self, agents: Any, seed: int) -> None:
        self._agents, count = agents, trees.leading_axis(agents)
        self._constants = [trees.take(agents, i) for i in range(count)]
        keys = jax.random.split(jax.random.key(seed), count)
        self._state, self.observations = jax.vmap(cartpole.ENVIRONMENT.reset)(keys, agents)
        self._transition = jax.jit(jax.vmap(cartpole.ENVIRONMENT.transition))

    def step(self, actions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        after = self._transition(np.zeros(len(actions)), self._state, np.array(actions), self._agents)
        self._state, self.observations = after.state, after.observation
        return np.asarray(after.reward), np.asarray(after.terminated | after.truncated)

    def pictures(self) -> list[np.ndarray]:
        return [video.cartpole(state, own) for state, own in zip(np.asarray(self._state), self._constants, strict=True)]


class MujocoScene:
    """MuJoCo robots, stepped as in training and drawn off-screen."""

    def __init__(self, environment: Any, members: Any, seed: int) -> None:
        from fedpg.envs.mujoco.draw import drawer

        index, host = np.asarray(members.index), environment.host
        keys = jax.random.split(jax.random.key(seed), len(index))
        self._session = host.reset(index, np.asarray(jax.vmap(environment.start)(keys, members.start)))
        self._draw = drawer(host.task, jax.tree.map(lambda x: x[index], host.knobs), 240, 180)
        self.observations = self._session.observation

    def step(self, actions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        after = self._session.step(np.stack(actions))
        self.observations = after.observation
        return after.reward, after.terminated | after.truncated

    def pictures(self) -> list[np.ndarray]:
        return self._draw(self._session.positions)


class PythonScene:
    """Environments with Gymnasium's interface that draw themselves (`render_mode="rgb_array"`)."""

    def __init__(self, name: str, made: list[Any], seed: int) -> None:
        self._name, self._made = name, made
        self.observations = [environment.reset(seed=seed + i)[0] for i, environment in enumerate(made)]
        self._ended = np.zeros(len(made), bool)
        self.pictures()

    def step(self, actions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        rewards = np.zeros(len(self._made))
        for i, environment in enumerate(self._made):
            if not self._ended[i]:
                self.observations[i], rewards[i], terminated, truncated, _ = environment.step(actions[i])
                self._ended[i] = terminated or truncated
        return rewards, self._ended.copy()

    def pictures(self) -> list[np.ndarray]:
        found = [np.asarray(environment.render()) for environment in self._made]
        drawn = all(picture.ndim == 3 and picture.shape == found[0].shape and picture.shape[2] == 3 for picture in found)
        require(drawn, f"{self._name} cannot be drawn: its render() must return a picture, (height, width, 3)")
        step = max(1, round(max(found[0].shape[:2]) / 320))
        return [picture[::step, ::step].astype(np.uint8) for picture in found]


class Actor(NamedTuple):
    """A row of the film: its title, and the policy of every agent."""

    title: str
    policies: list[TrainedPolicy]


def play(
    paths: list[str],
    out: Path,
    *,
    seed: int | None = None,
    agent: int | None = None,
    agents: int = MOST,
    steps: int | None = None,
    before: bool = False,
    deterministic: bool = True,
    gif: bool = True,
    episode: int = 0,
) -> list[Path]:
    """Films the policies of `paths` in the environments of the first run's agents; returns the files.

    Args:
        paths: run folders or exports, a row of the film for each.
        out: the MP4; a GIF of the same name beside it.
        seed: which seed; None is the best of each run.
        agent: only the environment (and the policy) of this agent.
        agents: the most agents to show.
        steps: the most steps; None is the horizon of the run.
        before: show the untrained policy above.
        deterministic: take the most likely actions.
        gif: write the GIF too.
        episode: another number shows another episode.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported: it chooses there how to draw
    found = [files.read(path) for path in paths]
    spec = found[0].spec
    chosen = spec.best_seed if seed is None else seed
    first = found[0].one(chosen, agent or 0).spec
    which = [agent] if agent is not None else list(range(min(spec.agents, agents)))
    actors = [_untrained(first, len(which))] if before else []
    for path, file in zip(paths, found, strict=True):
        policies = []
        for i in which:
            one = file.one(seed, i)
            policies.append(TrainedPolicy(one.spec, one.arrays))
        actors.append(Actor(_title(Path(path).name, file.spec), policies))
    make = scenes(first, which, episode)
    length = steps or int(config_of(first).horizon)
    frames = film(actors, [make() for _ in actors], which, length, deterministic)
    written = [video.write_mp4(frames, out.with_suffix(".mp4"), FPS)]
    return [*written, video.write_gif(frames, out.with_suffix(".gif"), FPS)] if gif else written


def _title(folder: str, spec: Spec) -> str:
    """What a row is called: its folder, its algorithm (once, if the folder is named after it), and its round."""
    algorithm = config_of(spec).algorithm
    return ", ".join(dict.fromkeys([folder, algorithm, f"round {spec.round}"]))


def _untrained(spec: Spec, count: int) -> Actor:
    """The policy with which the run began."""
    config = config_of(spec)
    policy = policy_of(spec, envs.make(config.env, config.agents, config.heterogeneity, config.env_option).environment)
    params = policy.init(Moment(jax.random.key(config.seed), spec.seeds[0], 0).server_key(Purpose.PARAMS))
    arrays = {name: np.asarray(leaf) for name, leaf in names(params).items()}
    return Actor("before training", [TrainedPolicy(spec, arrays)] * count)


def scenes(spec: Spec, which: list[int], episode: int) -> Callable[[], Scene]:
    """A function that makes the environments of the agents `which` of the run that a policy came from, all at the same start.

    Raises:
        UserError: if they cannot be drawn.
    """
    config = config_of(spec)
    if config.env.startswith(gym.PREFIX) or ":" in config.env:
        kwargs = per_agent(config.env_option, config.agents)
        made = [_drawable(config.env, kwargs[i]) for i in which]
        if all(environment is not None for environment in made):
            return lambda: PythonScene(config.env, [_drawable(config.env, kwargs[i]) for i in which], episode)
        raise UserError(f"{config.env} cannot be drawn: let it take render_mode='rgb_array' and return a picture from render()")
    where = evaluation.place(spec)
    agents = jax.tree.map(lambda x: x[0][np.array(which)], where.agents)
    if config.env == "cartpole":
        return lambda: CartPoleScene(agents, episode)
    require(config.env in envs.mujoco.TASKS, f"{config.env} cannot be drawn: only cartpole, MuJoCo tasks and environments with a render()")
    return lambda: MujocoScene(where.federation.environment, agents, episode)


def _drawable(name: str, kwargs: dict[str, Any]) -> Any:
    """An environment that returns pictures, None if its function does not take render_mode."""
    if name.startswith(gym.PREFIX):
        return gym.make(name, {"render_mode": "rgb_array"} | kwargs)
    function = load_function(name, "env")
    takes = inspect.signature(function).parameters.values()
    if not any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in takes):
        return None
    environment = own.make(name, function, {"render_mode": "rgb_array"} | kwargs)
    return environment if hasattr(environment, "render") else None


def film(actors: list[Actor], scenes: list[Scene], which: list[int], steps: int, deterministic: bool) -> list[np.ndarray]:
    """The frames: a row for each actor, a column for each agent; an episode that has ended stands still."""
    shape = (len(actors), len(which))
    returns, ended, last = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, int)
    pictures = [scene.pictures() for scene in scenes]
    frames = []
    for t in range(steps):
        for r, (actor, scene) in enumerate(zip(actors, scenes, strict=True)):
            seen = zip(actor.policies, np.asarray(scene.observations), strict=True)
            actions = [policy.predict(observation, deterministic=deterministic)[0] for policy, observation in seen]
            before = ended[r].copy()
            rewards, over = scene.step(actions)
            returns[r] += np.where(before, 0.0, rewards)
            last[r] = np.where(before, last[r], t + 1)
            ended[r] |= over
            new = scene.pictures()
            pictures[r] = [old if was else picture for old, was, picture in zip(pictures[r], before, new, strict=True)]
        rows = []
        for r in range(len(actors)):
            labels = [f"agent {i}: {returns[r, c]:.0f}" + (f", ended at {last[r, c]}" if ended[r, c] else "") for c, i in enumerate(which)]
            rows.append([Tile(pictures[r][c], labels[c], bool(ended[r, c])) for c in range(len(which))])
        frames.append(video.frame(rows, [actor.title for actor in actors]))
        if ended.all():
            break
    return frames + frames[-1:] * int(FPS)
