"""`fedpg cert`: makes the keys of a federation and says where each of them belongs."""

import dataclasses
import importlib.util
from pathlib import Path

from fedpg.cli.parse import parse
from fedpg.errors import require


@dataclasses.dataclass(frozen=True)
class CertOptions:
    """Make the keys of a federation: a certificate for the server, and a key pair for every agent.

    Example: fedpg cert --out keys --server fed.example.org,192.0.2.7 --agents 5

    Nothing is overwritten. docs/how-to/secure.md has commands of openssl and ssh-keygen that do the same.
    """

    server: str
    """HOST_OR_IP[,MORE]: by which names agents reach the server; localhost and 127.0.0.1 are always among them."""
    agents: int
    """How many agents get a key pair."""
    readers: int = 0
    """How many get a key with which `fedpg policy` can fetch the policy, and nothing else be done."""
    out: str = "keys"
    """The folder to make."""
    days: int = 825
    """How long the server's certificate is valid."""


def main(argv: list[str]) -> int:
    """Runs the verb; returns the exit code."""
    options = parse(CertOptions, argv, "fedpg cert")
    require(importlib.util.find_spec("cryptography") is not None, "fedpg cert needs cryptography: pip install 'fedpg[flower]'")
    from fedpg.flower.keys import make_keys

    names = tuple(name.strip() for name in options.server.split(","))
    make_keys(Path(options.out), names, options.agents, options.days, options.readers)
    keys, host = Path(options.out).name, f"[{names[0]}]" if ":" in names[0] else names[0]
    print(f"""{options.out}: the keys of one server ({options.server}) and of agents 0 to {options.agents - 1}. Copy

  to the server    ca.crt server.pem server.key agent-*.pub{" reader-*.pub" if options.readers else ""}
  to agent I       ca.crt agent-I{chr(10) + "  to reader I      ca.crt reader-I" if options.readers else ""}
  nowhere          ca.key: its owner can pose as the server. Keep it offline, to renew server.pem within {options.days} days

into a folder {keys} there, over a private connection (scp). Then, on the server and at an agent:

  fedpg serve --config fed.toml --out runs/fed --address 0.0.0.0:9092 --keys {keys}
  fedpg join --server {host}:9092 --agent-id 0 --env cartpole --keys {keys}""")
    return 0
