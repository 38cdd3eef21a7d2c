"""Environments: what an agent lives in. `make` knows every environment by name."""

from fedpg.envs.base import Box, Discrete, Environment, Federation, Step, federate
from fedpg.envs.families import FAMILIES, Family, family, make
from fedpg.envs.host import HostEnvironment

__all__ = [
    "FAMILIES", "Box", "Discrete", "Environment", "Family", "Federation", "HostEnvironment", "Step", "family", "federate", "make",
]  # fmt: skip
