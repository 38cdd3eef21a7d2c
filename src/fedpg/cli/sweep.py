"""`fedpg sweep`: lists of settings, compared in a table."""

import dataclasses
import itertools
import math
import shlex
from pathlib import Path
from typing import Any

import rich.progress
from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse_run
from fedpg.runs.config import FIELDS, Config, flag

WITHOUT_LISTS = ("env_option", "algorithm_option", "hidden", "track", "seeds", "eval_every", "rounds")
"""Flags whose commas mean something else, or that must be the same for all."""


@dataclasses.dataclass(frozen=True)
class SweepOptions(Config):
    """Compare lists of settings: every combination, on the same seeds, with the same agents and random numbers.

    Example: fedpg sweep --env cartpole --local-lr 1e-4,3e-4,1e-3 --beta 0.1,0.2 --seeds 8 --out runs/sweep

    Flags are those of `fedpg train`, and those with one value take a list, A,B,C. Lists of --beta, --local-lr and --global-lr are run
    as one compiled program, other lists as one program per value. OUT/results.jsonl has a line per setting: the final return, its
    95 % interval over seeds, the whole curves and the complete configuration.
    """

    out: str = "runs/sweep"
    """The folder for results.jsonl and manifest.json; must be empty or absent."""
    config: str | None = None
    """A TOML file with the same names as the flags; flags win over it."""


def main(argv: list[str]) -> int:
    """Runs every setting and prints the table; returns the exit code."""
    argv, axes = split_lists(argv)
    parsed = []
    for values in itertools.product(*axes.values()):
        chosen = [word for pair in zip(axes, values, strict=True) for word in pair]
        settings, options = parse_run(SweepOptions, argv + chosen, "fedpg sweep")
        parsed.append(Config(**settings))
    folder = Path(options.out)

    from fedpg.machine import use_all_cores
    from fedpg.runs.folder import RunFolder, append_line, manifest, write_json
    from fedpg.runs.setup import resolve
    from fedpg.runs.sweep import sweep_all

    use_all_cores()
    configs = [resolve(config) for config in parsed]
    RunFolder(folder).require_empty()
    names = [name.removeprefix("--").replace("-", "_") for name in axes]
    lines: list[dict[str, Any]] = [{}] * len(configs)
    console = Console()
    with RunFolder(folder).lock(), rich.progress.Progress(console=console, disable=not console.is_terminal) as bar:
        write_json(folder / "manifest.json", manifest())
        task = bar.add_task(f"{len(configs)} settings, {configs[0].seeds} seeds each", total=len(configs))
        for numbers, curves in sweep_all(configs):
            for p, number in enumerate(numbers):
                setting = {name: getattr(configs[number], name) for name in names}
                lines[number] = result(setting, curves.rounds, curves.returns[p].mean(-1)) | {"config": vars(configs[number])}
                append_line(folder / "results.jsonl", lines[number])
            bar.advance(task, len(numbers))
    console.print(table_of(lines))
    best = max(lines, key=lambda line: (-len(line["failed_seeds"]), -math.inf if line["return"] is None else line["return"]))
    flags = " ".join(f"--{flag(name)} {shlex.quote(str(value))}" for name, value in best["setting"].items())
    advice = "Confirm it with another --seed: it was chosen because it was best on these."
    console.print(f"best: {flags or 'the only setting'}. {advice} All is in {folder}/results.jsonl", soft_wrap=True, highlight=False)
    return 0


def split_lists(argv: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """`argv` without the flags that have a list A,B,C, and these: --flag -> values.

    >>> split_lists(["--env", "cartpole", "--beta", "0.1,0.2"])
    (['--env', 'cartpole'], {'--beta': ['0.1', '0.2']})
    """
    lists = {f"--{flag(name)}" for name in FIELDS if name not in WITHOUT_LISTS}
    words = [part for word in argv for part in (word.split("=", 1) if flag(word.partition("=")[0]) in lists else [word])]
    rest: list[str] = []
    axes: dict[str, list[str]] = {}
    for word in words:
        if rest and flag(rest[-1]) in lists and "," in word:
            axes[flag(rest.pop())] = word.split(",")
        else:
            rest.append(word)
    return rest, axes


def result(setting: dict[str, Any], rounds: Any, returns: Any) -> dict[str, Any]:
    """One line of results.jsonl: the mean over agents of the return, (seeds, evaluations), at the end and along the way."""
    import numpy as np

    from fedpg.report.statistics import estimate
    from fedpg.runs.metrics import short

    final = returns[:, -1]
    healthy = np.isfinite(final)
    found = estimate(final[healthy] if healthy.any() else np.array([np.nan]))
    return {
        "setting": setting,
        "return": short(found.mean),
        "low": short(found.low),
        "high": short(found.high),
        "failed_seeds": np.flatnonzero(~healthy).tolist(),
        "rounds": rounds.tolist(),
        "return_per_seed": [[short(value) for value in seed] for seed in returns],
    }


def table_of(lines: list[dict[str, Any]]) -> Table:
    """The settings and their final returns."""
    rounds, seeds = lines[0]["rounds"][-1], len(lines[0]["return_per_seed"])
    table = Table(title=f"return after {rounds} rounds, mean over {seeds} seeds and all agents", title_justify="left")
    for name in lines[0]["setting"]:
        table.add_column(flag(name), justify="right", overflow="fold")
    for column in ("return", "95 % interval", "failed seeds"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in lines:
        shown = ("-", "-") if line["return"] is None else (f"{line['return']:.4g}", f"{line['low']:.4g} to {line['high']:.4g}")
        table.add_row(*map(str, line["setting"].values()), *shown, str(len(line["failed_seeds"]) or ""))
    return table
