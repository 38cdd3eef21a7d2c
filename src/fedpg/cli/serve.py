"""`fedpg serve`: the server of a federation between machines."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

from rich.console import Console

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import require_flower
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """Run the server of a federation between machines: one policy, and agents whose environments nobody else sees.

    Example: fedpg serve --config fed.toml --out runs/fed --keys keys

    Starts Flower's SuperLink with our ServerApp, and writes a run folder as `fedpg train` does. Agents are started with
    `fedpg join`; see docs/deploy.md.
    """

    config: str | None = None
    """A TOML file with the names of `fedpg train`'s flags: algorithm, agents, rounds, and an env with the agents' spaces."""
    out: str = "runs/federation"
    """The run folder; what the server's processes print is in its subfolder federation."""
    address: str = "0.0.0.0:9092"
    """HOST:PORT where agents connect."""
    keys: str | None = None
    """The folder with ca.crt, server.pem, server.key, and agent-N.pub of the agents that may join; `fedpg cert` makes one."""
    insecure: bool = False
    """Neither encryption nor authentication: for tests on one machine."""
    deadline: float = 120.0
    """Seconds to wait for the agents' answers; an agent that has not answered by then is absent in the exchange."""
    quorum: int = 1
    """The fewest usable messages that make a round; with fewer the round is repeated."""
    start_with: int = 0
    """The agents that must be there before the first exchange; 0 for all of them."""
    norm_bound: float = 1e9
    """Messages with a larger L2 norm are refused."""
    status: str = "127.0.0.1:8092"
    """HOST:PORT of the read-only status page; none for no page."""
    resume: bool = False
    """Continue the run in --out after its last finished round."""


def main(argv: list[str]) -> int:
    """Runs the verb; returns the exit code."""
    options = parse(ServeOptions, argv, "fedpg serve")
    folder, console = RunFolder(Path(options.out)), Console()
    require(options.insecure or options.keys is not None, "give --keys FOLDER (fedpg cert makes one), or --insecure to do without")
    require(not (options.insecure and options.keys), "--keys and --insecure exclude each other")
    if options.resume:
        folder.require_run()
        file = folder.config
    else:
        require(options.config is not None, "give --config FILE, the run as TOML, or --resume to continue the one in --out")
        folder.require_empty()
        file = Path(options.config)

    require_flower()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from fedpg.flower.processes import SuperLink, split_address
    from fedpg.flower.server_app import Rules, check
    from fedpg.flower.status import STATUS_FILE
    from fedpg.flower.status_page import StatusPage
    from fedpg.flower.terminal import StatusView

    rules = Rules(options.deadline, options.quorum, options.norm_bound, options.start_with)
    check(Config(**configs.read(file)), rules)
    if options.insecure:
        console.print("--insecure: no encryption, and anyone who reaches the port may join", style="bold", highlight=False)
    status, page = folder.federation / STATUS_FILE, None
    if options.status != "none":
        page = StatusPage(status, *split_address(options.status))
        console.print(f"status page: http://{page.address}", highlight=False)
    try:
        keys = Path(options.keys) if options.keys else None
        superlink = SuperLink(file, folder.path, options.address, keys, rules, options.resume)
        try:
            with StatusView(console, status):
                superlink.wait()
        except KeyboardInterrupt:
            again = f"fedpg serve --resume --out {options.out}" + (" --insecure" if options.insecure else f" --keys {options.keys}")
            console.print(f"stopped; all finished rounds are saved. Continue with: {again}", soft_wrap=True, highlight=False)
            return 130
        finally:
            superlink.stop()
    finally:
        if page:
            page.stop()
    return 0
