"""An environment of your own in plain Python: rooms that are insulated differently, kept at 20 degrees through a winter day.

Look at it: python examples/python_environment.py
Learn it:   fedpg train --config examples/thermostat.toml
"""

import numpy as np

from fedpg.envs import Box


class Room:
    observation_space = Box((2,))
    action_space = Box((1,), 0.0, 1.0)  # how far the heater is on; the policy's [-1, 1] is scaled to it

    def __init__(self, insulation, heater=4.0):
        self.insulation, self.heater = insulation, heater

    def reset(self, *, seed=None, options=None):
        random = np.random.default_rng(seed)
        self.inside, self.outside, self.hour = random.uniform(15.0, 25.0), random.uniform(-5.0, 10.0), 0
        return self.observe(), {}

    def step(self, action):
        self.inside += self.heater * action[0] - (self.inside - self.outside) / self.insulation
        self.hour += 1
        reward = -abs(self.inside - 20.0) / 5.0 - 0.1 * action[0]
        return self.observe(), reward, False, self.hour == 24, {}

    def observe(self):
        return np.array([self.inside - 20.0, self.outside - 20.0]) / 10.0


def make(insulation, heater=4.0):
    """One agent's room: the hours in which it loses two thirds of its warmth, and the degrees per hour of its heater."""
    return Room(insulation, heater)


if __name__ == "__main__":
    for insulation in (8.0, 16.0, 32.0):
        room = make(insulation)
        room.reset(seed=0)
        print(f"insulation {insulation:4}: return {sum(room.step([0.5])[1] for _ in range(24)):.1f} with the heater half on")
