"""`fedpg reproduce WHAT`: a table or figure of the paper, or one of ours, beside the published numbers."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedpg import paper
from fedpg.cli.parse import parse
from fedpg.errors import choose
from fedpg.machine import use_all_cores

if TYPE_CHECKING:
    from fedpg.paper.results import Result

WHAT = "\n".join(f"{name}: {does}" for name, does in paper.EXPERIMENTS.items())


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    """Runs an experiment, prints published and measured numbers side by side, saves them and the figure."""

    what: Annotated[str, tyro.conf.Positional]
    """One of the names below, or all."""
    scale: str = "smoke"
    """smoke: small, for two cores. full: what the documentation shows, for an accelerator."""
    out: str = "runs/reproduce"
    """Folder for NAME.json and NAME.png."""


ReproduceOptions.__doc__ = f"{ReproduceOptions.__doc__}\n\n{WHAT}\nall: every one of them"


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(ReproduceOptions, argv, "fedpg reproduce")
    choose("experiment", options.what, (*paper.EXPERIMENTS, "all"))
    choose("scale", options.scale, paper.SCALES)
    from fedpg.paper import jobs, render, results

    use_all_cores()
    # Without a terminal Rich would take 80 columns.
    console, out = Console(width=None if sys.stdout.isatty() else 140), Path(options.out)
    for name in paper.EXPERIMENTS if options.what == "all" else [options.what]:
        with jobs.cache(out / f".{name}-{options.scale}-parts"):
            result = run(name, options.scale, console)
        console.print(*render.terminal(result), sep="\n", highlight=False)
        saved = results.save(result, out)
        figure = f", figure: {render.draw(result, out / f'{name}.png')}" if result.plots else ""
        console.print(f"saved: {saved}{figure}; how to read it: docs/reproduction.md", soft_wrap=True, highlight=False)
    return 0


def run(name: str, scale: str, console: Console) -> "Result":
    """One experiment with a progress bar; without a terminal, a line for every new thing it does."""
    if not console.is_terminal:
        said: list[str] = []

        def tell(what: str, share: float) -> None:
            if what not in said:
                said.append(what)
                console.print(f"{name}: {what}", highlight=False)

        return paper.run(name, scale, tell)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=1.0)
        return paper.run(name, scale, lambda what, share: bar.update(task, description=f"{name}: {what}", completed=share))
