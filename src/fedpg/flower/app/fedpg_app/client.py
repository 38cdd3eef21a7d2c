"""The agents' half."""

from fedpg.flower.relay import app

__all__ = ["app"]
