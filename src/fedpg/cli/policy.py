"""`fedpg policy --server HOST:PORT`: the newest policy of a federation, for those who take no part in it."""

import dataclasses
from pathlib import Path

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import require_flower


@dataclasses.dataclass(frozen=True)
class PolicyOptions:
    """Fetch the newest policy of a federation without taking part in it.

    Example: fedpg policy --server server.example:9094 --key keys/reader-0 --out policy

    The server must have been started with fedpg serve --policy HOST:PORT. The key can only read: `fedpg cert --readers 1` makes it,
    and the folder it is in must hold ca.crt too. Then: fedpg.load("policy").
    """

    server: str
    """HOST:PORT of fedpg serve --policy."""
    key: str | None = None
    """The reader's key, a file reader-I beside ca.crt."""
    insecure: bool = False
    """Neither encryption nor a key: for tests on one machine."""
    out: str = "policy"
    """The folder for policy.safetensors and policy.json; an older policy there is replaced."""


def main(argv: list[str]) -> int:
    """Fetches; returns the exit code."""
    options = parse(PolicyOptions, argv, "fedpg policy")
    require(bool(options.key) != options.insecure, "give either --key FILE (fedpg cert --readers 1 makes one) or --insecure")
    require_flower()
    from fedpg.flower.delivery import fetch

    key = Path(options.key) if options.key else None
    for file in (key, key.with_name("ca.crt")) if key else ():
        require(file.is_file(), f"no {file.name} in {file.parent}")
    found = fetch(options.server, Path(options.out), key, key.with_name("ca.crt") if key else None)
    print(f"{found.path}: {found.spec.config['algorithm']} after {found.spec.round} rounds")
    return 0
