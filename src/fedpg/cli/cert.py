"""`fedpg cert`: makes the keys of a federation and says where each of them belongs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedpg.cli.parse import parse
from fedpg.errors import UserError


@dataclasses.dataclass(frozen=True)
class CertOptions:
    """Make the keys of a federation: a certificate for the server, and a key pair for every agent.

    Example: fedpg cert --out keys --server fed.example.org,192.0.2.7 --agents 5

    Nothing is overwritten. docs/deploy.md has commands of openssl and ssh-keygen that do the same.
    """

    server: str
    """HOST_OR_IP[,MORE]: by which names agents reach the server; localhost and 127.0.0.1 are always among them."""
    agents: int
    """How many agents get a key pair."""
    out: str = "keys"
    """The folder to make."""
    days: int = 825
    """How long the server's certificate is valid."""


def main(argv: list[str]) -> int:
    """Runs the verb; returns the exit code."""
    options = parse(CertOptions, argv, "fedpg cert")
    try:
        from fedpg.flower.keys import make_keys
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise UserError("fedpg cert needs cryptography: pip install 'fedpg[flower]'") from None
    names = tuple(name.strip() for name in options.server.split(","))
    make_keys(Path(options.out), names, options.agents, options.days)
    last, keys = options.agents - 1, Path(options.out).name
    host = f"[{names[0]}]" if ":" in names[0] else names[0]
    some, each = ("0", "agent-0") if last == 0 else (f"0 to {last}", "agent-I of its own")
    print(f"""{options.out}: keys of one server ({options.server}) and {options.agents} agent{"s" if last else ""}. Copy

  to the server    ca.crt server.pem server.key agent-*.pub
  to agent {some:8}ca.crt and {each}
  nowhere          ca.key: its owner can pose as the server. Keep it offline, to renew server.pem within {options.days} days

into a folder {keys} there, over a private connection (scp). Then, on the server and at an agent:

  fedpg serve --config fed.toml --out runs/fed --address 0.0.0.0:9092 --keys {keys}
  fedpg join --server {host}:9092 --agent-id 0 --env cartpole --keys {keys}""")
    return 0
