"""`fedpg serve`: the server of a federation between machines."""

import contextlib
import dataclasses
import json
import os
import shlex
import signal
from pathlib import Path

from rich.console import Console

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import require_flower
from fedpg.flower.server import Rules
from fedpg.runs import config as configs
from fedpg.runs.config import flag
from fedpg.runs.folder import RunFolder, write_atomically

OPTIONS = "serve.json"
"""The file with the flags of a server, for --resume."""
CONFIG = "config.toml"
"""The file with the run as it was given, for a server that was killed before it wrote a run folder."""
NOT_KEPT = ("config", "agents", "out", "resume")


@dataclasses.dataclass(frozen=True)
class ServeOptions(Rules):
    """Run the server of a federation between machines: one policy, and agents with private environments.

    Example: fedpg serve --config fed.toml --out runs/fed --keys keys

    Starts Flower's SuperLink and writes a run folder as `fedpg train` does. Agents are started with `fedpg join`; see
    docs/how-to/deploy.md. With --resume, flags that are left out are those of the first start.
    """

    config: str | None = None
    """A TOML file with the names of `fedpg train`'s flags: algorithm, agents, rounds, and an env with the agents' spaces."""
    agents: int | None = None
    """The most agents that there may be, over that of --config. With --start-with, seats may stay free until later."""
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
    folder, console = RunFolder(Path(options.out)), Console(highlight=False)
    either = "give either --keys FOLDER (fedpg cert makes one) or --insecure"
    if options.resume:
        options, file = remembered(options, argv, folder)
    else:
        require(bool(options.keys) != options.insecure, either)
        require(options.config is not None, "give --config FILE, the run as TOML, or --resume to continue the one in --out")
        folder.require_empty()
        file = Path(options.config)
    require(bool(options.keys) != options.insecure, either)
    given = {} if options.agents is None else {"agents": options.agents}
    config, keys = configs.Config(**configs.read(file) | given), Path(options.keys).resolve() if options.keys else None

    require_flower()
    from fedpg.flower.processes import split_address
    from fedpg.flower.serving import Serving
    from fedpg.flower.status_page import StatusPage
    from fedpg.flower.terminal import StatusView

    for address in (options.address, options.status, options.policy):
        if address != "none":
            split_address(address)  # before anything listens
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.umask(0o077)  # what the run and its agents say is nobody else's business
    rules = Rules(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Rules)})
    again = shlex.join(["fedpg", "serve", "--resume", "--out", options.out])
    try:
        with contextlib.ExitStack() as cleanup:
            server = cleanup.enter_context(Serving(config, folder, options.address, keys, rules, options.resume))
            remember(dataclasses.replace(options, keys=str(keys) if keys else None), config, folder)
            if options.insecure:
                console.print("--insecure: no encryption, and anyone who reaches the port may join", style="bold")
            if options.status != "none":
                page = StatusPage(server.status, *split_address(options.status))
                cleanup.callback(page.stop)
                console.print(f"status page: http://{page.address}")
            if options.policy != "none":
                from fedpg.flower.delivery import PolicyServer
                from fedpg.runs.policy import FILE

                reading = PolicyServer(folder.policy / FILE, *split_address(options.policy), keys)
                cleanup.callback(reading.stop)
                console.print(f"policy for readers: {reading.address}")
            console.print(f"agents connect to {options.address}; to continue after a stop: {again}", soft_wrap=True)
            with StatusView(console, server.status):
                server.run()
    except KeyboardInterrupt:  # said when everything has ended: the command works at once
        if not (folder.federation / OPTIONS).exists():
            raise
        console.print(f"stopped; all finished rounds are saved. Continue with: {again}", soft_wrap=True)
        return 130
    return 0


def remember(options: ServeOptions, config: configs.Config, folder: RunFolder) -> None:
    """Writes down what `--resume` needs."""
    kept = {name: value for name, value in vars(options).items() if name not in NOT_KEPT}
    write_atomically(folder.federation / OPTIONS, (json.dumps(kept, indent=2) + "\n").encode())
    write_atomically(folder.federation / CONFIG, configs.to_toml(config).encode())


def remembered(options: ServeOptions, argv: list[str], folder: RunFolder) -> tuple[ServeOptions, Path]:
    """The options of a server that continues a run, and the file with that run."""
    file = folder.config if folder.config.exists() else folder.federation / CONFIG
    if not file.exists():
        folder.require_run()
    try:
        before = json.loads((folder.federation / OPTIONS).read_bytes())
    except (OSError, ValueError):
        before = {}
    typed = {flag(word.partition("=")[0]) for word in argv}
    if typed & {"--keys", "--insecure"}:
        typed |= {"--keys", "--insecure"}
    names = {field.name for field in dataclasses.fields(ServeOptions)} - set(NOT_KEPT)
    kept = {name: value for name, value in before.items() if name in names and f"--{flag(name)}" not in typed}
    return dataclasses.replace(options, **kept), file
