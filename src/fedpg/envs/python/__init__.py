"""Environments with Gymnasium's interface, stepped in Python: any Gymnasium id, and one's own."""

from fedpg.envs.python.gym import gym_world, time_limit
from fedpg.envs.python.own import own_world

__all__ = ["gym_world", "own_world", "time_limit"]
