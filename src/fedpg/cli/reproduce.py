"""`fedpg reproduce WHAT`: a table or figure of the paper, or one of ours, beside the published numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedpg.cli.parse import parse
from fedpg.errors import choose
from fedpg.paper import catalogue
from fedpg.paper.kept import keeping
from fedpg.paper.outcome import Outcome, save
from fedpg.report.figures import panels

WHAT = "\n".join(f"{name}: {does}" for name, does in catalogue.EXPERIMENTS.items())


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    """Runs an experiment, prints published and measured numbers side by side, saves them and the picture."""

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
    choose("experiment", options.what, (*catalogue.EXPERIMENTS, "all"))
    choose("scale", options.scale, catalogue.SCALES)
    from fedpg.runs.devices import use_all_cores

    use_all_cores()
    console, out = Console(), Path(options.out)
    for name in catalogue.EXPERIMENTS if options.what == "all" else [options.what]:
        with keeping(out / f".{name}-{options.scale}-parts"):
            outcome = run(name, options.scale, console)
        show(outcome, console)
        saved = save(outcome, out)
        picture = panels(outcome.panels, out / f"{name}.png", title=outcome.title) if outcome.panels else None
        console.print(f"saved: {saved}" + (f", picture: {picture}" if picture else ""), soft_wrap=True, highlight=False)
    return 0


def run(name: str, scale: str, console: Console) -> Outcome:
    """One experiment with a bar; without a terminal, a line for every new thing it does."""
    if not console.is_terminal:
        said: list[str] = []

        def tell(what: str, share: float) -> None:
            if what not in said:
                said.append(what)
                console.print(f"{name}: {what}", highlight=False)

        return catalogue.run(name, scale, tell)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=1.0)
        return catalogue.run(name, scale, lambda what, share: bar.update(task, description=f"{name}: {what}", completed=share))


def show(outcome: Outcome, console: Console) -> None:
    """The table and the notes."""
    published = any(row.published is not None for row in outcome.rows)
    table = Table(title=f"{outcome.title} ({outcome.scale})", title_justify="left")
    table.add_column("")
    for column in (*(["published"] if published else []), "ours", "95 % interval", "n"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in outcome.rows:
        paper = "" if row.published is None else f"{row.published:g}" + (f" ± {row.published_error:g}" if row.published_error else "")
        ours = [f"{row.ours:.4g}", f"{row.low:.4g} to {row.high:.4g}", f"{row.n:,}"]
        table.add_row(row.what, *([paper] if published else []), *ours, row.verdict)
    console.print(table)
    for note in outcome.notes:
        console.print(f"- {note}", highlight=False)
