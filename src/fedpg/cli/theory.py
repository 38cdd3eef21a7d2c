"""`fedpg theory`: the theorems' beta, step-sizes and B for given constants."""

import json
from dataclasses import asdict, dataclass, fields

from rich.console import Console
from rich.table import Column, Table

from fedpg.cli.parse import parse
from fedpg.theory import ERRATA, Constants, Prescription, prescribe
from fedpg.theory import constants as k


@dataclass(frozen=True)
class TheoryOptions(Constants):
    """Print the beta, step-sizes and B that the theorems prescribe, and the bound they promise.

    Example: fedpg theory --agents 10 --local-steps 16 --rounds 500 --horizon 20

    docs/explanation/theory.md explains each number.
    """

    algorithm: str = "fedsvrpg-m"
    """fedsvrpg-m or fedhapg-m."""
    json: bool = False
    """Print one JSON object instead of the table."""


def main(argv: list[str]) -> int:
    """Prints the prescription; returns the exit code."""
    options = parse(TheoryOptions, argv, "fedpg theory")
    p = prescribe(Constants(**{field.name: getattr(options, field.name) for field in fields(Constants)}), options.algorithm)
    if options.json:
        constants = {name: value for name, value, _ in smoothness(p)}
        derived = {"local_lr": p.local_lr, "binding": p.binding, "bound": p.bound, "errata": ERRATA[p.algorithm]}
        print(json.dumps(asdict(p) | derived | {"smoothness": constants}, indent=2))
    else:
        show(p)
    return 0


def smoothness(p: Prescription) -> list[tuple[str, float, str]]:
    """(name, value, meaning) of the constants that the algorithm's theorem uses."""
    names = ("C_g", "L", "L_g", "C_w", "L1", "L2", "L3", "Lbar") if p.algorithm == "fedsvrpg-m" else ("C_g", "L", "L4", "Lhat")
    return [(name, getattr(k, name)(p.constants), getattr(k, name).__doc__.partition(":")[0]) for name in names]


def show(p: Prescription) -> None:
    """Prints the prescription as a table."""
    c = p.constants
    rows = [
        ("sigma", c.sigma, "bound on the deviation of g and w g"),
        ("delta", c.delta, "J* - J(theta_0)"),
        ("g0", c.g0, "mean |grad J_i(theta_0)|^2"),
        *smoothness(p),
        ("beta", p.beta, "momentum"),
        ("lambda", p.global_lr, "global_lr"),
        *(("eta <=", value, f"{name} (binds)" if name == p.binding else name) for name, value in p.conditions.items()),
        ("eta", p.local_lr, f"local_lr, by {p.binding}"),
        ("B", p.B, "trajectories per agent for u_0"),
        ("bound", p.bound, f"mean |grad J|^2 <~ {p.bound_noise:.4g} (noise) + {p.bound_start:.4g}"),
    ]
    table = Table("quantity", Column("value", justify="right", no_wrap=True), "meaning")
    table.title = f"{p.algorithm}: N={c.agents} K={c.local_steps} R={c.rounds} H={c.horizon} gamma={c.discount:g}"
    for name, value, meaning in rows:
        table.add_row(name, f"{value:.9g}" if name == "B" else f"{value:.4g}", meaning, end_section=name in ("g0", "Lbar", "Lhat"))
    Console().print(table)
    print("Numeric constants hidden in the theorem's <~ are taken as 1.")
    print(f"Errata applied: {', '.join(ERRATA[p.algorithm])}")
