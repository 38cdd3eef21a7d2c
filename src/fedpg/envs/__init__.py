"""What an agent lives in."""

from fedpg.envs.base import Box, Discrete, Environment, Federation, Step, federate
from fedpg.envs.families import FAMILIES, Family, family, read_options

__all__ = ["FAMILIES", "Box", "Discrete", "Environment", "Family", "Federation", "Step", "family", "federate", "read_options"]
