"""`fedpg theory`: the theorems' beta, step-sizes and B for given constants."""

import json
from dataclasses import asdict, dataclass, fields

from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse
from fedpg.theory import ERRATA, Constants, Prescription, prescribe
from fedpg.theory import constants as k


@dataclass(frozen=True)
class TheoryOptions(Constants):
    """Print the beta, step-sizes and B that the theorems prescribe, and the bound they promise.

    Example: fedpg theory --agents 10 --local-steps 16 --rounds 500 --horizon 20

    docs/theory.md explains each number.
    """

    algorithm: str = "fedsvrpg-m"
    """fedsvrpg-m or fedhapg-m."""
    json: bool = False
    """Print one JSON object instead of the table."""


def main(argv: list[str]) -> int:
    """Prints the prescription; returns the exit code."""
    options = parse(TheoryOptions, argv, "fedpg theory")
    prescription = prescribe(Constants(**{field.name: getattr(options, field.name) for field in fields(Constants)}), options.algorithm)
    if options.json:
        print(json.dumps(as_dict(prescription), indent=2))
    else:
        _print_table(prescription)
    return 0


def as_dict(p: Prescription) -> dict[str, object]:
    """Every number of the table under a stable name."""
    return {
        "algorithm": p.algorithm,
        "inputs": asdict(p.constants),
        "smoothness": {name: value for name, value, _ in _smoothness(p)},
        "beta": p.beta,
        "global_lr": p.global_lr,
        "local_lr": p.local_lr,
        "binding": p.binding,
        "conditions": p.conditions,
        "B": p.B,
        "bound": p.bound,
        "bound_noise": p.bound_noise,
        "bound_start": p.bound_start,
        "errata": list(ERRATA[p.algorithm]),
    }


def _smoothness(p: Prescription) -> list[tuple[str, float, str]]:
    """(name, value, meaning) of the constants that the algorithm's theorem uses, the one it ends with last."""
    names = ("C_g", "L", "L_g", "C_w", "L1", "L2", "L3", "Lbar") if p.algorithm == "fedsvrpg-m" else ("C_g", "L", "L4", "Lhat")
    functions = [getattr(k, name) for name in names]
    return [(name, of(p.constants), of.__doc__.splitlines()[0].partition(":")[0]) for name, of in zip(names, functions, strict=True)]


def _print_table(p: Prescription) -> None:
    c = p.constants
    table = Table(title=f"{p.algorithm}: N={c.agents} K={c.local_steps} R={c.rounds} H={c.horizon} gamma={c.discount:g}")
    table.add_column("quantity", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning")
    table.add_row("sigma", f"{c.sigma:.4g}", "bound on the deviation of g and w g")
    table.add_row("delta", f"{c.delta:.4g}", "J* - J(theta_0)")
    table.add_row("g0", f"{c.g0:.4g}", "mean |grad J_i(theta_0)|^2", end_section=True)
    for name, value, meaning in _smoothness(p):
        table.add_row(name, f"{value:.4g}", meaning, end_section=name in ("Lbar", "Lhat"))
    for name, value in p.conditions.items():
        table.add_row("eta <=", f"{value:.4g}", name + (" (binds)" if name == p.binding else ""), end_section=name == [*p.conditions][-1])
    table.add_row("beta", f"{p.beta:.4g}", "momentum")
    table.add_row("lambda", f"{p.global_lr:.4g}", "global_lr")
    table.add_row("eta", f"{p.local_lr:.4g}", f"local_lr, by {p.binding}")
    table.add_row("B", f"{p.B}" if p.B < 10**9 else f"{p.B:.4g}", "trajectories per agent for u_0")
    table.add_row("bound", f"{p.bound:.4g}", f"mean |grad J|^2 <~ {p.bound_noise:.4g} (noise) + {p.bound_start:.4g}")
    console = Console(highlight=False)
    console.print(table)
    console.print("Numeric constants hidden in the theorem's <~ are taken as 1.")
    console.print("Errata applied: " + ", ".join(ERRATA[p.algorithm]))
