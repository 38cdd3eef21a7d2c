"""`fedpg demo`: five different CartPoles, one policy; a table and a picture."""

from __future__ import annotations

from rich.console import Console

from fedpg.cli.parse import parse
from fedpg.paper.demo import DemoOptions, demo


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(DemoOptions, argv, "fedpg demo")
    from fedpg.runs.devices import use_all_cores

    use_all_cores()
    console = Console()
    console.print(f"picture: {demo(options, console)}", soft_wrap=True, highlight=False)
    return 0
