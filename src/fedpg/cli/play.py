"""`fedpg play RUN`: the policy in every agent's environment, as MP4 and GIF."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import require


@dataclasses.dataclass(frozen=True)
class PlayOptions:
    """Film a trained policy in every agent's environment, side by side. Needs: pip install 'fedpg[video]'.

    Example: fedpg play runs/mine --before

    CartPole is drawn by fedpg, MuJoCo tasks off-screen (EGL or OSMesa), Gymnasium environments and your own by their render() with
    render_mode="rgb_array". Several runs are rows of one film, all in the environments of the first run's agents.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders or exports."""
    out: str | None = None
    """The MP4 to write, and a GIF of the same name; left out, replay.mp4 in the folder of the first run."""
    seed: int | None = None
    """Which seed; left out, the best of each run at its last evaluation."""
    agent: int | None = None
    """Only the environment of this agent."""
    agents: int = 8
    """The most agents to show."""
    steps: int | None = None
    """The most steps; left out, the horizon of the run."""
    before: bool = False
    """Show the untrained policy above the trained one."""
    stochastic: bool = False
    """Sample actions, as in training, instead of taking the most likely ones."""
    episode: int = 0
    """Another number shows another episode."""
    live: bool = False
    """Show the film in a window too, where there is a display."""


def main(argv: list[str]) -> int:
    """Films; returns the exit code."""
    options = parse(PlayOptions, argv, "fedpg play")
    require(bool(options.runs), "give one or more run folders: fedpg play runs/mine")
    require(options.agents >= 1, f"agents must be at least 1, not {options.agents}")
    require(options.steps is None or options.steps >= 1, f"steps must be at least 1, not {options.steps}")
    from fedpg.report import video

    if options.live:
        video.require_display()
    from fedpg.runs.play import play

    out = Path(options.out) if options.out else Path(options.runs[0]) / "replay.mp4"
    written = play(
        list(options.runs),
        out,
        seed=options.seed,
        agent=options.agent,
        agents=options.agents,
        steps=options.steps,
        before=options.before,
        deterministic=not options.stochastic,
        episode=options.episode,
    )
    print("written: " + ", ".join(str(path) for path in written))
    if options.live:
        video.show(written[1])
    return 0
