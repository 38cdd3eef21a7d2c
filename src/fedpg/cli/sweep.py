"""`fedpg sweep`: lists of settings, compared in a table."""

import dataclasses
import itertools
import math
import shlex
from pathlib import Path
from typing import Any

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
    words, lists = find_lists(argv)
    parsed = []
    for values in itertools.product(*(words[place].split(",") for place in lists)):
        chosen = dict(zip(lists, values, strict=True))
        settings, options = parse_run(SweepOptions, [chosen.get(i, word) for i, word in enumerate(words)], "fedpg sweep")
        parsed.append(Config(**settings))

    from fedpg.machine import use_all_cores
    from fedpg.runs.folder import RunFolder, append_line, manifest, write_json
    from fedpg.runs.setup import resolve
    from fedpg.runs.sweep import sweep_all

    use_all_cores()
    configs, folder, console = [resolve(config) for config in parsed], RunFolder(Path(options.out)), Console()
    folder.require_empty()
    rows: list[dict[str, Any]] = []
    with folder.lock(), console.status(f"{len(configs)} settings, {configs[0].seeds} seeds each") as status:
        write_json(folder.manifest, manifest())
        for numbers, curves in sweep_all(configs):
            for number, returns in zip(numbers, curves.returns.mean(-1), strict=True):
                setting = {name: getattr(configs[number], name) for name in lists.values()}
                rows.append({"setting": setting, **summary(curves.rounds, returns), "config": vars(configs[number])})
                append_line(folder.path / "results.jsonl", rows[-1])
            status.update(f"{len(rows)} of {len(configs)} settings done")
    show(rows, console)
    print(f"All is in {folder.path}/results.jsonl")
    return 0


def find_lists(argv: list[str]) -> tuple[list[str], dict[int, str]]:
    """`argv` with --flag=VALUE as two words, and where in it there are lists A,B,C, with the names of their fields.

    >>> find_lists(["--env=cartpole", "--local-lr", "0.1,0.2"])
    (['--env', 'cartpole', '--local-lr', '0.1,0.2'], {3: 'local_lr'})
    """
    names = {f"--{flag(name)}": name for name in FIELDS if name not in WITHOUT_LISTS}
    words = [part for word in argv for part in (word.split("=", 1) if flag(word.partition("=")[0]) in names else [word])]
    pairs = enumerate(itertools.pairwise(words), start=1)
    return words, {place: names[flag(word)] for place, (word, value) in pairs if flag(word) in names and "," in value}


def summary(rounds: Any, returns: Any) -> dict[str, Any]:
    """The numbers of a setting from its returns, mean over agents, (seeds, evaluations)."""
    import numpy as np

    from fedpg.report.statistics import estimate
    from fedpg.runs.metrics import short

    healthy = np.isfinite(returns[:, -1])
    final = estimate(returns[healthy, -1] if healthy.any() else np.array([np.nan]))
    return {
        "return": short(final.mean),
        "low": short(final.low),
        "high": short(final.high),
        "failed_seeds": np.flatnonzero(~healthy).tolist(),
        "rounds": rounds.tolist(),
        "return_per_seed": [[short(value) for value in seed] for seed in returns],
    }


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Prints the settings with their final returns, and the best one as flags."""
    table = Table(title=f"return after {rows[0]['rounds'][-1]} rounds, mean over {rows[0]['config']['seeds']} seeds and all agents")
    for name in (*rows[0]["setting"], "return", "95 % interval", "failed seeds"):
        table.add_column(flag(name), justify="right", overflow="fold")
    for row in rows:
        found = ("-", "-") if row["return"] is None else (f"{row['return']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}")
        table.add_row(*map(str, row["setting"].values()), *found, str(len(row["failed_seeds"]) or ""))
    console.print(table)
    best = max(rows, key=lambda row: (-len(row["failed_seeds"]), -math.inf if row["return"] is None else row["return"]))
    flags = " ".join(f"--{flag(name)} {shlex.quote(str(value))}" for name, value in best["setting"].items())
    print(f"best: {flags or 'the only setting'}. Confirm it with another --seed: it was chosen because it was best on these.")
