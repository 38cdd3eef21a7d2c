"""A federation between machines on Flower: what runs on the server's machine and on every agent's."""

import importlib.util

from fedpg.errors import require


def require_flower() -> None:
    """Raises a `UserError` if Flower is not installed."""
    require(importlib.util.find_spec("flwr") is not None, "this needs Flower: pip install 'fedpg[flower]'")
