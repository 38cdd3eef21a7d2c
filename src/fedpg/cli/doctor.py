"""`fedpg doctor`: what is installed, which devices there are, what is missing for what."""

import dataclasses
import importlib.util
import json
import platform
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedpg.cli.parse import parse
from fedpg.machine import cores

NEEDS = {
    "jax": ("everything", None),
    "numpy": ("everything", None),
    "msgspec": ("configurations", None),
    "safetensors": ("checkpoints", None),
    "scipy": ("intervals", None),
    "rich": ("the command line", None),
    "tyro": ("the command line", None),
    "matplotlib": ("pictures", "plot"),
    "gymnasium": ("gym:... environments", "gym"),
    "mujoco": ("halfcheetah, walker2d, hopper, swimmer", "mujoco"),
    "flwr": ("fedpg serve, join, cert", "flower"),
    "tensorboard": ("--track tensorboard", "tensorboard"),
    "wandb": ("--track wandb", "wandb"),
    "mlflow": ("--track mlflow", "mlflow"),
    "pytest": ("the tests", "test"),
}
"""Package -> (what needs it, the extra that brings it)."""


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Show what is installed, which devices there are, and what is missing for what.

    Example: fedpg doctor
    """

    json: bool = False
    """Print one JSON object instead of a table."""


def examine() -> dict[str, Any]:
    """What was found, as plain data."""
    from fedpg.runs.folder import version

    packages = {}
    for name, (use, extra) in NEEDS.items():
        present = importlib.util.find_spec(name) is not None
        mend = f"pip install 'fedpg[{extra}]'" if extra else f"pip install {name}"
        packages[name] = {"version": version(name) if present else None, "for": use, "mend": None if present else mend}
    devices, problem = [], None
    try:
        import jax

        devices = [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    except Exception as error:  # a broken accelerator driver can raise anything
        problem = str(error).splitlines()[0]
    machine = {"fedpg": version("fedpg"), "python": platform.python_version(), "cores": cores()}
    return machine | {"devices": devices, "device_problem": problem, "packages": packages}


def main(argv: list[str]) -> int:
    """Prints; returns the exit code: 0 if everything that fedpg cannot do without is there."""
    options = parse(DoctorOptions, argv, "fedpg doctor")
    found = examine()
    missing = [name for name, package in found["packages"].items() if package["version"] is None and NEEDS[name][1] is None]
    broken = bool(missing or found["device_problem"])
    if options.json:
        print(json.dumps(found))
        return int(broken)
    console = Console()
    console.print(f"fedpg {found['fedpg']}, Python {found['python']}, {found['cores']} cores", highlight=False)
    console.print(f"devices: {', '.join(found['devices']) or found['device_problem']}", highlight=False)
    table = Table("package", "version", "needed for", "to install")
    for name, package in found["packages"].items():
        table.add_row(name, package["version"] or "[red]missing", package["for"], escape(package["mend"] or ""))
    console.print(table)
    return int(broken)
