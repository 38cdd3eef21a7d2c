"""Whose key is whose: the public keys in a server's folder, by agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpg.errors import require

NAME = re.compile(r"agent-(\d+)\.pub")


def agent_keys(folder: Path) -> dict[int, Path]:
    """The files agent-N.pub of a folder, by N."""
    found = {int(match[1]): path for path in sorted(folder.glob("*.pub")) if (match := NAME.fullmatch(path.name))}
    require(bool(found), f"no agent-N.pub in {folder}: without the agents' public keys nobody could join")
    return found


def owner_of(folder: Path) -> Callable[[Any], int | None]:
    """node -> the agent whose key it has. A node whose key is nobody's is agent -1, which no agent is."""
    from fedpg.flower.certificates import flower_key

    owners = {flower_key(path): agent for agent, path in agent_keys(folder).items()}
    return lambda node: owners.get(node.public_key, -1)
