"""`fedpg reproduce WHAT`: a table or figure of the paper, or one of ours, beside the published numbers."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from fedpg import paper
from fedpg.cli.parse import parse
from fedpg.errors import choose
from fedpg.machine import use_all_cores

WHAT = "\n".join(f"    {name:16}  {does}" for name, does in {**paper.EXPERIMENTS, "all": "every one of them"}.items())


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    """Run an experiment, print published and measured numbers side by side, and save them with their figures."""

    what: Annotated[str, tyro.conf.Positional]
    """The name of an experiment, or all."""
    scale: str = "smoke"
    """smoke: small, for two cores. full: what the documentation shows, for an accelerator."""
    out: str = "runs/reproduce"
    """Folder for NAME.json and its figures, NAME.png and NAME.svg or several NAME-WHAT."""


ReproduceOptions.__doc__ = f"{ReproduceOptions.__doc__}\n\nExperiments:\n{WHAT}"


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(ReproduceOptions, argv, "fedpg reproduce")
    choose("experiment", options.what, (*paper.EXPERIMENTS, "all"))
    choose("scale", options.scale, paper.SCALES)
    from fedpg.paper import jobs, render, results
    from fedpg.paper.draw import draw

    use_all_cores()
    # Without a terminal Rich would take 80 columns.
    console, out = Console(width=None if sys.stdout.isatty() else 140, highlight=False, soft_wrap=True), Path(options.out)
    for name in paper.EXPERIMENTS if options.what == "all" else [options.what]:
        said: set[str] = set()

        def tell(what: str, share: float) -> None:
            if what not in said:  # noqa: B023
                said.add(what)  # noqa: B023
                console.print(f"{name}: {what} ({share:.0%} done)")  # noqa: B023

        with jobs.cache(out / f".{name}-{options.scale}-parts"):
            result = paper.run(name, options.scale, tell)
        console.print(*render.terminal(result), sep="\n", soft_wrap=False)
        saved = results.save(result, out)
        drawn = ", ".join(str(path) for path in draw(result, out))
        console.print(f"saved: {saved}, {drawn}; how to read it: docs/reference/results/index.md")
    return 0
