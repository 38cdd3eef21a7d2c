"""`fedpg serve`: the server of a federation between machines."""

import contextlib
import dataclasses
import signal
from pathlib import Path

from rich.console import Console

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import require_flower
from fedpg.flower.server import Rules
from fedpg.runs import config as configs
from fedpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class ServeOptions(Rules):
    """Run the server of a federation between machines: one policy, and agents with private environments.

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
    status: str = "127.0.0.1:8092"
    """HOST:PORT of the read-only status page; none for no page."""
    policy: str = "none"
    """HOST:PORT where `fedpg policy` may fetch the newest policy, with a key of a reader (fedpg cert --readers); none for nobody."""
    resume: bool = False
    """Continue the run in --out after its last finished round."""


def main(argv: list[str]) -> int:
    """Runs the verb; returns the exit code."""
    options = parse(ServeOptions, argv, "fedpg serve")
    require(bool(options.keys) != options.insecure, "give either --keys FOLDER (fedpg cert makes one) or --insecure")
    folder, console = RunFolder(Path(options.out)), Console(highlight=False)
    if options.resume:
        folder.require_run()
    else:
        require(options.config is not None, "give --config FILE, the run as TOML, or --resume to continue the one in --out")
        folder.require_empty()
    file = folder.config if options.resume else Path(options.config)

    require_flower()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from fedpg.flower.processes import SuperLink, split_address
    from fedpg.flower.server_app import check
    from fedpg.flower.status import STATUS_FILE
    from fedpg.flower.status_page import StatusPage
    from fedpg.flower.terminal import StatusView

    rules = Rules(options.deadline, options.quorum, options.norm_bound, options.start_with)
    check(configs.Config(**configs.read(file)), rules)
    if options.insecure:
        console.print("--insecure: no encryption, and anyone who reaches the port may join", style="bold")
    status = folder.federation / STATUS_FILE
    with contextlib.ExitStack() as cleanup:
        if options.status != "none":
            page = StatusPage(status, *split_address(options.status))
            cleanup.callback(page.stop)
            console.print(f"status page: http://{page.address}")
        if options.policy != "none":
            from fedpg.flower.delivery import PolicyServer
            from fedpg.runs.policy import FILE

            keys = Path(options.keys) if options.keys else None
            reading = PolicyServer(folder.policy / FILE, *split_address(options.policy), keys)
            cleanup.callback(reading.stop)
            console.print(f"policy for readers: {reading.address}")
        superlink = SuperLink(file, folder.path, options.address, Path(options.keys) if options.keys else None, rules, options.resume)
        cleanup.callback(superlink.stop)
        try:
            with StatusView(console, status):
                superlink.wait()
        except KeyboardInterrupt:
            again = f"fedpg serve --resume --out {options.out}" + (" --insecure" if options.insecure else f" --keys {options.keys}")
            console.print(f"stopped; all finished rounds are saved. Continue with: {again}", soft_wrap=True)
            return 130
    return 0
