"""Whoever has no business in a federation with keys is refused: one server, and everybody who should not get in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpg.flower.keys import make_keys
from fedpg.flower.processes import free_port
from fedpg.flower.superlink import APP
from helpers.real import PATIENCE, Real, federation


def supernode(real: Real, name: str, *words: str) -> None:
    """Flower's own SuperNode, in no federation of ours."""
    command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", real.address, "--isolation", "process"]
    real.launch(name, [*command, "--port", str(free_port()), *words])


def flwr(real: Real, home: Path, *words: str) -> subprocess.CompletedProcess:
    """An outsider's `flwr`, who knows the server's address and its authority's certificate."""
    home.mkdir(exist_ok=True)
    secure = f'root-certificates = "{real.folder / "keys" / "ca.crt"}"'
    (home / "config.toml").write_text(f'[superlink.theirs]\naddress = "{real.address}"\n{secure}\n[superlink.local]\n')
    command, environment = [str(Path(sys.executable).with_name("flwr")), *words], dict(os.environ) | real.environment
    environment |= {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.federation
def test_everybody_who_has_no_business_there(tmp_path):
    keys, strange, swapped = (tmp_path / name for name in ("keys", "strange", "swapped"))
    make_keys(keys, (), 2)
    make_keys(strange, (), 2)
    shutil.copytree(keys, swapped)
    shutil.copy(keys / "agent-1", swapped / "agent-0")
    trusting = ("--root-certificates", str(keys / "ca.crt"))
    with federation(tmp_path, ("--start-with", "1"), agents=2, rounds=1, algorithm="pavg") as real:
        real.secure = ("--keys", str(keys))
        real.serve()
        real.wait_until(lambda: bool(real.status()))
        supernode(real, "plain text", "--insecure")
        supernode(real, "unknown key", *trusting, "--auth-supernode-private-key", str(strange / "agent-1"))
        supernode(real, "no key", *trusting)
        supernode(
            real, "other server", "--root-certificates", str(strange / "ca.crt"), "--auth-supernode-private-key", str(keys / "agent-1")
        )
        words = (
            "--agent-id",
            "0",
            "--env",
            "random-mdp",
            "--server",
            real.address,
            "--keys",
            str(swapped),
            "--folder",
            str(tmp_path / "i"),
        )
        real.start("impostor", "join", *words)
        registered = flwr(real, tmp_path / "home", "supernode", "register", str(strange / "agent-1.pub"), "theirs")
        submitted = flwr(real, tmp_path / "home", "run", str(APP), "theirs")
        assert registered.returncode == submitted.returncode == 1
        assert real.processes["impostor"].wait(PATIENCE) == 2, "it does not get past the greeting"
        for name in ("unknown key", "no key", "other server"):
            assert real.processes[name].wait(PATIENCE) == 1
        real.join(0)  # the one with the right key
        real.finish()
        assert real.processes["plain text"].poll() is None, "it tries and tries"
    logs = {name: (real.out / "federation" / f"{name}.log").read_text() for name in ("superlink", "proxy")}
    assert "[code: 2004]" in real.log("unknown key")
    assert "ApiError:2004" in logs["superlink"]
    assert "[code: 2001]" in real.log("no key")
    assert "ApiError:2001" in logs["superlink"]
    assert "CERTIFICATE_VERIFY_FAILED" in real.log("other server"), "an agent does not talk to another server either"
    assert "Connection attempt failed" in real.log("plain text")
    assert "SuperNode ID" not in "".join(real.log(name) for name in ("plain text", "unknown key", "no key", "other server"))
    assert any(event["what"].endswith("it says that it is agent 0, but has the key of agent 1") for event in real.events())
    for call in ("register-node", "start-run"):
        assert f"POST '/v1/control/{call}' refused with 404" in logs["proxy"]
    assert logs["superlink"].count("Created run") == 1, "ours"
    assert logs["superlink"].count("RegisterNode] Created node_id") == 2, "our agents"
    assert [(agent["accepted"], agent["missed"]) for agent in real.status()["agents"]] == [(3, 0), (0, 0)]
