"""Exports: ONNX gives the same actions, the card is complete, and an export can be used like a run."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import onnxruntime
import pytest
import yaml

import fedpg
from fedpg.cli import main
from fedpg.runs import policy as files
from fedpg.runs.export import card, export
from helpers.policies import CASES, observations, written


@pytest.mark.parametrize("case", CASES)
def test_onnx_gives_the_same_actions(case, tmp_path):
    problem, _ = written(tmp_path / "run", case, seeds=2, returns=[1.0, 2.0])
    files, left_out = export(tmp_path / "run", tmp_path / "out")
    assert [path.name for path in files] == ["policy.safetensors", "policy.json", "policy.onnx", "README.md"]
    assert left_out == []
    policy, seen = fedpg.load(tmp_path / "out"), observations(problem)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    action, outputs = session.run(None, {"observation": seen})
    expected, _ = policy.predict(seen)
    assert action.dtype == expected.dtype
    np.testing.assert_allclose(action, expected, atol=1e-5)
    np.testing.assert_allclose(outputs, policy.outputs(policy._batch(seen)[0]), atol=1e-5, rtol=1e-5)
    again = fedpg.load(tmp_path / "run")
    assert again.spec == policy.spec
    assert all(np.array_equal(again.params[name], array) for name, array in policy.params.items())


def test_the_card_has_what_hugging_face_reads(tmp_path):
    written(tmp_path / "run", "categorical, scaled", returns=[41.5])
    export(tmp_path / "run", tmp_path / "mine", reward=(12.0, 3.5, "as measured"))
    text = (tmp_path / "mine" / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    (entry,) = front["model-index"]
    assert front["library_name"] == "fedpg"
    assert "reinforcement-learning" in front["tags"]
    assert entry["results"][0]["metrics"][0] == {"type": "mean_reward", "value": "12.00 +/- 3.50", "name": "mean_reward", "verified": False}
    assert entry["results"][0]["dataset"] == {"name": "cartpole", "type": "cartpole"}
    assert 'fedpg.load("mine")' in text
    assert "on scaled observations" in text
    spec = files.read(tmp_path / "run").spec
    odd = dataclasses.replace(spec, config=spec.config | {"env": "/home/me/@room: #1.py:make", "algorithm": "/home/me/mine.py:best"})
    front = yaml.safe_load(card(odd, "mine").split("---")[1])
    assert front["tags"][0] == front["model-index"][0]["results"][0]["dataset"]["name"] == "@room: #1.py:make"
    assert front["model-index"][0]["name"] == "mine.py:best"
    export(tmp_path / "run", tmp_path / "other")
    assert "41.50" in (tmp_path / "other" / "README.md").read_text()


def test_the_verb_measures_films_and_refuses(tmp_path, capsys):
    written(tmp_path / "run", "categorical", horizon=6)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--episodes", "3"]) == 0
    assert (tmp_path / "out" / "replay.mp4").stat().st_size > 1000
    assert "+/-" in (tmp_path / "out" / "README.md").read_text()
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "still"), "--episodes", "0", "--no-video"]) == 0
    assert not (tmp_path / "still" / "replay.mp4").exists()
    for arguments, message in (
        ([str(tmp_path / "run"), "--out", str(tmp_path / "out")], "is not empty: give another --out"),
        ([str(tmp_path / "nowhere")], "no run and no policy"),
        ([str(tmp_path / "run"), "--out", str(tmp_path / "b"), "--seed", "7"], "has no seed 7"),
    ):
        capsys.readouterr()
        assert main(["export", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "b").exists()


def test_what_cannot_be_drawn_or_written_is_named_and_left_out(tmp_path, capsys, monkeypatch):
    written(tmp_path / "run", "softmax", personal=True)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--agent", "1", "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    assert "policy.onnx is left out: policy.onnx needs the package onnx: pip install 'fedpg[onnx]'" in shown
    assert "replay.mp4 is left out: random-mdp cannot be drawn" in shown
    assert fedpg.load(tmp_path / "out").spec.agent == 1
    assert "The policy of agent 1 of 2" in (tmp_path / "out" / "README.md").read_text()
    shutil.rmtree(tmp_path / "run")
    assert fedpg.load(tmp_path / "out").predict(2)[0] in range(5)
