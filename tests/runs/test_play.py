"""Films of CartPole, MuJoCo, Gymnasium and the user's own environments; what cannot be drawn is one line."""

from __future__ import annotations

import subprocess
import sys

import imageio.v2 as imageio
import numpy as np
import pytest
from PIL import Image

from fedpg import UserError
from fedpg.cli import main
from fedpg.envs.cartpole import CartPole
from fedpg.report import video
from fedpg.runs.play import play
from helpers.policies import CASES, written

PICTURES = """
import numpy as np
from fedpg.envs import Box

class Dot:
    observation_space, action_space = Box((1,)), Box((1,), -1.0, 1.0)
    def __init__(self, speed): self.speed = speed
    def reset(self, *, seed=None): self.x = 0.0; return np.zeros(1), {}
    def step(self, action):
        self.x += self.speed
        return np.array([self.x]), 1.0, self.x >= 3.0, False, {}
    def render(self):
        picture = np.zeros((20, 30, 3), np.uint8); picture[:, int(5 * self.x)] = 255
        return picture

def make(speed=1.0, render_mode=None):
    return Dot(speed)
"""


def test_a_film_of_cartpoles_shows_every_agent_and_the_policy_before(tmp_path):
    written(tmp_path / "run", "categorical", horizon=12)
    mp4, gif = play([str(tmp_path / "run")] * 2, tmp_path / "film.mp4", before=True, steps=5)
    frames = imageio.mimread(mp4)
    assert len(frames) == 5 + 30  # the last one stands for a second
    width, height = 2 * (video.SIZE[0] + 6) + 6, 3 * (video.SIZE[1] + 2 * video.LABEL + 6) + 6
    assert frames[0].shape == (height + height % 2, width + width % 2, 3)
    assert Image.open(gif).n_frames >= 3  # every second frame; equal ones are joined
    assert not np.array_equal(frames[0], frames[4])


def test_the_picture_of_a_cartpole_follows_its_state():
    def darkest(picture, colour):
        return np.argwhere(np.abs(picture.astype(int) - colour).sum(2) < 60)

    constants = CartPole()
    right, left = (video.cartpole(np.array([x, 0.0, 0.0, 0.0]), constants) for x in (1.0, -1.0))
    assert darkest(right, video.CART)[:, 1].mean() > video.SIZE[0] / 2 > darkest(left, video.CART)[:, 1].mean()
    leaning = video.cartpole(np.array([0.0, 0.0, 0.2, 0.0]), constants)
    assert darkest(leaning, video.POLE)[:, 1].max() > video.SIZE[0] / 2 + 8
    longer = video.cartpole(np.zeros(4), CartPole(length=0.9))
    assert len(darkest(longer, video.POLE)) > 1.3 * len(darkest(video.cartpole(np.zeros(4), constants), video.POLE))


def test_environments_that_draw_themselves(tmp_path):
    (tmp_path / "dots.py").write_text(PICTURES)
    CASES["dots"] = {"env": f"{tmp_path / 'dots.py'}:make", "env_option": {"speed": [1.0, 0.5]}, "horizon": 10}
    try:
        written(tmp_path / "run", "dots")
    finally:
        del CASES["dots"]
    (mp4,) = play([str(tmp_path / "run")], tmp_path / "dots.mp4", gif=False)
    assert len(imageio.mimread(mp4)) == 6 + 30  # the slower dot needs six steps


@pytest.mark.parametrize(("env", "lacking"), [("swimmer", "MUJOCO_GL"), ("gym:CartPole-v1", "pygame")])
def test_mujoco_and_gymnasium(env, lacking, tmp_path):
    CASES["other"] = {"env": env, "horizon": 3}
    try:
        written(tmp_path / "run", "other")
    finally:
        del CASES["other"]
    # In a process of its own, as people run it: MuJoCo chooses how to draw when it is first imported.
    words = [sys.executable, "-m", "fedpg", "play", str(tmp_path / "run"), "--agents", "1"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 2 and lacking in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert imageio.mimread(tmp_path / "run" / "replay.mp4")[0].std() > 5


def test_what_cannot_be_drawn_is_one_line(tmp_path, capsys):
    written(tmp_path / "mdp", "softmax")
    written(tmp_path / "room", "gaussian")
    for run, message in (("mdp", "random-mdp cannot be drawn"), ("room", "let it take render_mode='rgb_array'"), ("none", "no run")):
        assert main(["play", str(tmp_path / run)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    with pytest.raises(UserError, match="has no agent 5"):
        play([str(tmp_path / "mdp")], tmp_path / "x.mp4", agent=5)
