"""What noise on messages costs: the return of CALM and PAvg on CartPoles whose agents clip and noise what they send.

The setting of docs/how-to/private-messages.md. Noise z is in units of the clip C, so that equal z means equal privacy. Every method clips
at the typical length of its own messages without noise. eta is chosen on tuning seeds, for every method and noise anew.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.algorithms.wrappers import chain, private
from fedpg.paper import verdict
from fedpg.paper.compare import MARGIN, tune
from fedpg.paper.jobs import cached
from fedpg.paper.method import CALM, PAVG, Method
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, exactly, line, over_seeds, row
from fedpg.paper.task import Task
from fedpg.simulate import simulator

TITLE = "Noise on messages: what it costs CALM and PAvg"
TASK = Task(
    "CartPole", "cartpole", 100, 0.5, local_steps=10, rounds=40, horizon=100, discount=0.99, batch=2, baseline="time", eval_episodes=4
)
METHODS = (PAVG, CALM)
ROOTS = 71, 72
"""Of the tuning seeds and of the reported ones."""
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"agents": 10, "rounds": 8, "tuning": 2, "seeds": 4, "noises": (0.0, 1.0), "etas": (1e-3, 3e-3)},
    "full": {
        "agents": 100,
        "rounds": 40,
        "tuning": 3,
        "seeds": 12,
        "noises": (0.0, 1.0, 3.0, 10.0),
        "etas": (3e-4, 1e-3, 3e-3, 1e-2),
    },
}


def play(task: Task, method: Method, etas: np.ndarray, noises: np.ndarray, clips: np.ndarray, seeds: int, root: int) -> Any:
    """The last returns, (P, S), and the typical length of a message, (P,), in P settings; a clip of infinity changes nothing."""

    def make() -> tuple[np.ndarray, np.ndarray]:
        federation = task.federation()
        problem = task.problem(method, federation)

        def algorithm_of(setting: dict[str, jax.Array]) -> Any:
            own = method.make(problem, local_lr=setting["eta"], local_steps=task.local_steps, agents=task.agents)
            return chain(own, private(setting["clip"], setting["noise"]))

        settings = {"eta": jnp.asarray(etas), "noise": jnp.asarray(noises), "clip": jnp.asarray(clips)}
        sim = simulator(problem, algorithm_of, federation, seeds=seeds, settings=settings)
        key = jax.random.key(root)
        state, lengths = sim.init(key), []
        for _ in range(4):  # the first, the last, and two rounds in between
            state, info = sim.run(state, task.rounds // 4)
            lengths.append(np.sqrt(np.asarray(info.latest.drift_sq)))
        returns = np.nan_to_num(np.asarray(sim.evaluate(state).returns).mean(-1)).reshape(-1, seeds)
        paths = np.median(np.stack(lengths), axis=0).reshape(-1, seeds).mean(-1)
        return returns, paths / (etas * task.local_steps if method is CALM else 1.0)  # CALM sends gradients, PAvg paths

    return cached(("privacy", task, method, etas.tolist(), noises.tolist(), clips.tolist(), seeds, root), make)


def run(tell: Tell, agents: int, rounds: int, tuning: int, seeds: int, noises: tuple[float, ...], etas: tuple[float, ...]) -> Result:
    """Runs the experiment; `noises` start with 0, which only clips."""
    task, grid = dataclasses.replace(TASK, agents=agents, rounds=rounds), np.array(etas)
    rows, points, last = [], [], {}
    for at, method in enumerate(METHODS):
        tell(f"{method.name}, tuning", at / len(METHODS))
        zero, keys = np.zeros(len(grid)), {"task": task.name, "method": method.name, "N": agents, "K": task.local_steps}
        _, clips = play(task, method, grid, zero, np.full(len(grid), 1e9), tuning, ROOTS[0])
        every = np.tile(grid, len(noises)), np.repeat(noises, len(grid)), np.tile(clips, len(noises))
        tuned = play(task, method, *every, tuning, ROOTS[0])[0].reshape(len(noises), len(grid), tuning)
        best = [tune(each[None], grid, (1.0,), 0.0) for each in tuned]
        chosen = np.array([one.eta for one in best])
        own_clips = np.array([clips[etas.index(eta)] for eta in chosen])
        tell(f"{method.name}, reported", (at + 0.5) / len(METHODS))
        last[method.name] = play(task, method, chosen, np.array(noises), own_clips, seeds, ROOTS[1])[0]
        for z, eta, clip, tuned_at, values in zip(noises, chosen, own_clips, best, last[method.name], strict=True):
            flags = ("edge of the grid",) if tuned_at.at_edge else ()
            rows.append(row("return", over_seeds(values), noise=z, eta=float(eta), flags=flags, **keys))
            rows.append(exactly("clip", float(clip), noise=z, **keys))
        points += line("return", over_seeds(last[method.name]), "noise", noises, **keys)
    rows += compared(task, noises, last)
    return Result(rows=rows, points=points, settings={"task": dataclasses.asdict(task), "roots": ROOTS})


def compared(task: Task, noises: tuple[float, ...], last: dict[str, np.ndarray]) -> list[Row]:
    """How much less return the noise costs CALM than PAvg, paired by seed; not inferior within a share of PAvg's return."""
    lost = {name: values[0] - values for name, values in last.items()}
    rows, least = [], -MARGIN * float(last[PAVG.name][0].mean())
    for at, z in enumerate(noises[1:], start=1):
        found = over_seeds(lost[PAVG.name][at] - lost[CALM.name][at])
        keys = {"method": CALM.name, "against": PAVG.name, "comparison": "-", "task": task.name, "noise": z}
        rows.append(row("return saved", found, verdict=verdict.above(found, least), **keys))
    return rows


def figures(result: Result) -> list[Figure]:
    """The return against the noise."""
    plot = Plot(title="CartPole", quantity="return", x="noise", x_scale="symlog 1", x_label="noise, in units of the clip")
    return [Figure(plots=[plot], rows=result.points, columns=1, height=3.0)]
