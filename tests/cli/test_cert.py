"""`fedpg cert`: what it says, and what mistakes get."""

from __future__ import annotations

import sys

import pytest

from fedpg.cli import main


def test_says_what_belongs_where_and_what_comes_next(tmp_path, capsys):
    keys = tmp_path / "keys"
    assert main(["cert", "--out", str(keys), "--server", "fed.example.org, 192.0.2.7", "--agents", "3"]) == 0
    said = capsys.readouterr().out
    for path in keys.iterdir():
        name = path.name if not path.name.startswith("agent-") else "agent-*.pub" if path.suffix else "agent-I"
        assert name in said
    assert "agents 0 to 2" in said
    assert "fedpg serve --config fed.toml --out runs/fed --address 0.0.0.0:9092 --keys keys\n" in said
    assert "fedpg join --server fed.example.org:9092 --agent-id 0 --env cartpole --keys keys\n" in said
    assert main(["cert", "--out", str(keys), "--server", "fed", "--agents", "3"]) == 2
    refusal = capsys.readouterr().err
    assert "nothing is overwritten" in refusal
    assert refusal.count("\n") == 1


def test_an_address_of_version_6_is_bracketed(tmp_path, capsys):
    assert main(["cert", "--out", str(tmp_path / "keys"), "--server", "2001:db8::1", "--agents", "1"]) == 0
    assert "--server [2001:db8::1]:9092" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--server", "fed"], "--agents"),
        (["--agents", "1"], "--server"),
        (["--server", "fed", "--agents", "many"], "--agents"),
        (["--server", "fed:9092", "--agents", "1"], "without a port"),
        (["--server", "fed", "--agents", "0"], "1 to 10000"),
        (["--server", "fed", "--agents", "1", "--days", "0"], "1 to 36500"),
    ],
)
def test_mistakes_are_one_line(flags, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["cert", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_explains(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cert", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert all(flag in said for flag in ("--out", "--server", "--agents", "--days", "openssl"))


def test_without_the_extra_it_is_named(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography" or name == "fedpg.flower.keys"]:
        monkeypatch.delitem(sys.modules, name)
    import fedpg.flower

    monkeypatch.delattr(fedpg.flower, "keys", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["cert", "--out", str(tmp_path / "keys"), "--server", "fed", "--agents", "1"]) == 2
    assert capsys.readouterr().err == "fedpg: fedpg cert needs cryptography: pip install 'fedpg[flower]'\n"
    assert not list(tmp_path.iterdir())
