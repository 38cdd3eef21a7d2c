"""The agents' half."""

from fedpg.engines.flower.relay import app

__all__ = ["app"]
