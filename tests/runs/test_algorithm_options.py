"""--algorithm-option: from the command line and TOML to the factory, refused in one line, kept for a resumed run."""

from __future__ import annotations

import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.cli import main
from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs import setup
from fedpg.runs.config import Config
from fedpg.runs.options import known_options, resolve_options

TINY = ["--env", "random-mdp", "--agents", "2", "--rounds", "2", "--local-steps", "1", "--horizon", "3", "--eval-every", "1"]


def of(*pairs, algorithm="fedsvrpg-s"):
    return setup.resolve(Config(env="random-mdp", algorithm=algorithm, algorithm_option=pairs))


def test_options_reach_the_factory(monkeypatch):
    seen = {}

    def spy(problem, *, local_lr, local_steps=1, lookback: str = "auto", gain: float | None = None):
        seen.update(lookback=lookback, gain=gain)
        return ALGORITHMS["pavg"](problem, local_lr=local_lr, local_steps=local_steps)

    monkeypatch.setitem(ALGORITHMS, "spy", spy)
    setup.plan(of("gain=1", "lookback=memory", algorithm="spy")).algorithm_of({})
    assert seen == {"lookback": "memory", "gain": 1.0}


def test_one_form_whatever_was_typed():
    """A resumed run compares its options, so 1 and 1.0, or another order, must not look like another run."""
    assert of("gain=1", "lookback=memory") == of('lookback="memory"', "gain=1.0")
    assert of("gain=1").algorithm_option == ("gain=1.0",)
    assert setup.resolve(of("gain=1")) == of("gain=1")


def test_flags_win_over_the_preset():
    assert resolve_options("fedsvrpg-s", ("gain=3",), {"gain": 2.0, "lookback": "memory"}) == ("gain=3.0", 'lookback="memory"')


@pytest.mark.parametrize(
    ("algorithm", "pair", "message"),
    [
        ("fedsvrpg-s", "gian=1", "unknown algorithm-option of fedsvrpg-s 'gian': did you mean 'gain'? Known: lookback, gain"),
        (
            "fedsvrpg-s",
            "lookback=2",
            "must be str, not 2 (fedsvrpg-s takes lookback=auto, gain=None, stretch=1.1, plain_rounds=None, agreement=0.0)",
        ),
        ("fedsvrpg-s", "gain=fast", "gain must be float, not 'fast'"),
        ("fedsvrpg-s", "gain=true", "gain must be float, not True"),
        ("fedsvrpg-s", "gain=nan", "gain must be finite"),
        ("fedsvrpg-s", "gain", "algorithm-option 'gain' must be NAME=VALUE"),
        ("fedsvrpg-s", "beta=0.3", "beta has a flag of its own: give --beta"),
        ("pavg", "gain=1", "pavg takes no algorithm-option"),
    ],
)
def test_mistakes_are_one_line(algorithm, pair, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, "--algorithm", algorithm, "--algorithm-option", pair]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_means_nothing_is_refused_by_the_algorithm():
    with pytest.raises(UserError, match="gain must be positive, not -1"):
        setup.build(of("gain=-1"))


def test_in_toml_and_in_a_resumed_run(capsys, tmp_path):
    path, out = tmp_path / "c.toml", str(tmp_path / "run")
    path.write_text('algorithm = "fedsvrpg-s"\n[algorithm-option]\nlookback = "memory"\ngain = 1\n')
    command = ["train", *TINY, "--config", str(path), "--out", out]
    assert main(command) == 0
    assert configs.read(tmp_path / "run" / "config.toml")["algorithm_option"] == ("gain=1.0", 'lookback="memory"')
    assert main(["train", "--resume", "--out", out, "--rounds", "3"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", "--out", out, "--algorithm-option", "gain=2"]) == 2
    assert "cannot resume: the run has algorithm-option" in capsys.readouterr().err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_option_has_a_default_of_a_type_that_can_be_typed(algorithm):
    """So that an algorithm runs without options, and a mistyped one can be told."""
    for name, default in known_options(algorithm).items():
        assert default is None or type(default) in (bool, int, float, str), name
        if default is not None:
            resolve_options(algorithm, (f"{name}={str(default).lower() if isinstance(default, bool) else default}",), {})
