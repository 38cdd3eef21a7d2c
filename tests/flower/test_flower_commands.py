"""Our app under Flower's own commands: flower-superlink, flower-supernode and flwr run, as docs/deploy.md has them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time

import pytest

from fedpg.flower import processes
from fedpg.flower.processes import Child
from fedpg.flower.superlink import APP
from helpers.real import Real


@pytest.mark.federation
def test_our_app_runs_under_flowers_own_commands(tmp_path):
    real, port, home = Real(tmp_path, agents=2, rounds=2, eval_every=2), processes.free_port(), tmp_path / "home"
    agents = [real.start(f"join-{i}", "join", "--agent-id", str(i), "--env", "random-mdp", "--socket", f"{tmp_path}/{i}",
                         "--folder", f"{tmp_path}/agent-{i}") for i in range(2)]  # fmt: skip
    insecure = ["--insecure", "--host", "127.0.0.1"]
    link = [processes.command("flower-superlink"), "--port", str(port), "--disable-runtime-dependency-installation", *insecure]
    children = [Child(link, tmp_path / "superlink.log", home)]
    try:
        processes.wait_until_open(port, children[0])
        local = "[superlink.local]\noptions.num-supernodes = 1\n"
        (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n{local}')
        for i in range(2):
            node = [processes.command("flower-supernode"), "--superlink", f"127.0.0.1:{port}", "--port", str(processes.free_port())]
            config = f'fedpg-socket="{tmp_path}/{i}"'
            children.append(Child([*node, "--node-config", config, *insecure], tmp_path / f"node-{i}.log", tmp_path / f"home-{i}"))
        asked = f'config="{tmp_path}/fed.toml" out="{real.out}"'
        words = [processes.command("flwr"), "run", str(APP), "here", "--format", "json", "-c", asked]
        said = subprocess.run(words, env=processes.environment(home), capture_output=True, text=True, timeout=120, check=False).stdout
        assert json.loads(said)["success"]
        end = time.monotonic() + 200
        while real.status().get("phase") != "finished":
            assert time.monotonic() < end, (tmp_path / "superlink.log").read_text()[-3000:]
            time.sleep(0.5)
    finally:
        for child in reversed(children):
            child.stop()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((real.out / "federation" / "serverapp.pid").read_text()), 9)
        left = real.close()
    assert [row["round"] for row in real.lines("metrics.jsonl")] == [0, 2]
    assert not real.events(0)
    assert not real.events(1)
    assert all(agent.returncode is not None for agent in agents)
    assert not left
