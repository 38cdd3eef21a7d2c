"""`fedpg export RUN --out DIR`: a policy to hand on, with a model card."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import UserError


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Write a trained policy as files that others can use: params, spec, ONNX, a model card, and a video if it can be drawn.

    Example: fedpg export runs/mine --out my-policy

    Then, on a machine with fedpg and without JAX: policy = fedpg.load("my-policy"); action, _ = policy.predict(observation).
    Without fedpg: run my-policy/policy.onnx in ONNX Runtime.
    """

    run: Annotated[str, tyro.conf.Positional]
    """A run folder, or another export."""
    out: str = "policy"
    """The folder to write, empty or absent: policy.safetensors, policy.json, policy.onnx, README.md, replay.mp4."""
    seed: int | None = None
    """Which seed of the run; left out, the best at its last evaluation."""
    agent: int | None = None
    """Whose policy, if every agent has its own (local-only)."""
    episodes: int = 100
    """Episodes per agent behind the mean reward on the card; 0 takes the last evaluation of the run."""
    no_video: bool = False
    """Leave out replay.mp4."""


def main(argv: list[str]) -> int:
    """Exports; returns the exit code."""
    options = parse(ExportOptions, argv, "fedpg export")
    from fedpg.machine import use_all_cores

    use_all_cores()
    from fedpg.runs.export import export
    from fedpg.runs.policy import load

    out = Path(options.out)
    load(options.run, seed=options.seed, agent=options.agent)  # refuses what cannot be used before anything is evaluated
    reward, notes = None, []
    try:
        reward = measured(options)
    except UserError as error:
        notes.append(f"the card has the reward of the run's last evaluation: {error}")
    written, left_out = export(options.run, out, seed=options.seed, agent=options.agent, reward=reward)
    if not options.no_video:
        try:
            written.append(film(options, out))
        except UserError as error:
            notes.append(f"replay.mp4 is left out: {error}")
    for line in (*left_out, *notes):
        print(line)
    print("written: " + ", ".join(str(path) for path in written))
    return 0


def measured(options: ExportOptions) -> tuple[float, float, str] | None:
    """Mean and deviation of the return over episodes, and how they were measured; None if no episodes were asked for."""
    if options.episodes <= 0:
        return None
    from fedpg.runs import evaluation

    trained = evaluation.read(options.run, options.agent, options.seed if options.seed is not None else best(options.run))
    where = evaluation.place(trained.spec)
    if trained.spec.personal:
        where = where.of_agent(trained.spec.agent)
    returns = evaluation.evaluate(trained, where, episodes=options.episodes, how=evaluation.best_mode(trained)).returns
    agents = "its agent" if trained.spec.personal else "each training agent"
    how = "most likely actions" if evaluation.best_mode(trained) == "deterministic" else "random actions"
    return float(returns.mean()), float(returns.std()), f"over {options.episodes} episodes in the environment of {agents}, {how}"


def best(run: str) -> int:
    """The best seed of a run at its last evaluation."""
    from fedpg.runs.policy import read

    return read(run).spec.best_seed


def film(options: ExportOptions, out: Path) -> Path:
    """Films the policy in the agents' environments."""
    from fedpg.runs.play import play

    return play([options.run], out / "replay.mp4", seed=options.seed, agent=options.agent, gif=False)[0]
