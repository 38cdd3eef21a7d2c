"""`fedpg serve`: the server of a federation between machines."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

from rich.console import Console

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import processes
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """Lead a federation between machines: one policy, one agent per site, each with an environment that nobody else sees.

    Example: fedpg serve --config fed.toml --out runs/fed --keys keys

    Starts Flower's SuperLink and our ServerApp on it, and writes a run folder as `fedpg train` does. Agents come with
    `fedpg join`; docs/deploy.md has the whole story.
    """

    config: str | None = None
    """A TOML file with the names of `fedpg train`'s flags: algorithm, agents, rounds, and an env with the agents' spaces."""
    out: str = "runs/federation"
    """The run folder; what the server's processes print is in its subfolder federation."""
    address: str = "0.0.0.0:9092"
    """HOST:PORT on which agents reach this server."""
    keys: str | None = None
    """The folder with ca.crt, server.pem, server.key, and agent-N.pub of the agents that may join; `fedpg cert` makes one."""
    insecure: bool = False
    """Neither encryption nor authentication: for trying things out on one machine."""
    deadline: float = 120.0
    """Seconds to wait for the agents' answers; whoever has not answered then is left out of the exchange."""
    quorum: int = 1
    """The fewest messages that make a round; with fewer the round is repeated."""
    start_with: int = 0
    """The agents that must be there before the first exchange; 0 for all of them."""
    norm_bound: float = 1e9
    """Messages with a larger L2 norm are refused."""
    status: str = "127.0.0.1:8092"
    """HOST:PORT of the read-only status page; none for no page."""
    resume: bool = False
    """Go on with the run in --out from its last round."""


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(ServeOptions, argv, "fedpg serve", ServeOptions())
    folder, console = RunFolder(Path(options.out)), Console()
    require(options.insecure or options.keys is not None, "give --keys FOLDER (fedpg cert makes one), or --insecure to do without")
    require(not (options.insecure and options.keys), "--keys and --insecure exclude each other")
    if options.resume:
        folder.require_run()
        file = folder.config
    else:
        require(options.config is not None, "give --config FILE, the run as TOML, or --resume to go on with the one in --out")
        folder.require_empty()
        file = Path(options.config)

    processes.require_flower()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from fedpg.flower import terminal
    from fedpg.flower.server import Rules, check
    from fedpg.flower.server_app import STATUS
    from fedpg.flower.superlink import Service, SuperLink

    rules = Rules(options.deadline, options.quorum, options.norm_bound, options.start_with)
    check(Config(**configs.read(file)), rules)
    service = Service(file, folder.path, options.address, Path(options.keys) if options.keys else None, rules)
    if options.insecure:
        console.print("--insecure: no encryption, and whoever reaches the port may join", style="bold", highlight=False)
    watched = None
    if options.status != "none":
        from fedpg.flower import page

        watched = page.serve(folder.federation / STATUS, *processes.split_address(options.status))
    try:
        if watched:
            console.print(f"status page: http://{watched.address}", highlight=False)
        link = SuperLink(service, options.resume)
        try:
            with terminal.Live(console, folder.federation / STATUS):
                link.wait()
        except KeyboardInterrupt:
            again = f"fedpg serve --resume --out {options.out}" + (" --insecure" if options.insecure else f" --keys {options.keys}")
            console.print(f"stopped; all finished rounds are saved. Go on with: {again}", soft_wrap=True, highlight=False)
            return 130
        finally:
            link.stop()
    finally:
        if watched:
            watched.stop()
    return 0
